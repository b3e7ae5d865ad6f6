"""Calls that members of gangs submit and wait for. Members keep their resources while they wait.

1. A call that never fits beside the gang which submits it fails at once.
2. Gangs may wait for calls that would fit beside each of them, but not beside all. If that has lasted for
   `GANG_WAIT_US`, such a call of the youngest of these gangs fails. Otherwise all would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpi_runtime.scheduler.calls import tasks
from mpi_runtime.scheduler.dispatch.queues import withdraw
from mpi_runtime.scheduler.places.constraints import sources
from mpi_runtime.scheduler.places.gang_places import spots
from mpi_runtime.scheduler.protocol.limits import GANG_WAIT_US
from mpi_runtime.scheduler.protocol.resources import Grant, Pool, copy_of, fits, subtract
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, READY, WAITING
from mpi_runtime.scheduler.records.records import Executor, Gang, Task
from mpi_runtime.scheduler.records.state import State


def submitted(state: State, executor: Executor, id: bytes) -> None:
    """Fail a call of a member at once if it can never run beside the gang, whose members keep their CPUs."""
    found = state.objects.get(id)
    task = found.task if found is not None else None
    gang = executor.gang
    if task is None or gang is None or task.state not in (WAITING, READY) or fits_beside(state, task, [gang]):
        return
    name = caller_of(gang)
    refuse(
        state,
        task,
        f"and that never fits beside the gang of {name}, which submitted it: the {len(gang.members)} members keep "
        f"their resources while they wait. Submit it from outside of the gang, or give {name} fewer ranks.",
    )


def look(state: State, gang: Gang, now: int) -> None:
    """Fail a call if a gang waits for one that waits for the gang itself, or for others that wait too."""
    if gang.task is None or gang.cause or not any(member.blocked for member in gang.members):
        return
    state.alarms.set(gang, now + GANG_WAIT_US)
    stuck = waiting_gangs(state)
    while True:
        held = list(stuck)
        able = [one for one, awaited in stuck.items() if all(fits_beside(state, task, held) for task in awaited)]
        if not able:
            break
        for one in able:
            del stuck[one]
    if gang not in stuck:
        return
    youngest = max(stuck, key=lambda one: one.number)
    task = next(task for task in stuck[youngest] if not fits_beside(state, task, list(stuck)))
    others = ", ".join(sorted({caller_of(one) for one in stuck if one is not youngest})) or caller_of(youngest)
    refuse(
        state,
        task,
        f"and that does not fit beside {len(stuck)} gang(s) that wait ({others}): their members keep their resources "
        f"while they wait, each for a call that waits for room. The gang of {caller_of(youngest)} was the last to "
        "start, so its call fails. Run fewer of these gangs at a time, or submit such calls from outside of them.",
    )


def waiting_gangs(state: State) -> dict[Gang, list[Task]]:
    """Gangs with a member that waits for calls, and those of these calls that wait for room: one for each function."""
    found: dict[Gang, list[Task]] = {}
    for executor in state.executors.values():
        gang = executor.gang
        if gang is not None and executor.blocked and gang.task is not None and not (gang.cause or gang.for_actor):
            queued = {task.function: task for task in without_room(state, executor.waits_for)}
            if queued:
                found.setdefault(gang, []).extend(queued.values())
    return found


def without_room(state: State, ids: Sequence[bytes]) -> Iterator[Task]:
    """The calls that wait for room, among those that make these objects, their arguments, and what they wait for."""
    rest, seen = list(ids), set[bytes]()
    while rest:
        id = rest.pop()
        found = state.objects.get(id)
        task = found.task if found is not None and id not in seen else None
        seen.add(id)
        if task is None or task.function.is_method:
            continue
        if task.state == READY:
            yield task
        elif task.state == WAITING:
            rest += task.call.arguments
        elif task.state == BLOCKED and task.executor is not None and task.executor.gang is None:
            rest += task.executor.waits_for


def fits_beside(state: State, task: Task, gangs: Sequence[Gang]) -> bool:
    """Whether a call would fit if these gangs alone held something. Not known of methods, and without a node: true."""
    function, where = task.function, task.function.where
    if function.is_method or where.group not in (b"", *state.groups):
        return True
    held: dict[Source, list[Grant]] = {}
    for gang in gangs:
        for source, grant in zip(gang.sources, gang.grants, strict=True):
            held.setdefault(source, []).append(grant)
    there = list(sources(state, where))
    pools = [beside(source, held.get(source, [])) for source in there]
    if function.spec.gang is not None:
        return not there or spots(state, function, there, pools) is not None
    return not there or any(fits(function.spec.asks, pool) for pool in pools)


def refuse(state: State, task: Task, why: str) -> None:
    """Fail a call that has not been assigned."""
    was_queued = task.state == READY
    message = f"{task.function.spec.name} asks for {task.function.spec.asks}, {why}"
    tasks.fail(state, task, "InfeasibleResourceError", message)
    if was_queued:
        withdraw(state, task)


def caller_of(gang: Gang) -> str:
    """The name of the function that a gang runs."""
    return gang.task.function.spec.name if gang.task is not None else "its caller"


def beside(source: Source, grants: Sequence[Grant]) -> Pool:
    """All resources of a source but these grants."""
    pool = copy_of(source.total)
    for grant in grants:
        subtract(grant, pool)
    return pool
