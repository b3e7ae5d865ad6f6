"""Runs a program while its processes are killed, and judges it.

A run is right if the program has found its answers and each end of a call once (it says so in its last line), if it
ends with 0 and soon, if it has said nothing but what died, and if nothing is left: processes, memory files, sockets,
directories. Whatever is wrong fails with the command that repeats the run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos.killer import RANKS_KEPT, Killer
from tests.helpers import Program, make_place, mpi_python, start_command, start_program

SOURCE = Path(__file__).with_name("program.py")
QUIET = {"MPI_RUNTIME_QUIET": "1"}
RANKS = {"plain": 1, "openmpi": 3, "mpich": 3, "ulfm": 5}
"""The ways to start a program, each with its number of ranks. Only with ULFM ranks may die."""
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


def begin(mode: str, enough: Path, arguments: list[str]) -> Program:
    """Start the program in one of the modes."""
    words = [str(enough), *arguments]
    if mode != "ulfm":
        ranks = None if mode == "plain" else RANKS[mode]
        return start_program(SOURCE, *words, ranks=ranks, mpi=None if mode == "plain" else mode, env=QUIET)
    launcher = mpi_python("openmpi").with_name("mpi-runtime")
    start: list[str | Path] = [launcher, "run", "-n", str(RANKS[mode]), "--fault-tolerant", SOURCE, *words]
    return start_command(start, place=make_place(), env={**QUIET, "PRTE_MCA_rmaps_default_mapping_policy": None})


def run(mode: str, seed: int, kills: int, size: int, pause_s: float, names: tuple[str, ...] = ()) -> Record:
    """Run a program until so many of its processes have been killed or stopped; fails if anything is wrong."""
    place = make_place()
    enough = place / "enough"
    try:
        with begin(mode, enough, [str(seed), str(size), *names]) as program:
            killer = Killer(program, f"{mode} {seed}", pause_s, RANKS[mode] - 1 - RANKS_KEPT if mode == "ulfm" else 0)
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
        words = f"--mode {mode} --seed {seed} --kills {kills} --size {size} --pause {pause_s:g}"
        more = " ".join(["--programs", *names]) if names else ""
        raise pytest.fail.Exception(f"python -m tests.chaos {words} --runs 1 {more}\n{failure}") from failure
    finally:
        enough.unlink(missing_ok=True)
        place.rmdir()
    return Record(1, int(last[1]), int(last[2]), killer.counts)
