"""Do the tests notice mistakes? `python -m tests.mutants.run [--seed N] [--count N] [--only PATH] [--jobs N]`.

Random mutants (`mutations.py`) of what decides and of what deals out memory, each in a copy of the tree: first the unit
tests that concern the file, then simulations, then the unit tests of its package, until something fails. Prints what
became of each, and the share that was killed. Those that change nothing that matters are named in `equivalent.py`, and
are left out.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.helpers import ROOT
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Mutation, mutations

Command = tuple[str, ...]

FILES = (
    "scheduler/**/*.py",
    "gpu/ledger.py",
    "mpi_runtime/core/objects/arena.py",
    "mpi_runtime/core/objects/region.py",
    "mpi_runtime/core/objects/allocator.py",
    "mpi_runtime/core/agent/custody.py",
    "mpi_runtime/core/agent/forkserver.py",
    "mpi_runtime/core/agent/executors.py",
    "mpi_runtime/core/agent/agent.py",
)
SIMULATED = ("scheduler/", "gpu/ledger.py", "mpi_runtime/core/agent/custody.py")
"""What the simulator runs."""
SEEDS = "0:60"
CPU_LIMIT_S = 240
"""CPU time of one command, in seconds: many times what it takes. Others may use the machine, so it is not time."""
LIMIT_S = 2400.0
"""Time of one mutant, for those that wait for ever, in seconds."""
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "600")
SIMULATION = ("-m", "tests.simulation.run", "--first", "--seeds", SEEDS)
SIMULATIONS: tuple[Command, ...] = (SIMULATION, (*SIMULATION, "--calm"))
WORLDS = {
    # Modules that act in worlds of their own only: those with little memory, with a journal, or in which ranks die.
    **dict.fromkeys(("spilling", "spreading", "copies"), ("--spills", "--losses")),
    **dict.fromkeys(("journaling", "checkpoints"), ("--journal",)),
    **dict.fromkeys(("lost_ranks", "lineage", "rebuilding"), ("--losses",)),
}
KILLED, SURVIVED, TIMED_OUT = "killed", "SURVIVED", "killed (time limit)"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutation: Mutation
    outcome: str
    by: str = ""
    """What noticed it."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; 1 if anything survived."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS='...'", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 100_000, help="the same seed draws the same mutants"
    )
    parser.add_argument("--count", type=int, default=100, help="how many; 0: all")
    parser.add_argument("--only", default="", metavar="PATH[:LINE]", help="of files that begin so, or of one line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    chosen = parser.parse_args(arguments)
    found = [one for file in files(ROOT) for one in mutations(file, (ROOT / file).read_bytes())]
    prefix, _, line = chosen.only.partition(":")
    found = [one for one in found if one.file.startswith(prefix) and line in ("", str(one.line))]
    if not found:
        parser.error(f"no mutant of a file that begins with {chosen.only!r}; what is mutated: {', '.join(FILES)}")
    drawn = [one for one in found if not any(entry.names(one) for entry in EQUIVALENT)]
    print(f"seed {chosen.seed}: of {len(found)} mutants {len(found) - len(drawn)} are named as equivalent", flush=True)
    if chosen.count and chosen.count < len(drawn):
        drawn = random.Random(chosen.seed).sample(drawn, chosen.count)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the copies go
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        verdicts = judge_all(drawn, [copied(Path(folder) / str(number)) for number in range(max(1, chosen.jobs))])
    survivors = [one for one in verdicts if one.outcome == SURVIVED]
    for one in sorted(survivors, key=lambda one: (one.mutation.file, one.mutation.line)):
        print(f"\n{described(one)}")
    share = 100 * (1 - len(survivors) / max(1, len(verdicts)))
    print(f"\n{len(verdicts)} mutants, {len(survivors)} survived: {share:.1f} % killed")
    return min(1, len(survivors))


def files(root: Path) -> list[str]:
    """What is mutated."""
    return [str(path.relative_to(root)) for pattern in FILES for path in sorted(root.glob(pattern))]


def copied(to: Path) -> Path:
    """A copy of the working tree, with its links, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    return to


def judge_all(drawn: Sequence[Mutation], trees: Sequence[Path]) -> list[Verdict]:
    """Judge each, as many at a time as there are trees. What fails without a mutant would kill all of them."""
    todo = {command for one in drawn for command in commands(trees[0], one.file)}
    simulations = sorted(command for command in todo if command[: len(SIMULATION)] == SIMULATION)
    tests = sorted({test for command in todo.difference(simulations) for test in command[len(PYTEST) :]})
    for command in ((*PYTEST, *tests), *simulations):
        failed = run(trees[0], command, LIMIT_S)
        if failed is not None:
            sys.exit(f"fails without a mutant: {' '.join(command)}\n{failed}")
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def judged(mutation: Mutation) -> Verdict:
        tree = free.get()
        try:
            verdict = judge(tree, mutation, commands(tree, mutation.file))
        finally:
            free.put(tree)
        print(described(verdict), flush=True)
        return verdict

    with ThreadPoolExecutor(len(trees)) as pool:
        return list(pool.map(judged, drawn))


def judge(tree: Path, mutation: Mutation, todo: Sequence[Command]) -> Verdict:
    """What becomes of a mutant: the commands are run one after the other, until one fails."""
    path = tree / mutation.file
    source = path.read_bytes()
    try:
        write(path, mutation.applied(source))
        end_s = time.monotonic() + LIMIT_S
        for command in todo:
            failed = run(tree, command, max(1.0, end_s - time.monotonic()))
            if failed is not None:
                return Verdict(mutation, TIMED_OUT if failed == TIMED_OUT else KILLED, killer(failed))
        return Verdict(mutation, SURVIVED)
    finally:
        write(path, source)


def write(path: Path, source: bytes) -> None:
    """Write a module, and forget how it was compiled: two mutants may be alike in size and time."""
    path.write_bytes(source)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


@cache
def commands(tree: Path, file: str) -> list[Command]:
    """What may notice a mutant of a file, what is most likely to first. Tests of components count as unit tests."""
    module = "mpi_runtime." + file.removeprefix("mpi_runtime/").removesuffix(".py").replace("/", ".")
    package, _, stem = module.rpartition(".")
    uses = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{stem}\b")
    is_of_scheduler = file.startswith("scheduler/")
    folders = ("tests/unit", "tests/component")
    paths = [path for folder in folders for path in sorted((tree / folder).rglob("test_*.py"))]
    tests = {str(path.relative_to(tree)): path.read_text() for path in paths}
    named = [test for test in tests if re.search(rf"_{stem}(_|\.)", test)]
    using = [test for test, text in tests.items() if test not in named and uses.search(text)]
    near = [package, "tests.builders"] if is_of_scheduler else [package]
    others = [test for test, text in tests.items() if test not in named + using and any(one in text for one in near)]
    before, after = ([(*PYTEST, *some) for some in parts if some] for parts in ((named, using), (others,)))
    worlds = [(*SIMULATION, world) for world in WORLDS.get(stem, ())] if is_of_scheduler else []
    return [*before, *worlds, *SIMULATIONS * file.startswith(SIMULATED), *after]


def run(tree: Path, command: Command, limit_s: float) -> str | None:
    """What a command says that fails; None: it does not."""
    own = tree.with_name(f"{tree.name}.tmp")  # other programs of the host leave files in that of all
    own.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), "TMPDIR": str(own)}
    process = subprocess.Popen(
        [sys.executable, *command], cwd=tree, env=environment, start_new_session=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limit_cpu,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return TIMED_OUT
    return TIMED_OUT if process.returncode == -signal.SIGXCPU else said if process.returncode else None


def limit_cpu() -> None:
    """Have the kernel end this process when it has used its CPU time."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))


def killer(said: str) -> str:
    """The first thing that failed."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)|^(seed \d+) FAILED", said, re.MULTILINE)
    return (found[1] or found[2]) if found else said.strip().rpartition("\n")[2][:100]


def described(verdict: Verdict) -> str:
    """A verdict with its place, and for a survivor the mutation as lines of a diff."""
    mutation = verdict.mutation
    head = f"{verdict.outcome} {mutation.file}:{mutation.line} {mutation.function}"
    return f"{head}\n  - {mutation.before}\n  + {mutation.after}" + f"\n  by {verdict.by}" * bool(verdict.by)


if __name__ == "__main__":
    sys.exit(main())
