"""Queues of ready calls, so that calls are never searched.

There is one queue for each request, executor key, depth and place. Functions that `deadline.py` watches have their own.
Deeper calls go first: a call that waits for its children lends its CPU, and if other parents got that instead of the
children, every waiting parent would need a process before the first child runs. At one depth calls with a higher
priority go first.

A decision serves queues in the order of `order`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from mpi_runtime.scheduler.dispatch.dependencies import wait_again
from mpi_runtime.scheduler.dispatch.locality import nearest
from mpi_runtime.scheduler.dispatch.reservations import end_reservation
from mpi_runtime.scheduler.places.constraints import longest_us
from mpi_runtime.scheduler.protocol.events import ActorSpec
from mpi_runtime.scheduler.protocol.limits import DEPTH_MAX, UNIT
from mpi_runtime.scheduler.records.lifecycle import READY
from mpi_runtime.scheduler.records.records import Family, Function, Queue, Task
from mpi_runtime.scheduler.records.state import State


class Turns:
    """The queues that one decision serves, by precedence."""

    def __init__(self, queues: list[Queue], is_divided: bool = False) -> None:
        """`is_divided`: calls of several drivers wait."""
        self._key: Callable[[Queue], tuple[float, ...]] = Queue.turn if is_divided else Queue.precedence
        self._heap: list[tuple[tuple[float, ...], int, Queue]] = [
            (self._key(queue), number, queue) for number, queue in enumerate(queues)
        ]
        heapify(self._heap)
        self._count = len(queues)
        self._here = set(queues)
        self._tried: dict[Family, tuple[Queue, int]] = {}
        """For each family that is tried in order: the queue that is tried now, and its position then."""

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __iter__(self) -> Iterator[Queue]:
        return (queue for _, _, queue in self._heap)

    def pop(self) -> Queue:
        """Take out the queue that goes first."""
        queue = heappop(self._heap)[2]
        self._here.discard(queue)
        return queue

    def push(self, queue: Queue) -> None:
        """Let one more queue be served."""
        if queue not in self._here:
            self._here.add(queue)
            self._count += 1
            heappush(self._heap, (self._key(queue), self._count, queue))

    def grown(self, queue: Queue) -> None:
        """Sort the queues again, with this one: it got an executor, which changes the share of its account."""
        self.push(queue)
        self._try(queue.family, queue.family.first())
        self._heap = [(self._key(queue), number, queue) for _, number, queue in self._heap]
        heapify(self._heap)

    def begin(self, family: Family) -> None:
        """Try the waiting queues of a family, from the first on."""
        self._try(family, family.first())

    def served(self, state: State, queue: Queue) -> None:
        """Note that a queue has been served. If it was tried in the order of its family, the next one is tried."""
        family = queue.family
        if not family.has_limits:
            return
        head, order = self._tried.get(family, (None, -1))
        if head is not queue:
            return
        first = family.first()
        if first is None or (first is not queue and first.waits_at > order):
            self._try(family, first)  # in any case: a source may be reserved for it
        elif family.by_order[-1].waits_at > order:
            self._try(family, family.after(order, longest_us(state, queue)))

    def _try(self, family: Family, queue: Queue | None) -> None:
        if queue is None:
            self._tried.pop(family, None)
        else:
            self._tried[family] = (queue, queue.waits_at)
            self.push(queue)


def queue_for(state: State, task: Task) -> Queue:
    """The queue of a call."""
    function = task.function
    depth = min(task.depth, DEPTH_MAX)
    near = nearest(state, task) if task.call.arguments and len(state.nodes) > 1 and not function.choice else -1
    return find_queue(state, function, depth, near) if near >= 0 else queue_at(state, function, depth)


def queue_at(state: State, function: Function, depth: int) -> Queue:
    """The queue of a function's calls at a depth that may run anywhere."""
    known = function.queues[depth] if depth < len(function.queues) else None
    if known is None:
        function.queues.extend([None] * (depth + 1 - len(function.queues)))
        known = function.queues[depth] = find_queue(state, function, depth, -1)
        for one in function.choice:
            other = one.queues[depth] if depth < len(one.queues) else None
            if other is not None and other is not known:
                other.kin.append(known.family)
                known.kin.append(other.family)
    return known


