"""Programs in control groups of version 2, with limits of memory and CPUs: started by `python -m tests.vm`.

Each trial writes limits into the files of a group two levels below the root, as systemd does for a user's job, runs a
program in it, and compares what the program prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path("/sys/fs/cgroup")
SLICE = TOP / "user.slice"
CONTROLLERS = "+memory +cpu"
MIB = 1 << 20
LIMIT_S = 600
"""An emulated processor is fifty times slower."""
HEAD = """
import os, sys, time
import numpy as np
import mpi_runtime as ray

ray.init(start_timeout_s=600, heartbeat_timeout_s=600, {init})

@ray.remote(num_cpus=1)
def fine():
    return 7

@ray.remote(num_cpus=1)
def grows():
    kept = []
    while True:
        kept.append(np.ones(MIB, np.uint8))
        time.sleep(0.02)

@ray.remote(num_cpus=1)
def jumps():
    return len(np.ones(900 * MIB, np.uint8))

def result(ref):
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        return f"{{type(error).__name__}}: {{error}}"

MIB = 1 << 20
"""


@dataclass(frozen=True)
class Trial:
    """A program, the limits of its group, and what it prints."""

    program: str
    prints: Sequence[str]
    """Regular expressions, one for each line."""
    limits: dict[str, str] = field(default_factory=lambda: {"job.scope/memory.max": f"{600 * MIB}"})
    """The content of files, by their names below `user.slice`."""
    init: str = "num_cpus=2"


NO_WATCH = "num_cpus=2, memory_usage_threshold=0"
BY_KERNEL = r"by the kernel, since the memory was used up: the limit is 600 MiB \(control group .*/{}\)"
TRIALS = {
    "limits": Trial(
        "print(ray.cluster_resources()['CPU'], ray.cluster_resources()['memory'] / MIB)",
        [r"1\.0 600\.0"],
        {"job.scope/memory.max": f"{600 * MIB}", "cpu.max": "90000 100000", "memory.max": f"{900 * MIB}"},
        init="",
    ),
    "the watch ends what grows": Trial(
        "print(result(grows.options(max_retries=0).remote()))\nprint(result(fine.remote()))",
        [r"OutOfMemoryError: .* of 600\.0 MiB of memory are used \(control group .*/job\.scope", "7"],
    ),
    "what grows above memory.high": Trial(
        "print(result(grows.options(max_retries=0).remote()))\nprint(result(fine.remote()))",
        [r"OutOfMemoryError: .* of 400\.0 MiB of memory are used \(control group .*/job\.scope", "7"],
        {"job.scope/memory.max": f"{600 * MIB}", "job.scope/memory.high": f"{400 * MIB}"},
    ),
    "the kernel kills what jumps": Trial(
        "print(result(jumps.options(max_retries=0).remote()))\nprint(result(fine.remote()))",
        [BY_KERNEL.format(r"job\.scope"), "7"],
        init=NO_WATCH,
    ),
    "the limit is that of the group above": Trial(
        "print(result(jumps.options(max_retries=0).remote()))\nprint(result(fine.remote()))",
        [BY_KERNEL.format(r"user\.slice"), "7"],
        {"memory.max": f"{600 * MIB}"},
        init=NO_WATCH,
    ),
}


def reset(limits: dict[str, str]) -> Path:
    """Make the groups, with these limits alone; return that of the program."""
    (TOP / "cgroup.subtree_control").write_text(CONTROLLERS)
    group = SLICE / "job.scope"
    if group.exists():
        group.rmdir()
        SLICE.rmdir()
    group.mkdir(parents=True)
    (SLICE / "cgroup.subtree_control").write_text(CONTROLLERS)
    for name, content in limits.items():
        (SLICE / name).write_text(content)
    return group


def passes(name: str, trial: Trial) -> bool:
    """Run it; whether it prints and leaves what it should."""
    group = reset(trial.limits)
    words = ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh", sys.executable, "-c"]
    program = HEAD.format(init=trial.init) + trial.program
    environment = {**os.environ, "MPI_RUNTIME_QUIET": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*words, program], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    lines = done.stdout.splitlines()
    is_right = done.returncode == 0 and len(lines) == len(trial.prints)
    is_right = is_right and all(re.search(one, line) for one, line in zip(trial.prints, lines, strict=True))
    left = (group / "cgroup.procs").read_text().split()
    print(f"{'right' if is_right and not left else 'WRONG'}: {name}", flush=True)
    if not is_right or left:
        print(f"  {trial.limits}\n  exit code {done.returncode}, left {left}\n{done.stdout}{done.stderr}", flush=True)
    return is_right and not left


def main(only: str) -> int:
    """Run the trials with names that begin so; return 1 if any fails."""
    results = [passes(name, trial) for name, trial in TRIALS.items() if name.startswith(only)]
    print(f"{sum(results)} of {len(results)} right")
    return 0 if all(results) and results else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
