"""Lineage: the calls that are remembered so that lost values of arenas can be rebuilt.

A job that ends with the first rank that dies remembers none: no value is lost alone. In other jobs a call is
remembered as long as its values in arenas, if it may run again. Its record and its small arguments are kept, and of
large arguments only the lineage. So a chain of calls can run again from the last values that still exist. Small values
live in the head and need no lineage. Values that no task has made (`put()`, methods, items of generators), errors, and
calls that must not run twice have none. Arguments with references inside are not held, because these may hold anything.
Actors are not held.

All lineage takes at most LINEAGE_BYTES_MAX. The oldest is dropped first; its values cannot be rebuilt.

Functions here return ids that need not be held any more. The caller releases them.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.events import TaskSpec
from mpi_runtime.scheduler.protocol.limits import LINEAGE_BYTES_MAX, LINEAGE_CALL_BYTES
from mpi_runtime.scheduler.records.lifecycle import FINISHED, UNSEALED
from mpi_runtime.scheduler.records.records import Driver, Task
from mpi_runtime.scheduler.records.state import Lineage, Object, State


def keep(state: State, task: Task) -> list[bytes]:
    """Remember an ended call if its values may have to be rebuilt. Returns ids to release."""
    call, spec = task.call, task.function.spec
    needs = [*call.arguments, *call.holds]
    can_be_lost = state.survives_losses and isinstance(spec.kind, TaskSpec) and spec.num_returns >= 0
    if not can_be_lost or not task.retries or task.state != FINISHED:
        return needs
    found = [state.objects.get(id) for id in task.return_ids()]
    stored = [one for one in found if one is not None and one.copies is not None and not one.is_error]
    if not stored:
        return needs
    released: list[bytes] = []
    lineage = state.lineages.get(task.id)
    if lineage is None:
        lineage = state.lineages[task.id] = _of(state, task, needs, released)
        state.lineage_bytes += lineage.size
    else:
        released += needs
    for made in stored:
        if made.lineage is not lineage:
            released += forget(state, made)
            made.lineage = lineage
            lineage.uses += 1
    while state.lineage_bytes > LINEAGE_BYTES_MAX:
        oldest = next(iter(state.lineages.values()))
        oldest.is_dropped = True
        released += _drop(state, oldest)
    return released


def _of(state: State, task: Task, needs: list[bytes], released: list[bytes]) -> Lineage:
    """Make a lineage. The ids that it does not hold are added to `released`."""
    lineage = Lineage(task, {}, [], LINEAGE_CALL_BYTES + len(task.call.payload))
    for id in needs:
        found = state.objects[id]
        if found.copies is None and found.actor is None and not found.holds and found.state not in UNSEALED:
            lineage.held.append(id)
            lineage.size += len(found.data)
            continue
        released.append(id)
        if found.lineage is not None and id not in lineage.inputs:
            lineage.inputs[id] = found.lineage
            found.lineage.uses += 1
    return lineage


def forget(state: State, found: Object) -> list[bytes]:
    """Forget the lineage of an object. Returns ids to release."""
    lineage, found.lineage = found.lineage, None
    if lineage is None:
        return []
    lineage.uses -= 1
    return [] if lineage.uses else _drop(state, lineage)


def forget_driver(state: State, driver: Driver) -> list[bytes]:
    """Forget all calls of a driver: its functions are gone. Returns ids to release."""
    released: list[bytes] = []
    for one in [one for one in state.lineages.values() if one.task.function.driver is driver]:
        one.is_dropped = True
        released += _drop(state, one)
    return released


def _drop(state: State, lineage: Lineage) -> list[bytes]:
    """Forget a call, and the calls that only it needs. Returns the ids that they held."""
    released: list[bytes] = []
    pending = [lineage]
    while pending:
        one = pending.pop()
        if state.lineages.get(one.task.id) is one:
            del state.lineages[one.task.id]
            state.lineage_bytes -= one.size
        released += one.held
        inputs, one.inputs, one.held = one.inputs, {}, []
        for other in inputs.values():
            other.uses -= 1
            if not other.uses:
                pending.append(other)
    return released