def find_queue(state: State, function: Function, depth: int, near: int) -> Queue:
    """The queue of a function's calls at a depth, made on demand."""
    spec = function.spec
    threads = max(1, spec.asks.cpu // UNIT)
    environment = tuple(sorted(spec.environment.items()))
    own = spec.id if function.is_timed else 0
    gang = spec.gang and spec.gang.shape
    kind = (
        isinstance(spec.kind, ActorSpec),
        spec.priority,
        spec.path_us,
        function.account and function.account.name,
        gang,
    )
    key = (function.spec.asks, environment, threads, depth, kind, near, function.where, own)
    queue = state.queues.get(key)
    if queue is None:
        queue = state.queues[key] = Queue(
            family=family_for(state, function, key),
            function=function,
            is_timed=function.is_timed,
            request=function.spec.asks,
            environment=environment,
            threads=threads,
            depth=depth,
            use=state.use if function.driver is None else function.driver.use,
            near=near,
            where=function.where,
            ready=deque(),
        )
        if function.driver is not None:
            function.driver.queues[key] = queue
    return queue


def family_for(state: State, function: Function, key: tuple[object, ...]) -> Family:
    """The family of a function's queue with this key, made on demand."""
    has_limits = function.is_timed and function.has_fixed_length
    if has_limits:
        key = (*key[:-1], -1)
    family = state.families.get(key)
    if family is None:
        family = state.families[key] = Family(
            request=function.spec.asks,
            where=function.where,
            priority=function.spec.priority,
            has_limits=has_limits,
            ranks=function.spec.ranks,
        )
        if function.driver is not None:
            function.driver.families[key] = family
    return family


def change_function(task: Task, function: Function) -> None:
    """Make a queued call one of another alternative."""
    task.function = function
    task.call.spec = function.spec.id


def await_room(state: State, queue: Queue) -> None:
    """Have a queue without room wait, at the position of its first call."""
    queue.family.add(queue)
    state.waiting[queue.family] = None


def stop_waiting(state: State, queue: Queue) -> None:
    """Note that a queue does not wait any more. If its family has no other waiting queue, its reservation ends."""
    family = queue.family
    family.remove(queue)
    if not family.by_order:
        state.waiting.pop(family, None)
        if family.reserved:
            end_reservation(state, family)


def enqueue(state: State, task: Task) -> None:
    """Queue a ready call."""
    queues, depth = task.function.queues, task.depth
    queue = queues[depth] if depth < len(queues) and not task.call.arguments else None  # the frequent case
    if queue is None:
        queue = queue_for(state, task)
    task.queue = queue
    queue.ready.append(task)
    if not queue.dirty:
        mark_dirty(state, queue)


def requeue(state: State, tasks: list[Task]) -> None:
    """Put calls back at the front, in the order they had."""
    for task in reversed(tasks):
        if wait_again(state, task):
            continue
        queue = task.queue = queue_for(state, task)
        queue.ready.appendleft(task)
        if queue.waits_at >= 0:
            await_room(state, queue)
        mark_dirty(state, queue)


def withdraw(state: State, task: Task) -> None:
    """Note that a queued call has ended. It leaves the queue when it is the first, or half of the queue has ended."""
    queue = task.queue
    assert queue is not None
    queue.withdrawn += 1
    if 2 * queue.withdrawn > len(queue.ready):
        queue.ready = deque([task for task in queue.ready if task.state == READY])
        queue.withdrawn = 0
    else:
        queue.tidy()
    mark_dirty(state, queue)


def clear(queue: Queue) -> deque[Task]:
    """Empty a queue. Return its calls, without those that have ended."""
    ready, queue.ready, queue.withdrawn = queue.ready, deque(), 0
    return deque([task for task in ready if task.state == READY])


def remove(state: State, key: tuple[object, ...]) -> None:
    """Remove a queue without calls, whose driver is gone. Records in a circle would stay in memory."""
    queue = state.queues.pop(key, None)
    if queue is None:
        return  # with its placement group
    clear(queue)
    stop_waiting(state, queue)
    for of_queue in (queue.kin, queue.executors, queue.hungry, queue.loaded, queue.awaited):
        of_queue.clear()


def mark_dirty(state: State, queue: Queue) -> None:
    """Serve the queue in the next decision."""
    if not queue.dirty:
        queue.dirty = True
        state.dirty.append(queue)


def look_after_family(state: State, family: Family, now: int) -> None:
    """Handle the alarm of a family: it may have a reservation again."""
    if not family.reserved and (first := family.first()) is not None:
        mark_dirty(state, first)
