"""What is kept and what is given away: nodes for large requests, and executors that idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.scheduler.effects import StopExecutor
from mpi_runtime.scheduler.limits import IDLE_US_MAX, RESERVATION_US_MAX, UNIT
from mpi_runtime.scheduler.nodes import STOPPING, Executor, Node
from mpi_runtime.scheduler.queues import Queue
from mpi_runtime.scheduler.resources import Pool, fits

if TYPE_CHECKING:
    from mpi_runtime.scheduler.state import State


def reserve(state: State, queue: Queue, now: int) -> None:
    """A large request could wait for ever while small ones take what comes free: keep one node for it, for a time."""
    request = queue.request
    small = request.cpu <= UNIT and request.gpu <= UNIT and not request.memory and not request.custom
    if small or now < queue.no_reservation_until_us:
        return
    if queue.reserved is not None:
        return
    for node in state.nodes.values():
        reachable = Pool(
            node.total.cpu - node.actor_cpu, node.total.memory, node.total.custom, [UNIT] * len(node.total.devices)
        )
        if node.reserved_for is None and fits(request, reachable):
            node.reserved_for = queue
            queue.reserved = node
            node.reserved_until_us = now + RESERVATION_US_MAX
            state.alarms.set(node, now + RESERVATION_US_MAX)
            return


def end_reservation(state: State, node: Node) -> None:
    """The node is for everybody again."""
    assert node.reserved_for is not None
    node.reserved_for.reserved = None
    node.reserved_for = None
    state.freed = True


def look_after_node(state: State, node: Node, now: int) -> None:
    """An alarm of a node: end a reservation that has lapsed, stop executors that have idled for long."""
    queue = node.reserved_for
    if queue is not None and (now >= node.reserved_until_us or not queue.ready):
        end_reservation(state, node)
        queue.no_reservation_until_us = now + RESERVATION_US_MAX
    idle = [executor for group in node.idle.values() for executor in group.values()]
    idle.sort(key=lambda executor: (executor.idle_since_us, executor.id))
    surplus = len(idle) - max(1, node.total.cpu // UNIT)
    next_us = node.reserved_until_us if node.reserved_for is not None else 0
    for executor in idle[: max(0, surplus)]:
        if now - executor.idle_since_us < IDLE_US_MAX:
            next_us = executor.idle_since_us + IDLE_US_MAX
            break
        stop_idle(state, executor)
    if next_us:
        state.alarms.set(node, max(next_us, now + 1))


def stop_idle(state: State, executor: Executor) -> None:
    """End an executor that holds nothing."""
    group = executor.rank.node.idle[executor.key]
    del group[executor.id]
    if not group:
        del executor.rank.node.idle[executor.key]
    executor.state = STOPPING
    executor.expected_death = "it had been idle"
    state.to_rank(executor.rank.number, StopExecutor(executor.id, force=False))
