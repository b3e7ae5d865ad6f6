"""Every value is what the program makes it, or an error that a fault explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.effects import Record
from mpi_runtime.scheduler.protocol.limits import STILLBORN_MAX
from tests.simulation import oracle
from tests.simulation.processes import CANCELLED, TAINT
from tests.simulation.require import require

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker

ENDS_ACTORS = (
    "deaths",
    "stillborn",
    "kills",
    "refused",
    "lost transfers",
    "removals",
    "kills of overdue calls",
    "hosts that are tight",
    "rank losses",
)
"""What may end an actor, or keep it from being created."""
ENDS_PROCESSES = ("deaths", "stillborn", "kills of cancelled calls", "rank losses")
"""What may end the process of a task."""


class Values:
    """Compares what processes find with the oracle, and errors with the faults that there were."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.world = checker.world
        self.found: dict[bytes, tuple[str, bytes]] = {}
        """What each object was seen to be."""

    def is_right(self, id: bytes, kind: str, name: bytes, is_final: bool = True) -> bool:
        """Whether an object is what it must be. If not, a fault must be the reason.

        If it is not final, it may be made again with the process that reads it.
        """
        checker, times = self.checker, self.checker.times
        # A copy that cannot be had on one host may be had on another: alone of all errors it is not the object's own.
        of_one_host = name in (b"ObjectStoreFullError", b"ObjectLostError")
        # What is made again after its loss may end otherwise.
        of_one_host = of_one_host or (id in checker.losses.values and kind == oracle.FAILED)
        known = (kind, name) if of_one_host or not is_final else self.found.setdefault(id, (kind, name))
        require(known == (kind, name), f"object {id.hex()} was {known} and is {(kind, name)}")
        if id in checker.puts:
            thing = checker.oracle.puts[checker.puts[id]]
        elif id in checker.places.groups:
            thing = checker.oracle.groups[checker.places.groups[id].key]
        elif (item := checker.items.thing(id)) is not None:
            thing = item
        else:
            job, index = checker.names[id]
            thing = checker.oracle.returns[job][index]
        if thing.may_be(kind, name):
            return True
        must_be = f"{thing.kind} {thing.digest!r}"
        if (kind == oracle.ERROR or name == CANCELLED) and self._was(id, self._was_cancelled):
            self.world.counters["cancelled"] += 1
            return False
        require(kind == oracle.FAILED, f"object {id.hex()} is {kind} {name!r} and must be {must_be}")
        code = name[len(TAINT) :] if name.startswith(TAINT) else name
        while code.startswith(TAINT):
            code = code[len(TAINT) :]
        happened = self.world.counters
        # A call that is cancelled with its children may hear of a child's end before its own.
        has_met_cancelled = happened["cancels"] or times.any_is_over() or self._was(id, self._was_cancelled)
        reasons = {
            b"WorkerCrashedError": sum(happened[name] for name in ENDS_PROCESSES),
            CANCELLED: name != CANCELLED and has_met_cancelled,
            b"OutOfMemoryError": happened["deaths"] + happened["calls ended for their memory"],
            b"TaskTimeoutError": times.any_is_over(),
            b"GpuExecutorDiedError": happened["faults of GPUs"],
            b"InfeasibleResourceError": happened["quarantines"] + happened["rank losses"] + happened["stillborn"],
            b"ActorDiedError": sum(happened[name] for name in ENDS_ACTORS),
            b"ActorUnavailableError": sum(happened[name] for name in ENDS_ACTORS),
            oracle.REMOVED: happened["removals"] + happened["rank losses"],
            b"ObjectStoreFullError": happened["refused"],
            b"ObjectLostError": happened["lost transfers"] + happened["rank losses"],
        }
        journal = self.world.journal
        is_recorded = journal is not None and any(
            code in value.data for record in journal.earlier if isinstance(record, Record) for value in record.values
        )  # a call that the state of an actor has had raises what it raised then
        explained = reasons.get(code) or is_recorded
        require(explained, f"object {id.hex()} failed with {name!r} and nothing has happened that explains it")
        if not name.startswith(TAINT) and code in (b"WorkerCrashedError", b"OutOfMemoryError", b"GpuExecutorDiedError"):
            used_up = self._was(id, self._was_lost) or happened["stillborn"] >= STILLBORN_MAX
            require(used_up, f"object {id.hex()} failed with {name!r}, but its retries were not used up")
        if not name.startswith(TAINT) and code == b"TaskTimeoutError":
            require(self._was(id, times.is_over), f"object {id.hex()} failed with {name!r}, and was in time")
        if name == b"ObjectLostError":
            self.world.counters["lost for good"] += 1
            may_be = happened["lost transfers"] or checker.losses.explain(id)
            require(may_be, f"object {id.hex()} is lost, and could have been made again")
        if not name.startswith(TAINT) and code == b"InfeasibleResourceError":
            has_lost = self._was(id, lambda call: not checker.can_run(call) or self._has_dead_alternative(call))
            require(has_lost, f"object {id.hex()} failed with {name!r}, but there are GPUs for it")
        self.world.counters["spoilt"] += 1
        return False

    def _has_dead_alternative(self, call: bytes) -> bool:
        """Whether the executors of an alternative may have died one after the other, so that it is not used."""
        return bool(self.checker.function_of(call).alternatives) and self.world.counters["stillborn"] >= STILLBORN_MAX

    def _was(self, id: bytes, happened: Callable[[bytes], bool]) -> bool:
        """Whether this happened to a call, or to one that its arguments come from."""
        pending, seen = [id], set[bytes]()
        while pending:
            call = self.checker.call_of(pending.pop())
            if not call or call in seen:
                continue
            if happened(call):
                return True
            seen.add(call)
            pending += self.checker.calls[call].arguments
        return False

    def _was_lost(self, call: bytes) -> bool:
        """Whether it died as often as it may."""
        lost = self.checker.lost_runs[call] + self.checker.raised[call] + self.checker.tight.lost[call]
        return 0 <= self.checker.function_of(call).max_retries < lost

    def _was_cancelled(self, call: bytes) -> bool:
        return self.checker.cancels.explains(call)
