"""What must hold of calls and objects between decisions: their references, copies and fetches add up."""

from __future__ import annotations

from collections import Counter

from mpi_runtime.scheduler.invariant_error import holds
from mpi_runtime.scheduler.lifecycle import (
    BLOCKED,
    ERROR,
    GONE,
    INLINE,
    RUNTIME_ERROR,
    SENT,
    STAGING,
    STORED,
    UNSEALED,
    WAITING,
)
from mpi_runtime.scheduler.records import Task
from mpi_runtime.scheduler.state import Object, State


def tasks_under_way(state: State) -> dict[bytes, Task]:
    """Every call that has not ended: exactly those that will give objects their values."""
    live: dict[bytes, Task] = {}
    for found in state.objects.values():
        if found.task is not None:
            known = live.setdefault(found.task.id, found.task)
            holds(known is found.task, f"two calls are named {found.task.id.hex()}")
    return live


def check_object(state: State, found: Object) -> None:
    """A pending object has a call that makes it; a sealed one has what its state says, and nobody waits for it."""
    name = f"object {found.id.hex()}"
    holds(found.references > 0, f"{name} has no references")
    if found.state in UNSEALED:
        maker = found.task is not None or found.actor is not None or found.id in state.waiting_groups
        holds(maker, f"{name} is pending and nothing will make it")
        return
    holds(found.task is None, f"{name} has a value, and still a call")
    holds(not found.subscribers and not found.waiters, f"{name} has a value, and somebody waits for it")
    has_copies = found.copies is not None
    holds(has_copies == (found.state in (STORED, GONE)), f"{name} is stored nowhere, or somewhere for nothing")
    if found.state == RUNTIME_ERROR:
        holds(found.code, f"{name} failed without a code")
    elif found.state in (INLINE, ERROR):
        holds(not found.code, f"{name} has a value and a code")


def check_task(state: State, task: Task) -> None:
    """A call is where its state says, and waits for as many arguments as it thinks."""
    name = f"call {task.id.hex()}"
    holds((task.executor is not None) == (task.state in (STAGING, SENT, BLOCKED)), f"{name}: state and executor differ")
    if task.executor is not None:
        holds(task.executor.in_hand.get(task.id) is task, f"{name} is not in the hand of its executor")
    if task.state == WAITING:
        missing = [id for id in task.call.arguments if state.objects[id].state in UNSEALED]
        if task.function.where is not None and task.function.where.group in state.waiting_groups:
            missing.append(task.function.where.group)
        holds(task.missing == len(missing) > 0, f"{name} waits for {task.missing} arguments of {len(missing)} pending")
        for id in missing:
            waiters = state.objects[id].waiters or []
            holds(any(waiter is task for waiter in waiters), f"{name} waits for an object that does not know")
    if task.state == STAGING:
        assert task.executor is not None
        number = task.executor.rank.node.number
        for id in task.call.arguments:
            copies = state.objects[id].copies
            if copies is not None and number not in copies:
                waiting = state.fetching.get((id, number), [])
                known = any(not isinstance(one, int) and one[0] is task for one in waiting)
                holds(known, f"{name} waits for a copy that nobody fetches")


def check_references(state: State, live: dict[bytes, Task]) -> None:
    """Every count is the number of holders: processes, calls that make or need it, values around it, fetches."""
    counts: Counter[bytes] = Counter()
    for client in state.clients.values():
        counts.update(client.held.keys())
    for found in state.objects.values():
        counts.update(found.holds or ())
        if found.task is not None:
            counts[found.id] += 1
    for task in live.values():
        counts.update(task.call.arguments)
        counts.update(task.call.holds)
        if task.call.actor:
            counts[task.call.actor] += 1
    for id, _ in state.fetching:
        counts[id] += 1
    for executor in state.executors.values():
        counts.update(executor.kept)
    for actor in state.actors.values():
        counts.update(actor.kept)
        if actor.name and state.names[actor.name].detached:
            counts[actor.id] += 1
    counts.update(state.groups.keys())
    for found in state.objects.values():
        expected = counts[found.id]
        holds(found.references == expected, f"object {found.id.hex()} counts {found.references}, {expected} hold it")


def check_extents(state: State) -> None:
    """Extents and the copies of objects are the same; nothing of them is about to be freed."""
    places = {(copy.rank, copy.offset) for found in state.objects.values() for copy in (found.copies or {}).values()}
    holds(places == state.extents.keys(), "extents and copies differ")
    for (rank, offset), id in state.extents.items():
        copies = state.objects[id].copies or {}
        holds(any((one.rank, one.offset) == (rank, offset) for one in copies.values()), "an extent of another object")
    holds(not state.frees, "extents are to be freed after a decision")
    for found in state.objects.values():
        for number, copy in (found.copies or {}).items():
            holds(state.ranks[copy.rank].node.number == number, f"object {found.id.hex()} is on another node than said")


def check_fetches(state: State) -> None:
    """What is fetched exists, is stored, and is not there yet."""
    for (id, number), waiting in state.fetching.items():
        found = state.objects.get(id)
        holds(found is not None and found.copies, f"object {id.hex()} is fetched and stored nowhere")
        assert found is not None
        assert found.copies is not None
        holds(number not in found.copies, f"object {id.hex()} is fetched to node {number}, where it is")
        holds(waiting, f"object {id.hex()} is fetched for nobody")
