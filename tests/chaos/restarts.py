"""A long run on three hosts: `python -m tests.chaos.restarts --mpi mpich --strikes 500 --seed 1`. Needs root.

Values of 30 MB move between the hosts under `mpi-runtime run --journal DIR --restarts 99`, while a host is cut off or
crashes and processes are killed, also during the start and the restart. Every answer must be that of an undisturbed
run, the exit code 0, and nothing may be left. The program is new after every `--per-run` strikes.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

from tests import helpers
from tests.chaos.killer import EXECUTOR, FORKSERVER, victims
from tests.conftest import nothing_left
from tests.helpers import Program
from tests.hosts.lab import Lab, lab

HOSTS = {"host1": 3, "host2": 2, "host3": 2}
STEPS, WIDTH = 12, 4
LARGE = 30_000_000
FOREIGN = (f"file /tmp/mpi_runtime-{os.getuid()}",)
"""The folder of the jobs of this user: other programs on this machine may make it."""
LIMIT_S = 150.0
"""How long a program may take to end after the last strike."""
LOST_MAX = 2
"""Hosts that do not answer at a restart stay out: after two losses host 1 is alone."""
HEAD, DRIVER, LAUNCHER, RANK = "head", "program", "launcher", "worker rank"
CRASH, CUT = "host crashed", "host cut off"
RESTART = "restart"
WEIGHTS = {EXECUTOR: 8, FORKSERVER: 3, RANK: 2, HEAD: 1, DRIVER: 1, LAUNCHER: 1, CRASH: 1, CUT: 1}
RANK_OF = re.compile(rb"(?:^|\0)PMIX?_RANK=(\d+)")
"""Only ranks have it: their children do not inherit it."""
LAUNCHERS = ("mpiexec", "mpirun", "prterun", "mpiexec.hydra")

APP = f"""
import sys
import numpy as np
import mpi_runtime as ray

ray.init(num_cpus=2, heartbeat_timeout_s=3)

@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD", max_retries=-1, journal=False)
def make(seed):
    return np.full({LARGE}, seed % 251, np.uint8)

@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD", max_retries=-1)
def mix(left, right):
    return int(left[::1000].sum()) + 3 * int(right[-1]) + int((left != left[0]).sum() + (right != right[0]).sum())

def ask(step, value):
    while True:
        try:
            arrays = [make.remote(value + place) for place in range({WIDTH})]
            return ray.get([mix.remote(arrays[place], arrays[place - 1]) for place in range({WIDTH})])
        except ray.exceptions.ObjectLostError:
            pass

value = 7
for step in range({STEPS}):
    value = (value + sum(ask(step, value))) % 1_000_003
    print("step", step, flush=True)
print("answer", value, flush=True)
"""


def answer() -> int:
    """What an undisturbed run prints."""
    value = 7
    for _ in range(STEPS):
        bytes_of = [(value + place) % 251 for place in range(WIDTH)]
        count = len(np.empty(LARGE, np.uint8)[::1000])
        value = (value + sum(count * bytes_of[i] + 3 * bytes_of[i - 1] for i in range(WIDTH))) % 1_000_003
    return value


def found(program: Program, kind: str) -> list[int]:
    """The living processes of a kind, in the order of their numbers."""
    if kind in (EXECUTOR, FORKSERVER):
        return [pids[0] for pids in victims(program)[kind]]
    matching = []
    for pid in program.processes():
        with suppress(OSError):
            command = Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])).name
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            rank = RANK_OF.search(Path(f"/proc/{pid}/environ").read_bytes())
            own = HEAD if name == "mpi-rt-head" else LAUNCHER if command in LAUNCHERS else ""
            if rank and not own:
                own = DRIVER if rank[1] == b"0" else RANK
            if own == kind:
                matching.append(pid)
    return matching


def strike(program: Program, hosts: Lab, kind: str, random: random.Random, healing: ExitStack) -> bool:
    """Strike once; whether there was anything to strike."""
    if kind == CUT:
        healing.enter_context(hosts.cut(random.choice(["host2", "host3"])))
        return True
    if kind == CRASH:
        network = os.readlink(f"/proc/{hosts.hosts[random.choice(['host2', 'host3'])]}/ns/net")
        pids = []
        for pid in program.processes():
            with suppress(OSError):
                pids += [pid] * (os.readlink(f"/proc/{pid}/ns/net") == network)
    else:
        pids = found(program, kind)
        pids = [random.choice(pids)] if pids else []
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def run(mpi: str, seed: int, strikes: int, pause_s: float) -> Counter[str]:
    """Strike one program that often at most, and judge it."""
    chance, counts = random.Random(f"{mpi} {seed}"), Counter[str]()
    kinds = dict(WEIGHTS)
    with lab(len(HOSTS)) as hosts, ExitStack() as healing:
        folder = hosts.place / "run"
        with hosts.restarted(APP, folder, ranks=HOSTS, mpi=mpi, restarts=99) as program:
            heal_s = 0.0
            while counts.total() < strikes and program.process.poll() is None:
                time.sleep(chance.expovariate(1 / pause_s))
                if heal_s and time.monotonic() > heal_s:
                    healing.close()
                    heal_s = 0.0
                [kind] = chance.choices(list(kinds), list(kinds.values()))
                if (kind == CUT and heal_s) or not strike(program, hosts, kind, chance, healing):
                    continue
                counts[kind] += 1
                if kind == CUT:
                    heal_s = time.monotonic() + chance.uniform(0.5, 12)
                if counts[CUT] + counts[CRASH] >= LOST_MAX:
                    kinds.pop(CUT, None)
                    kinds.pop(CRASH, None)
            time.sleep(max(0.0, heal_s - time.monotonic()))
            healing.close()
            done = program.finish(LIMIT_S).expect(0)
        if done.stdout.splitlines()[-1] != f"answer {answer()}":
            pytest.fail(f"the answer is not {answer()}\n{done.output()}")
        counts[RESTART] = done.stderr.count("mpi-runtime run: the program was killed")
        shutil.rmtree(folder, ignore_errors=True)
    return counts


def main() -> int:
    """Run programs until enough was struck."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.restarts", description=__doc__)
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="mpich")
    parser.add_argument("--strikes", type=int, default=500)
    parser.add_argument("--per-run", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between strikes, on average")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ[helpers.MARK] = mark = f"restarts{os.getpid()}"
    total, failures, seed, began_s = Counter[str](), 0, options.seed, time.monotonic()
    while total.total() - total[RESTART] < options.strikes and failures < 20:
        try:
            with nothing_left(f"{mark}/{seed}", known=FOREIGN):
                counts = run(options.mpi, seed, options.per_run, options.pause)
            total += counts
            print(f"{options.mpi} seed {seed}: {dict(counts)}", flush=True)
        except pytest.fail.Exception as failure:
            failures += 1
            print(f"{options.mpi} seed {seed} FAILED\n{failure}", flush=True)
        seed += 1
    print(f"{options.mpi}, seeds {options.seed} to {seed - 1}, {time.monotonic() - began_s:.0f} s, {failures} failures")
    for kind, count in sorted(total.items()):
        print(f"{count:6} {kind}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
