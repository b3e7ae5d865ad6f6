"""What must hold of calls and objects between decisions: their references, copies and fetches add up."""

from __future__ import annotations

from collections import Counter

from mpi_runtime.scheduler.invariant_error import holds
from mpi_runtime.scheduler.lifecycle import (
    BLOCKED,
    ENDED,
    ERROR,
    GONE,
    INLINE,
    RUNTIME_ERROR,
    SENT,
    STAGING,
    STOPPING,
    STORED,
    UNSEALED,
    WAITING,
)
from mpi_runtime.scheduler.limits import LINEAGE_BYTES_MAX
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
    holds(not has_copies or found.copies, f"{name} has lost every copy, and nobody has noticed")
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
        group = task.function.where.group if task.function.where is not None else b""
        if group in state.groups and state.objects[group].state in UNSEALED:
            missing.append(group)
        waits = len(missing) > 0 or task.recalling
        holds(
            task.missing == len(missing) and waits,
            f"{name} waits for {task.missing} arguments of {len(missing)} pending",
        )
        for id in missing:
            waiters = state.objects[id].waiters or []
            holds(any(waiter is task for waiter in waiters), f"{name} waits for an object that does not know")
    if task.state == STAGING:
        assert task.executor is not None
        number = task.executor.rank.node.number
        for id in task.call.arguments:
            copies = state.objects[id].copies
            if copies is not None and number not in copies:
                fetching = state.fetching.get((id, number))
                waiting = [] if fetching is None else fetching.waiting
                known = any(not isinstance(one, int) and one[0] is task for one in waiting)
                ends = task.executor.state == STOPPING  # an argument of its actor is lost: it gets another executor
                holds(known or ends, f"{name} waits for a copy that nobody fetches")


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
    for kept in state.lineages.by_call.values():
        counts.update(kept.held)
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
    for (id, number), fetching in state.fetching.items():
        found = state.objects.get(id)
        holds(found is not None and found.copies, f"object {id.hex()} is fetched and stored nowhere")
        assert found is not None
        assert found.copies is not None
        holds(number not in found.copies, f"object {id.hex()} is fetched to node {number}, where it is")
        holds(fetching.waiting, f"object {id.hex()} is fetched for nobody")
        places = [(place.rank, place.offset) for place in found.copies.values()]
        is_there = (fetching.source.rank, fetching.source.offset) in places
        holds(is_there, f"object {id.hex()} is fetched from where it is not")
        holds(state.ranks[fetching.rank].node.number == number, f"object {id.hex()} is fetched by another node's rank")
        holds(not fetching.reason or fetching in state.alarms, f"object {id.hex()} cannot be had, and nobody is told")


def check_lineages(state: State) -> None:
    """What is kept of calls is needed, counted, and held."""
    uses: Counter[bytes] = Counter()
    for found in state.objects.values():
        if found.lineage is not None and not found.lineage.is_dropped:
            uses[found.lineage.task.id] += 1
    for kept in state.lineages.by_call.values():
        uses.update(one.task.id for one in kept.inputs.values() if not one.is_dropped)
    for id, kept in state.lineages.by_call.items():
        holds(kept.uses == uses[id] > 0, f"lineage of {id.hex()} counts {kept.uses} uses of {uses[id]}")
        holds(kept.task.executor is None or kept.task.state not in ENDED, f"lineage of {id.hex()} keeps an executor")
    holds(uses.keys() <= state.lineages.by_call.keys(), "a lineage is needed and not kept")
    total = sum(kept.size for kept in state.lineages.by_call.values())
    holds(state.lineages.size == total <= LINEAGE_BYTES_MAX, f"{total} bytes of lineage, not {state.lineages.size}")
