"""Locality: the node with most bytes of a call's arguments, and how long the call waits for it.

If that node has room, the call goes there. If only another node has room, the call waits as long as a move of its
arguments would take, and then moves them. So it takes at most twice as long as with the better choice, though nobody
knows when there will be room (the rental of skis: Karlin et al., Competitive snoopy caching, 1988). It does not wait if
the calls that run there are known to take longer.
"""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler.places.constraints import reachable
from mpi_runtime.scheduler.protocol.amounts import gib
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX, MOVED_BYTES_PER_US, NEAR_WORTH_BYTES, VICTIMS_MAX
from mpi_runtime.scheduler.protocol.resources import fits
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.records import ANYWHERE, Node, Queue, Task, node_of
from mpi_runtime.scheduler.records.state import State


def nearest(state: State, task: Task) -> int:
    """The node with most bytes of the call's stored arguments, if that is worth a preference; else -1."""
    found = bytes_on(state, task)
    able = (number for number in found if state.nodes[number].hosts_executors)
    best = max(able, key=lambda number: (found[number], -number), default=-1)
    return best if best >= 0 and found[best] >= NEAR_WORTH_BYTES else -1


def bytes_on(state: State, task: Task) -> dict[int, int]:
    """The bytes of the call's stored arguments in the arena of each node."""
    found: dict[int, int] = {}
    for id in task.call.arguments:
        for number, place in (state.objects[id].copies or {}).items():
            found[number] = found.get(number, 0) + place.size
    return found


def waits_for_near(state: State, queue: Queue, source: Source, now: int) -> bool:
    """Whether the first call waits for the node with its arguments, though this source has room. Sets an alarm."""
    if not may_wait(state, queue, source):
        return False
    if queue.near_from_us < 0:
        queue.near_from_us = now
    until_us = waits_until_us(state, queue, source, now)
    if until_us < 0:
        return False
    state.alarms.set(queue, until_us)
    return True


def may_wait(state: State, queue: Queue, source: Source) -> bool:
    """Whether the queue's calls could run on another node, where their arguments are, once there is room."""
    near = state.nodes.get(queue.near)
    if near is None or queue.where is not ANYWHERE or node_of(source) is near:
        return False
    return not near.is_closed() and fits(queue.request, reachable(near))


def waits_until_us(state: State, queue: Queue, source: Source, now: int) -> int:
    """Until when the first call waits at most, by `waits_for_near`; -1: it does not wait any more."""
    near = state.nodes[queue.near]
    until_us = queue.near_from_us + move_us(state, queue.ready[0], near.number, node_of(source).number)
    return until_us if now < until_us and any_ends_by(near, until_us) else -1


def why(state: State, task: Task, source: Source | None, now: int) -> str:
    """The places of a queued call's arguments, and whether it waits for that node, in words; empty: they are small.

    `source`: where the call could run now.
    """
    queue = task.queue
    near = state.nodes.get(queue.near) if queue is not None else None
    if queue is None or near is None:
        return ""
    found = bytes_on(state, task)
    ordered = sorted(found, key=lambda number: (-found[number], number))[:EXPLAINED_MAX]
    lie = ", ".join(f"{gib(found[number])} on {state.nodes[number].hostname}" for number in ordered)
    lie = f"Of its arguments lie {lie}."
    is_waiting = source is not None and queue.near_from_us >= 0 and queue.ready and may_wait(state, queue, source)
    until_us = waits_until_us(state, queue, source, now) if is_waiting and source is not None else -1
    if source is None or until_us < 0:
        return lie
    first = "" if queue.ready[0] is task else ", as the call before it does"
    return (
        f"It waits for room on {near.hostname}{first}: since {_seconds(now - queue.near_from_us)} s, and for "
        f"{_seconds(until_us - now)} s at most, which is what it would take to move them. Then it runs on "
        f"{node_of(source).hostname}, or where else there is room. {lie}"
    )


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3g}"


def move_us(state: State, task: Task, number: int, other: int) -> int:
    """The time to move a call's arguments from one node to another."""
    size = 0
    for id in dict.fromkeys(task.call.arguments):
        copies = state.objects[id].copies
        if copies is not None and number in copies and other not in copies:
            size += copies[number].size
    return size // MOVED_BYTES_PER_US


def any_ends_by(node: Node, time_us: int) -> bool:
    """Whether an executor of a node may end its running call by then, as far as durations are known."""
    executors = (executor for executor in node.executors() if executor.grant is not None)
    for executor in islice(executors, VICTIMS_MAX):
        running = executor.running()
        duration_us = -1 if running is None else running.function.duration_us
        if duration_us < 0 or executor.progress_us + duration_us <= time_us:
            return True
    return False
