"""Calls and the bytes of their arguments: which node has most of them, and how long it is worth waiting for it.

Where that node has room a call goes there. Where it has none and another one has, the call waits as long as it would
take to move the arguments, and then moves them. So it takes at most twice as long as with the better choice, though
nobody knows when there will be room (the rental of skis: Karlin et al., Competitive snoopy caching, 1988). It does not
wait where the calls that run there are known to take longer.
"""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler.constraints import reachable
from mpi_runtime.scheduler.limits import MOVED_BYTES_PER_US, NEAR_WORTH_BYTES, VICTIMS_MAX
from mpi_runtime.scheduler.records import Node, Queue, Task, node_of
from mpi_runtime.scheduler.resources import fits
from mpi_runtime.scheduler.sources import Source
from mpi_runtime.scheduler.state import State


def nearest(state: State, task: Task) -> int:
    """The node with most bytes of the call's stored arguments, if that is worth a preference; else -1."""
    bytes_on: dict[int, int] = {}
    for id in task.call.arguments:
        copies = state.objects[id].copies
        if copies is not None:
            for number, place in copies.items():
                if not state.nodes[number].hosts_executors:
                    continue
                bytes_on[number] = bytes_on.get(number, 0) + place.size
    best = max(bytes_on, key=lambda number: (bytes_on[number], -number), default=-1)
    return best if best >= 0 and bytes_on[best] >= NEAR_WORTH_BYTES else -1


def waits_for_near(state: State, queue: Queue, source: Source, now: int) -> bool:
    """Whether the first call waits for the node with its arguments, though this source has room. Sets an alarm."""
    near = state.nodes.get(queue.near)
    if near is None or queue.where is not None or node_of(source) is near:
        return False
    if near.is_closed() or not fits(queue.request, reachable(near)):
        return False
    if queue.near_from_us < 0:
        queue.near_from_us = now
    until_us = queue.near_from_us + move_us(state, queue.ready[0], near.number, node_of(source).number)
    if now >= until_us or not any_ends_by(near, until_us):
        return False
    state.alarms.set(queue, until_us)
    return True


def move_us(state: State, task: Task, number: int, other: int) -> int:
    """How long it would take to bring a call's arguments from one node to another."""
    size = 0
    for id in dict.fromkeys(task.call.arguments):
        copies = state.objects[id].copies
        if copies is not None and number in copies and other not in copies:
            size += copies[number].size
    return size // MOVED_BYTES_PER_US


def any_ends_by(node: Node, time_us: int) -> bool:
    """Whether some executor of a node may end what it runs by then, as far as durations are known."""
    executors = (executor for rank in node.ranks for executor in rank.executors.values() if executor.grant is not None)
    for executor in islice(executors, VICTIMS_MAX):
        running = executor.running()
        duration_us = -1 if running is None else running.function.duration_us
        if duration_us < 0 or executor.progress_us + duration_us <= time_us:
            return True
    return False
