"""Backfilling: calls that end early enough may run on a source that is reserved for another claimant.

The rule is EASY backfilling (Lifka 1995; Mu'alem and Feitelson 2001): a call may start if it ends before the claimant
could start. Both times are estimates, by the `time_limit` of a call or the measured mean of its function. A running
call without an estimate may end at once, so nothing is backfilled before it.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.resources import copy_of, fits, give_back
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Source
from mpi_runtime.scheduler.records.records import Executor, Function, Queue, granted
from mpi_runtime.scheduler.records.state import State


def note_length(queue: Queue) -> None:
    """Estimate how long the next call of a queue takes."""
    known_us = queue.function.may_take_us if queue.is_timed else -1
    queue.takes_us = known_us if known_us >= 0 else NOTHING


def comes_free_in_us(source: Source, request: Request, now: int) -> int:
    """The time until a source can serve a request, estimated from its running calls; NOTHING: not by their ends."""
    if fits(request, source.free):
        return 0
    free, takes = copy_of(source.free), dict[Function, int]()
    holders = [one for one in granted(source) if not one.is_reduced]  # what created actors hold does not come back
    for end_us, _, executor in sorted((ends_us(one, takes, now), one.id, one) for one in holders):
        assert executor.grant is not None
        give_back(executor.grant, free)
        if fits(request, free):
            return end_us - now
    return NOTHING


def ends_us(executor: Executor, takes: dict[Function, int], now: int) -> int:
    """The estimated end of the calls of an executor; `now` if any of them has no estimate.

    `takes`: how long calls take, by function, as far as was asked before.
    """
    us = executor.progress_us
    for task in executor.assigned.values():
        function = task.function
        takes_us = takes.get(function)
        if takes_us is None:
            takes_us = takes[function] = function.may_take_us
        if takes_us < 0:
            return now
        us += takes_us
    return us if us > now else now


def look_again(state: State, now: int) -> None:
    """Repeat the estimates for all waiting families. If there is more room before a claimant, all are served again."""
    has_more = is_shorter = is_kept = False
    for family in state.waiting:
        if not family.has_limits:
            for queue in family.by_order:
                before_us = queue.takes_us
                note_length(queue)
                is_shorter = is_shorter or queue.takes_us < before_us
        for source in family.reserved:
            before_us, source.begins_in_us = source.begins_in_us, comes_free_in_us(source, family.request, now)
            is_kept, has_more = True, has_more or source.begins_in_us > before_us
    if has_more or (is_shorter and is_kept):
        state.freed = True
