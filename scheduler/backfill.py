"""When a claimant can start where a source is kept for it, so that what surely ends before may still start there.

As EASY backfilling does it (Lifka 1995; Mu'alem and Feitelson 2001): a call is let past a reservation if it ends, by
its `time_limit` or the measured mean of its function, before the claimant could start by the same estimates. A running
call of which nothing is known may end at once, so nothing is let past it.
"""

from __future__ import annotations

from mpi_runtime.scheduler.constraints import reachable
from mpi_runtime.scheduler.records import Executor, Queue, node_of
from mpi_runtime.scheduler.resources import Request, copy_of, fits, give_back
from mpi_runtime.scheduler.sources import NOTHING, Source
from mpi_runtime.scheduler.state import State


def note_end(queue: Queue, now: int) -> None:
    """Note when the next call of a queue would have ended that starts now."""
    known_us = queue.timed.may_take_us if queue.timed is not None else -1
    queue.ends_us = now + known_us if known_us >= 0 else NOTHING


def begins_us(source: Source, request: Request, now: int) -> int:
    """When a source can serve a request by what is known of the calls that run there; NOTHING: never."""
    if not fits(request, reachable(source)):
        return NOTHING
    begin_us, free = now, copy_of(source.free)
    for executor in sorted(holders(source), key=lambda one: (ends_us(one, now), one.id)):
        if fits(request, free):
            break
        assert executor.grant is not None
        give_back(executor.grant, free)
        begin_us = ends_us(executor, now)
    return begin_us


def holders(source: Source) -> list[Executor]:
    """The executors whose grants of this source come back."""
    ranks = node_of(source).ranks
    return [
        one
        for rank in ranks
        for one in rank.executors.values()
        if one.source is source and one.grant is not None and not one.is_reduced
    ]


def ends_us(executor: Executor, now: int) -> int:
    """When an executor has ended what it has in hand, by what is known; now: nothing is."""
    us = executor.progress_us
    for task in executor.in_hand.values():
        takes_us = task.function.may_take_us
        if takes_us < 0:
            return now
        us += takes_us
    return max(us, now)


def look_again(state: State, now: int) -> None:
    """Time has passed, and calls have ended, perhaps earlier than was thought."""
    for queue in state.waiting:
        note_end(queue, now)
        for source in queue.reserved:
            source.begins_us = begins_us(source, queue.request, now)
