"""Ready calls, queued by what they need: never a scan over calls.

One queue for each request, executor key, depth and place; functions that `deadline.py` watches have their own. Deeper
calls are served first: a call that waits for its children gives up its CPU, and if that went to further parents instead
of the children, every waiting parent would need a process of its own before the first child runs. Among calls of one
depth those with a higher priority go first.
"""

from __future__ import annotations

from collections import deque

from mpi_runtime.scheduler.dependencies import wait_again
from mpi_runtime.scheduler.events import ACTOR
from mpi_runtime.scheduler.lifecycle import READY
from mpi_runtime.scheduler.limits import DEPTH_MAX, UNIT
from mpi_runtime.scheduler.records import Function, Queue, Task
from mpi_runtime.scheduler.state import State


def queue_for(state: State, task: Task) -> Queue:
    """The queue of a call."""
    function = task.function
    depth = min(task.depth, DEPTH_MAX)
    near = nearest(state, task) if task.call.arguments and len(state.nodes) > 1 else -1
    if near < 0 and depth < len(function.queues):
        known = function.queues[depth]
        if known is not None:
            return known
    queue = find_queue(state, function, depth, near)
    if near < 0:
        function.queues.extend([None] * (depth + 1 - len(function.queues)))
        function.queues[depth] = queue
    return queue


def find_queue(state: State, function: Function, depth: int, near: int) -> Queue:
    """The queue of a function's calls at a depth, made when it is the first."""
    spec = function.spec
    threads = max(1, spec.cpu // UNIT)
    environment = tuple(sorted(spec.environment.items()))
    own = spec.id if function.is_timed else 0
    key = (function.request, environment, threads, depth, spec.priority, spec.kind == ACTOR, near, function.where, own)
    queue = state.queues.get(key)
    if queue is None:
        queue = state.queues[key] = Queue(
            request=function.request,
            environment=environment,
            threads=threads,
            depth=depth,
            priority=spec.priority,
            for_actors=spec.kind == ACTOR,
            near=near,
            where=function.where,
            group=function.where.group if function.where is not None else b"",
            ready=deque(),
            timed=function if function.is_timed else None,
        )
    return queue


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


NEAR_WORTH_BYTES = 1 << 20
"""Arguments of this size take about a millisecond to move over a fast network."""


def enqueue(state: State, task: Task) -> None:
    """A call is ready: queue it."""
    queue = queue_for(state, task)
    queue.ready.append(task)
    mark_dirty(state, queue)


def requeue(state: State, tasks: list[Task]) -> None:
    """Put calls back at the front, in the order they had."""
    for task in reversed(tasks):
        if wait_again(state, task):
            continue
        queue = queue_for(state, task)
        queue.ready.appendleft(task)
        mark_dirty(state, queue)


def withdraw(state: State, task: Task) -> None:
    """A ready call will not run: its queue drops it before the next decision, together with others."""
    state.withdrawn[task.function.request] = None


def purge(state: State) -> None:
    """Drop withdrawn calls from their queues."""
    withdrawn, state.withdrawn = state.withdrawn, {}
    for queue in state.queues.values():
        if queue.request in withdrawn:
            queue.ready = deque([task for task in queue.ready if task.state == READY])
            mark_dirty(state, queue)


def mark_dirty(state: State, queue: Queue) -> None:
    """Have the queue served by the next decision."""
    if not queue.dirty:
        queue.dirty = True
        state.dirty.append(queue)
