"""Rebuilding: calls run again to make lost values, or the values are lost for good.

A call that runs again may need other lost values. These are made first. Each run uses a retry, as after a crash. A
value that cannot be rebuilt gets an error with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.scheduler.calls import tasks
from mpi_runtime.scheduler.places import constraints
from mpi_runtime.scheduler.protocol.limits import LINEAGE_BYTES_MAX, LINEAGE_DEPTH_MAX
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import advance, so_far
from mpi_runtime.scheduler.records.state import Lineage, Object, State
from mpi_runtime.scheduler.values import journaling, objects


def rebuild(state: State, lost: Sequence[Object], cause: str) -> tuple[int, int]:
    """Rebuild objects without a copy. Returns the number of calls that run again, and of objects lost for good."""
    planned: dict[bytes, Lineage] = {}
    hopeless: list[tuple[Object, str]] = []
    for found in lost:
        why = plan(state, found.lineage, planned) if found.lineage is not None else _NOT_KEPT
        if why:
            hopeless.append((found, why))
    for found, why in hopeless:
        give_up(state, found, cause, why)
    for lineage in planned.values():
        run_again(state, lineage, cause)
    return len(planned), len(hopeless)


_NOT_KEPT = (
    "Only what a task has returned that may be run again (max_retries), and was not cancelled, can be rebuilt, and "
    "what a generator that is being run again yields once more"
)
_DROPPED = (
    f"How it was made is not known any more: of that {LINEAGE_BYTES_MAX >> 20} MiB are kept, and there was more since"
)


def plan(state: State, wanted: Lineage, planned: dict[bytes, Lineage]) -> str:
    """Add to `planned` the calls that must run again for a value, each after the calls that it depends on.

    If that is impossible, returns why, and adds nothing.
    """
    order: dict[bytes, Lineage] = {}
    seen: set[bytes] = set()  # only for membership
    pending = [(wanted, 0, False)]
    while pending:
        one, depth, is_after_inputs = pending.pop()
        id = one.task.id
        if is_after_inputs:
            order[id] = one
        elif id not in planned and id not in seen and one.task.state in lifecycle.ENDED:
            seen.add(id)
            if why := why_not(state, one, depth):
                return why
            pending.append((one, depth, True))
            for argument in dict.fromkeys((*one.task.call.arguments, *one.task.call.holds)):
                if not is_missing(state, argument):
                    continue
                found = state.objects.get(argument)
                needed = one.inputs.get(argument) if found is None else found.lineage
                if needed is not None and (found is None or found.state != lifecycle.RUNTIME_ERROR):
                    pending.append((needed, depth + 1, False))
                elif argument in one.task.call.arguments:
                    return f"{one.task.function.spec.name}, which made it, needs object {argument.hex()}, which is gone"
    planned.update(order)
    return ""


def is_missing(state: State, id: bytes) -> bool:
    """Whether an object has no value, and no call is making one."""
    found = state.objects.get(id)
    return (
        found is None
        or found.state == lifecycle.RUNTIME_ERROR
        or (found.state in (lifecycle.STORED, lifecycle.GONE) and not found.places())
    )


def why_not(state: State, lineage: Lineage, depth: int) -> str:
    """Why a call cannot run again, apart from its arguments; empty: it can."""
    task = lineage.task
    name = task.function.spec.name
    if lineage.is_dropped:
        return _DROPPED
    if task.function.driver is not None and task.function.driver.has_left:
        return f"{name}, which made it, belongs to a driver that has left"
    if task.state != lifecycle.FINISHED:
        return f"{name}, which made it, failed when it was run again"
    if not task.retries:
        return f"{name}, which made it, has used up its retries (max_retries is {task.function.spec.max_retries})"
    if depth >= LINEAGE_DEPTH_MAX:
        return f"More than {LINEAGE_DEPTH_MAX} calls in a row would have to be run again"
    if nowhere := task.function.infeasible or constraints.why_removed(state, task.function):
        return f"{name}, which made it, cannot be run again: {nowhere.removesuffix('.')}"
    return ""


def give_up(state: State, found: Object, cause: str, why: str) -> None:
    """Give an object that is lost for good its error."""
    before = so_far(state.stories.of(found.id, "object", besides=cause))
    advance(state.stories, found, lifecycle.GIVE_UP, cause)
    found.copies = None
    found.code, found.is_error = "ObjectLostError", False
    found.data = f"{found} is lost: {cause}, which had its only copy. {why}.{before}".encode()
    objects.announce(state, found)


def run_again(state: State, lineage: Lineage, cause: str) -> None:
    """Run a call once more. Its lost values are rebuilt, and objects of it that were freed exist again."""
    task = lineage.task
    advance(state.stories, task, lifecycle.MAKE_AGAIN, cause)
    task.function.done -= 1
    state.finished -= 1
    state.retried += 1
    if task.function.driver is not None:
        task.function.driver.begin(task, task.driver)
    task.retries -= task.retries > 0
    task.call.attempt += 1
    task.crashes = task.missing = 0
    journaling.forget_key(task)
    for id in task.return_ids():
        found = state.objects.get(id)
        if found is None:
            state.objects[id] = Object(id, -1, 1, state=lifecycle.REBUILDING, task=task, lineage=lineage)
            lineage.uses += 1
        elif found.copies is not None and not found.places():
            objects.make_again(state, found, task, cause)
    tasks.begin(state, task, tasks.hold_arguments(state, task))
