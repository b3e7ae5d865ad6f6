"""Runs a program while its processes are killed, and judges it.

A run is right if the program has found its answers and each end of a call once (it says so in its last line), if it
ends with 0 and soon, if it has said nothing but what died, and if nothing is left: processes, memory files, sockets,
directories. Whatever is wrong fails with the command that repeats the run.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos.killer import RANKS_KEPT, Killer
from tests.helpers import IN_CI, Program, make_place, mpi_python, start_command, start_program
from tests.hosts import lab

SOURCE = Path(__file__).with_name("program.py")
QUIET = {"MPI_RUNTIME_QUIET": "1"}


@dataclass(frozen=True)
class Mode:
    """A way to start a program."""

    ranks: int | None = None
    mpi: str | None = None
    hosts: Mapping[str, int] | None = None
    """The ranks of each host; None: all are on this one."""
    is_tolerant: bool = False
    """Started with ULFM, as by `mpi-runtime run --fault-tolerant`: ranks may die."""


HOSTS = {"host1": 2, "host2": 2, "host3": 3}
MODES = {
    "plain": Mode(),
    "openmpi": Mode(3, "openmpi"),
    "mpich": Mode(3, "mpich"),
    "ulfm": Mode(5, "openmpi", is_tolerant=True),
    "hosts": Mode(7, "openmpi", HOSTS, is_tolerant=True),
    "hosts-mpich": Mode(7, "mpich", HOSTS),
}
LIMIT_S = 120.0
"""How long a program may go on when nothing is killed any more."""
AFTER_ENOUGH = 3
"""So many kills come while the program ends."""
TOLD = re.compile(
    r"[\d:]{8} mpi_runtime: (\S+ is run again \(|actor .* It is started again|rank \d+ on \S+ died, and |"
    r"before it began a call of ).*"
)
"""What a program may say of what has died."""


@dataclass
class Record:
    """What came of one run, or of several."""

    runs: int = 0
    rounds: int = 0
    calls: int = 0
    kills: Counter[str] = field(default_factory=Counter)

    def add(self, other: Record) -> None:
        """Add another one to this."""
        self.runs += other.runs
        self.rounds += other.rounds
        self.calls += other.calls
        self.kills += other.kills


@contextmanager
def started(mode: Mode, place: Path, arguments: list[str]) -> Iterator[tuple[Program, Path]]:
    """Run the program in one of the modes. Yields it, and the file that tells it that there is enough."""
    enough = place / "enough"
    if mode.hosts is not None:
        if why := lab.missing():
            pytest.fail(why) if IN_CI else pytest.skip(why)
        assert mode.mpi is not None
        options = ["--bind-to", "none", "--with-ft", "ulfm"] if mode.is_tolerant else []
        with lab.lab(len(mode.hosts)) as found:
            enough = found.place / "enough"  # which all hosts see
            words = [str(enough), *arguments]
            with found.mpirun(
                SOURCE.read_text(), *words, ranks=mode.hosts, mpi=mode.mpi, env=QUIET, options=options
            ) as program:
                yield program, enough
    elif mode.is_tolerant:
        launcher = mpi_python("openmpi").with_name("mpi-runtime")
        start: list[str | Path] = [launcher, "run", "-n", str(mode.ranks), "--fault-tolerant", SOURCE]
        env = {**QUIET, "PRTE_MCA_rmaps_default_mapping_policy": None}
        with start_command([*start, str(enough), *arguments], place=make_place(), env=env) as program:
            yield program, enough
    else:
        with start_program(SOURCE, str(enough), *arguments, ranks=mode.ranks, mpi=mode.mpi, env=QUIET) as program:
            yield program, enough


def run(name: str, seed: int, kills: int, size: int, pause_s: float, names: tuple[str, ...] = ()) -> Record:
    """Run a program until so many of its processes have been killed or stopped; fails if anything is wrong."""
    mode, place = MODES[name], make_place()
    ranks = (mode.ranks or 1) - 1 - RANKS_KEPT if mode.is_tolerant else 0
    try:
        with started(mode, place, [str(seed), str(size), *names]) as (program, enough):
            killer = Killer(program, f"{name} {seed}", pause_s, ranks, mode.is_tolerant and mode.hosts is not None)
            program.wait_for_line("ready")
            while program.process.poll() is None and killer.kills < kills:
                if killer.kills >= kills - AFTER_ENOUGH:
                    enough.touch()
                killer.turn()
            killer.end()
            enough.touch()
            completed = program.finish(LIMIT_S).expect(0)
        last = completed.stdout.splitlines()[-1].split()
        others = [line for line in completed.stderr.splitlines() if not TOLD.fullmatch(line)]
        if last[0] != "right" or others:
            pytest.fail(f"it said what it should not:\n{others}\n{completed.output()}")
    except pytest.fail.Exception as failure:
        words = f"--mode {name} --seed {seed} --kills {kills} --size {size} --pause {pause_s:g}"
        more = " ".join(["--programs", *names]) if names else ""
        raise pytest.fail.Exception(f"python -m tests.chaos {words} --per-run {kills} {more}\n{failure}") from failure
    finally:
        shutil.rmtree(place)
    return Record(1, int(last[1]), int(last[2]), killer.counts)
