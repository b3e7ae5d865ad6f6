"""Reservations of nodes and bundles for large requests, and the end of idle executors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from mpi_runtime.scheduler.dispatch.backfill import comes_free_in_us
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.places.constraints import allows, reachable, sources
from mpi_runtime.scheduler.protocol.amounts import TYPE
from mpi_runtime.scheduler.protocol.limits import IDLE_US_MAX, RESERVABLE_MAX, UNIT
from mpi_runtime.scheduler.protocol.resources import fits
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Claimant, Source
from mpi_runtime.scheduler.records.records import Executor, Family, Node, Queue
from mpi_runtime.scheduler.records.state import State


def reserve(state: State, queue: Queue, now: int) -> None:
    """Reserve one source for a large request, for a time. Otherwise small calls could take all that becomes free."""
    request, family = queue.request, queue.family
    custom = any(not name.startswith(TYPE) for name, _ in request.custom)
    small = request.cpu <= UNIT and request.gpu <= UNIT and not request.memory and not custom
    whole = small and request.gpu == UNIT  # shares could keep every device from being whole, one after the other
    if (
        family.reserved
        or family.first() is not queue
        or not queue.may_begin()
        or now < family.no_reservation_until_us
        or (small and family.priority <= 0 and not whole)
    ):
        return
    only_shared = whole and family.priority <= 0
    there = list(sources(state, queue.where))
    begin = queue.ready[0].order % len(there) if len(there) > RESERVABLE_MAX else 0  # not the same ones for each call
    possible = (
        source
        for source in there[begin:] + there[:begin]
        if (source.reserved_for is None or source.reserved_for.priority < family.priority)
        and not (only_shared and not gpu_pool.are_shared(source))
        and fits(request, reachable(source))
        and not is_outranked(state, queue, source)
    )
    first = list(islice(possible, RESERVABLE_MAX))
    if not first:
        return
    source = min(first, key=lambda source: (comes_free_in_us(source, request, now), source.reserved_for is not None))
    if source.reserved_for is not None:
        lapse(state, source.reserved_for, now)
    if not small or whole:
        claim(state, family, [source], now)
        source.begins_in_us = comes_free_in_us(source, request, now)
        if now + source.begins_in_us > source.reserved_until_us:
            source.reserved_until_us = now + source.begins_in_us + family.patience_us
            state.alarms.set(source, source.reserved_until_us)


def reserve_for_fractions(state: State, queue: Queue, source: Source, now: int) -> None:
    """Reserve a source where less CPU becomes free than the queue needs. Otherwise others would take each such part."""
    if (
        source.reserved_for is None
        and not queue.family.reserved
        and now >= queue.family.no_reservation_until_us
        and queue.request.cpu <= UNIT
        and allows(queue.where, source)
        and fits(queue.request, reachable(source))
    ):
        claim(state, queue.family, [source], now)


def is_outranked(state: State, queue: Queue, source: Source) -> bool:
    """Whether deeper calls, or calls of a higher priority, wait for the same source, perhaps without a claim now."""
    return any(
        (rival := family.first()) is not None
        and rival.may_begin()
        and rival.precedence()[:2] < queue.precedence()[:2]
        and allows(rival.where, source)
        and fits(rival.request, reachable(source))
        for family in state.waiting
    )


def claim(state: State, claimant: Claimant, chosen: Sequence[Source], now: int) -> None:
    """Reserve sources for a claimant."""
    claimant.reserved.extend(chosen)
    for source in chosen:
        source.reserved_for = claimant
        source.reserved_until_us = now + claimant.patience_us
        source.begins_in_us = 0
        state.alarms.set(source, source.reserved_until_us)


def end_reservation(state: State, claimant: Claimant) -> None:
    """Open the sources that were reserved for a claimant."""
    for source in claimant.reserved:
        source.reserved_for = None
        state.freed = True
    claimant.reserved.clear()


def lapse(state: State, claimant: Claimant, now: int) -> None:
    """End a reservation without use. The next one lasts longer, and begins later."""
    end_reservation(state, claimant)
    claimant.no_reservation_until_us = now + claimant.patience_us
    claimant.patience_us *= 2
    if isinstance(claimant, Family):
        state.alarms.set(claimant, claimant.no_reservation_until_us)


def look_after_reservation(state: State, source: Source, now: int) -> None:
    """Handle the alarm of a node or a bundle: end a reservation that has lapsed."""
    claimant = source.reserved_for
    if claimant is not None and (now >= source.reserved_until_us or claimant.position() == NOTHING):
        lapse(state, claimant, now)


def look_after_node(state: State, node: Node, now: int) -> None:
    """Handle the alarm of a node: end a reservation that has lapsed, stop executors that have idled for long."""
    look_after_reservation(state, node, now)
    idle = node.all_idle()
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
    """End an idle executor."""
    executor.rank.node.remove_idle(executor)
    state.stop(executor, "it had been idle", force=False)
