"""Lineage: what is remembered of calls, so that values which lay in an arena are made again when every copy is lost.

A call that may be run again and has made such a value is kept while the value is: its record, its small arguments, and
for each argument that lay in an arena itself not that, which may be large, but its lineage. So a chain of calls can be
run again from the last value that there still is. Small values live in the head and need none. There is none for what
no task has made, which is `put()`, methods and items of generators; nor for errors, nor for calls that must not run
twice. Values with references inside are not held either, since these may hold anything; nor are actors.

All of it counts at most LINEAGE_BYTES_MAX: what was kept first goes first, and values lost after that stay lost.

Nothing here looks at objects beyond their records: who calls releases what is returned.
"""

from __future__ import annotations

from mpi_runtime.scheduler.events import TASK
from mpi_runtime.scheduler.lifecycle import FINISHED, UNSEALED
from mpi_runtime.scheduler.limits import LINEAGE_BYTES_MAX, LINEAGE_CALL_BYTES
from mpi_runtime.scheduler.records import Task
from mpi_runtime.scheduler.state import Lineage, Object, State


def keep(state: State, task: Task) -> list[bytes]:
    """A call has ended, and its values are there. Returns what need not be held for it any more."""
    call, spec = task.call, task.function.spec
    needs = [*call.arguments, *call.holds]
    if not task.retries or spec.kind != TASK or spec.num_returns < 0 or task.state != FINISHED:
        return needs
    found = [state.objects.get(id) for id in task.return_ids()]
    stored = [one for one in found if one is not None and one.copies is not None and not one.is_error]
    if not stored:
        return needs
    released: list[bytes] = []
    lineage = state.lineages.by_call.get(task.id)
    if lineage is None:
        lineage = state.lineages.by_call[task.id] = _of(state, task, needs, released)
        state.lineages.size += lineage.size
    else:
        released += needs
    for made in stored:
        if made.lineage is not lineage:
            released += forget(state, made)
            made.lineage = lineage
            lineage.uses += 1
    while state.lineages.size > LINEAGE_BYTES_MAX:
        oldest = next(iter(state.lineages.by_call.values()))
        oldest.is_dropped = True
        released += _drop(state, oldest)
    return released


def _of(state: State, task: Task, needs: list[bytes], released: list[bytes]) -> Lineage:
    """A new lineage. What it does not hold is added to `released`."""
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
    """An object needs its lineage no more, if it has one. Returns what is not held for it any more."""
    lineage, found.lineage = found.lineage, None
    if lineage is None:
        return []
    lineage.uses -= 1
    return [] if lineage.uses else _drop(state, lineage)


def _drop(state: State, lineage: Lineage) -> list[bytes]:
    """Nothing is remembered of a call, nor of those that only it needs. Returns what they held."""
    released: list[bytes] = []
    pending = [lineage]
    while pending:
        one = pending.pop()
        if state.lineages.by_call.get(one.task.id) is one:
            del state.lineages.by_call[one.task.id]
            state.lineages.size -= one.size
        released += one.held
        inputs, one.inputs, one.held = one.inputs, {}, []
        for other in inputs.values():
            other.uses -= 1
            if not other.uses:
                pending.append(other)
    return released
