"""Kills and stops processes of a running program at random moments.

A seed fixes what is asked for: which kind of process, how, and when. Which process that meets is up to the machine.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.helpers import Program, describe, marked

EXECUTOR, FORKSERVER, RANK, HOST = "executor", "forkserver", "worker rank", "all ranks of a host"
KILL, RESUME, FINISH = "killed", "stopped and resumed", "stopped and killed"
NAMES = {"mpi-rt-executor": EXECUTOR, "mpi-rt-forksrv": FORKSERVER}
WEIGHTS = {
    (EXECUTOR, KILL): 12,
    (EXECUTOR, RESUME): 2,
    (EXECUTOR, FINISH): 2,
    (FORKSERVER, KILL): 3,
    (FORKSERVER, RESUME): 1,
    (FORKSERVER, FINISH): 1,
}
RANK_WEIGHTS = {(RANK, KILL): 3, (RANK, RESUME): 1, (RANK, FINISH): 1}
HOST_WEIGHTS = {(HOST, KILL): 2, (HOST, RESUME): 1, (HOST, FINISH): 1}
RANKS_KEPT = 1
"""So many worker ranks are left alone, so that the program has where to run."""
STOPPED_S_MAX = 0.6
YOUNG_MAX = 2
"""So many forkservers without executors die in a row: the calls for which five in a row do not come up fail."""
PAUSE_S = 0.01


def victims(program: Program) -> dict[str, list[list[int]]]:
    """The living processes of a program that may be killed, by kind, in the order of their numbers.

    Those of one entry are struck together: the ranks of a host, but not of that of rank 0.
    """
    found: dict[str, list[list[int]]] = {EXECUTOR: [], FORKSERVER: [], RANK: [], HOST: []}
    ranks: dict[int, int] = {}
    hosts: dict[str, list[int]] = {}
    for pid in program.processes():
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name in NAMES:
                found[NAMES[name]].append([pid])
                continue
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks.setdefault(int(entry.partition(b"=")[2]), pid)  # what a rank starts has a higher number
    for rank in sorted(ranks):
        with suppress(OSError):
            hosts.setdefault(os.readlink(f"/proc/{ranks[rank]}/ns/uts"), []).append(rank)
    found[RANK] = [[ranks[rank]] for rank in sorted(ranks) if rank]
    found[HOST] = [[ranks[rank] for rank in there] for there in hosts.values() if 0 not in there]
    return found


def has_children(pid: int) -> bool:
    """Whether a process has any; not, if it is gone."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    return False


class Killer:
    """Keeps its appointments with the processes of one program."""

    def __init__(self, program: Program, seed: str, pause_s: float, ranks: int = 0, hosts: bool = False) -> None:
        """Kill on average every `pause_s` seconds. `ranks`: how many worker ranks may die; `hosts`: all of one too."""
        self._program = program
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._ranks = ranks
        self._weights = {**WEIGHTS, **(RANK_WEIGHTS if ranks else {}), **(HOST_WEIGHTS if hosts else {})}
        self._stopped: list[tuple[float, int, int]] = []
        """When which process gets which signal."""
        self._next_s = 0.0
        self._young = 0
        """How many forkservers without executors were struck, since the last one that had some."""
        self.counts: Counter[str] = Counter()
        """How many processes of which kind have been treated how."""

    @property
    def kills(self) -> int:
        """How many processes have been killed or stopped."""
        return self.counts.total()

    def turn(self) -> None:
        """Do what is due, and rest for a moment."""
        now = time.monotonic()
        for one in [one for one in self._stopped if one[0] <= now]:
            self._stopped.remove(one)
            self._signal(one[1], one[2])
        if now >= self._next_s:
            self._next_s = now + self._random.expovariate(1 / self._pause_s)
            self._strike(now)
        time.sleep(PAUSE_S)

    def end(self) -> None:
        """Leave no process stopped."""
        for _, pid, number in self._stopped:
            self._signal(pid, number)
        self._stopped.clear()

    def _strike(self, now: float) -> None:
        kind, how = self._random.choices(list(self._weights), list(self._weights.values()))[0]
        share, stopped_s = self._random.random(), self._random.uniform(0, STOPPED_S_MAX)
        busy = {pid for _, pid, _ in self._stopped}
        found = [pids for pids in victims(self._program)[kind] if not busy.intersection(pids)]
        if kind in (RANK, HOST) and how != RESUME:
            found = [pids for pids in found if len(pids) <= self._ranks]
        if kind == FORKSERVER and self._young >= YOUNG_MAX:
            found = [pids for pids in found if has_children(pids[0])]
        if not found:
            return
        pids = found[int(share * len(found))]
        if kind == FORKSERVER:
            self._young = 0 if has_children(pids[0]) else self._young + 1
        struck = [pid for pid in pids if self._signal(pid, signal.SIGKILL if how == KILL else signal.SIGSTOP)]
        if not struck:
            return
        self.counts[f"{kind} {how}"] += 1
        if kind in (RANK, HOST) and how != RESUME:
            self._ranks -= len(struck)
        if how != KILL:
            later = signal.SIGKILL if how == FINISH else signal.SIGCONT
            self._stopped += [(now + stopped_s, pid, later) for pid in struck]

    def _signal(self, pid: int, number: int) -> bool:
        """Send a signal to a process that still is one of the program's; whether it was alive."""
        if not marked(self._program.mark, {pid}) or "(Z)" in describe(pid):
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False
