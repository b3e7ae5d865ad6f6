"""What is demanded where the memory of a host is nearly used up: little starts there, and one thing ends at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.effects import Cancel
from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported
from tests.simulation.require import require
from tests.simulation.steps import METHOD, TASK

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker


class Tight:
    """What the head has heard of memory, and what it has done."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.world = checker.world
        self.ranks: set[int] = set()
        """Ranks that have said so last. Only for membership."""
        self.ended: dict[int, bytes] = {}
        """Executors that are to be killed for their memory, with the call that they ran."""
        self.gone: dict[int, set[bytes]] = {}
        """What was lost with each executor that died by itself. The head may not have heard of it yet."""
        self.interrupted: set[tuple[bytes, int]] = set()
        """Attempts that were told to end before: what is killed of these is killed for that. Only for membership."""
        self.lost: Counter[bytes] = Counter()
        """How often a call was lost so: where others ran beside it that costs no retry."""

    def heard(self, event: MemoryReported) -> None:
        """A rank says how it is."""
        (self.ranks.add if event.is_tight else self.ranks.discard)(event.rank)

    def host_of(self, executor: int) -> int:
        """Where an executor is."""
        return self.checker.homes[executor]

    def tasks_on(self, host: int) -> dict[int, bytes]:
        """The executors of a host that have tasks, as the head knows, with the first of them."""
        found: dict[int, bytes] = {}
        for call, (executor, _) in self.checker.cancels.hands.items():
            if self.host_of(executor) == host and self.checker.function_of(call).kind == TASK:
                found.setdefault(executor, call)
        return found

    def sent(self, executor: int, calls: Sequence[Call]) -> None:
        """The head gives calls to an executor: on a tight host only where nobody else has any."""
        host = self.host_of(executor)
        is_tight = any(self.checker.rank_hosts[rank] == host for rank in self.ranks)
        started = [call for call in calls if self.checker.function_of(call.id).kind != METHOD and not call.arguments]
        if is_tight and started:
            others = [one for one in self.tasks_on(host) if one != executor]
            require(not others, f"call {started[0].id.hex()} is started on a host without memory, beside {others}")
            require(len(started) == 1, f"{len(started)} calls are sent ahead on a host without memory")
            self.world.counters["calls let through"] += 1

    def ends(self, effect: Cancel) -> None:
        """The head has a process killed if it runs a call: for its memory, where nothing else explains it."""
        cancels, attempt = self.checker.cancels, (effect.id, effect.attempt)
        if not effect.force:
            self.interrupted.add(attempt)
        if not effect.force or cancels.is_to_end(effect.id) or attempt in self.interrupted:
            return
        host = self.host_of(effect.executor)
        others = [one for one in self.ended if one != effect.executor and self.host_of(one) == host]
        alive = [one for one in others if cancels.hands.get(self.ended[one], (0, 0))[0] == one]
        require(not alive, f"executor {effect.executor} is ended for its memory, and {alive} have not gone yet")
        self.ended[effect.executor] = effect.id
        if effect.id in self.gone.get(effect.executor, ()) and self.checker.function_of(effect.id).max_retries:
            self.checker.lost_runs[effect.id] -= 1  # the head takes one cause for the other
            self.checker.unsaid[effect.id] += 1
            self.lost[effect.id] += 1
        self.world.counters["calls ended for their memory"] += 1

    def died(self, executor: int, call: bytes) -> bool:
        """The process of an executor is gone that ran a call: whether that is what it was ended for."""
        if self.ended.get(executor) != call:
            return False
        self.lost[call] += 1
        return True
