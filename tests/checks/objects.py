"""Assertions on calls and objects between decisions: references, copies and fetches add up."""

from __future__ import annotations

from collections import Counter

from mpi_runtime.scheduler.answers import ended_calls
from mpi_runtime.scheduler.gangs.members import holds_of
from mpi_runtime.scheduler.protocol.events import OnDisk, Stored
from mpi_runtime.scheduler.protocol.limits import LINEAGE_BYTES_MAX
from mpi_runtime.scheduler.protocol.questions import Tasks
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import UNSEALED
from mpi_runtime.scheduler.records.records import Task
from mpi_runtime.scheduler.records.state import Fetching, Object, State
from mpi_runtime.scheduler.values import spreading


def tasks_under_way(state: State) -> dict[bytes, Task]:
    """Every call that has not ended: exactly those that will give objects their values."""
    live: dict[bytes, Task] = {}
    for found in state.objects.values():
        if found.task is not None:
            known = live.setdefault(found.task.id, found.task)
            assert known is found.task, f"two calls are named {found.task.id.hex()}"
    return live


def check_object(state: State, found: Object) -> None:
    """A pending object has a call that makes it; a sealed one agrees with its state and has no waiters."""
    name = f"object {found.id.hex()}"
    assert found.references > 0, f"{name} has no references"
    if found.state in UNSEALED:
        maker = found.task is not None or found.actor is not None or found.id in state.waiting_groups
        assert maker, f"{name} is pending and nothing will make it"
        return
    assert found.task is None, f"{name} has a value, and still a call"
    assert not found.subscribers and not found.waiters, f"{name} has a value, and somebody waits for it"
    has_copies = found.copies is not None
    assert has_copies == (found.state in (lifecycle.STORED, lifecycle.GONE)), (
        f"{name} is stored nowhere, or somewhere for nothing"
    )
    assert not has_copies or found.places(), f"{name} has lost every copy, and nobody has noticed"
    if found.state == lifecycle.RUNTIME_ERROR:
        assert found.code, f"{name} failed without a code"
    elif found.state in (lifecycle.INLINE, lifecycle.ERROR):
        assert not found.code, f"{name} has a value and a code"


def check_counts(state: State) -> None:
    """Counts of calls agree with those of their functions, and each failed call is one of a kind of error."""
    functions = state.functions.values()
    has_joined = state.use.cpu_in_all > 1  # functions of drivers that have left are forgotten, with their counts
    for name, found, counted in (
        ("submitted", sum(one.submitted for one in functions), state.submitted),
        ("finished", sum(one.done for one in functions), state.finished),
        ("failed", sum(one.failed for one in functions), state.failed),
        ("cancelled", sum(one.cancelled for one in functions), state.cancelled),
    ):
        assert found == counted or (has_joined and found < counted), f"not each {name} call is one of a function"
    assert sum(one.failed for one in state.errors.values()) == state.failed - state.cancelled, (
        "not each failed call has its kind of error"
    )


ENDED = 5


def check_ended(state: State) -> None:
    """The list of ended calls has as many as are asked for, newest first, and each attempt once.

    Most of it is as it was at the last decision, and it takes long to make: each fourth is enough.
    """
    if state.ran % 4:
        return
    found = ended_calls.ended(state, Tasks(ended=ENDED))
    assert min(ENDED, len(state.history)) <= len(found) <= ENDED, "not as many ended calls as there are"
    ran = [one.task_id for one in found if one.worker_id is not None]
    assert ran == [run.id.hex() for run in list(state.history)[::-1][: len(ran)]], "not the last attempts that have run"
    for one in found:
        assert (one.state == "FAILED") is (one.error_type is not None), f"{one.name} has failed without an error"
        assert one.end_time_ms is not None, f"{one.name} has ended at no time"


def check_task(state: State, task: Task) -> None:
    """A call agrees with its state, and counts its missing arguments."""
    name = f"call {task.id.hex()}"
    assert (task.executor is not None) == (task.state in lifecycle.ASSIGNED), f"{name}: state and executor differ"
    if task.executor is not None:
        assert task.executor.assigned.get(task.id) is task, f"{name} is not assigned to its executor"
    if task.state == lifecycle.WAITING:
        missing = [id for id in task.call.arguments if state.objects[id].state in UNSEALED]
        group = task.function.where.group
        if group in state.groups and state.objects[group].state in UNSEALED:
            missing.append(group)
        waits = len(missing) > 0 or task.is_asked
        is_right = task.missing == len(missing) and waits
        assert is_right, f"{name} waits for {task.missing} arguments of {len(missing)} pending"
        for id in missing:
            waiters = state.objects[id].waiters or []
            assert any(waiter is task for waiter in waiters), f"{name} waits for an object that does not know"
    if task.state == lifecycle.STAGING:
        assert task.executor is not None
        number = task.executor.rank.node.number
        missing = [id for id in task.call.arguments if _is_elsewhere(state.objects[id], number)]
        fetched = [id for id in missing if _is_fetched(state, id, task, number)]
        # Copies that were dropped for want of room are fetched again when the others have arrived.
        is_right = bool(fetched) if number in state.spilling.rooms else fetched == missing
        ends = task.executor.state == lifecycle.STOPPING  # an argument of its actor is lost: it gets another executor
        assert is_right or ends, f"{name} waits for a copy that nobody fetches"


def _is_elsewhere(found: Object, number: int) -> bool:
    return found.copies is not None and number not in found.copies


def _is_fetched(state: State, id: bytes, task: Task, number: int) -> bool:
    """Whether an object is on its way to a node for a call."""
    fetching = state.fetching.get(id, {}).get(number)
    return fetching is not None and any(isinstance(one, tuple) and one[0] is task for one in fetching.waiting)


def check_references(state: State, live: dict[bytes, Task]) -> None:
    """Every count is the number of holders: processes, calls that make or need it, values around it, fetches."""
    holders: list[bytes] = []  # counted once: many small counts take several times as long
    for client in (*state.clients.values(), *state.leaving.values()):
        holders += client.held
    for found in state.objects.values():
        holders += found.holds or ()
        if found.task is not None:
            holders.append(found.id)
    for task in live.values():
        holders += task.call.arguments
        holders += task.call.holds
        if task.call.actor:
            holders.append(task.call.actor)
    for executor in state.executors.values():
        if executor.gang_rank:
            holders += (id for part in executor.assigned.values() for id in part.call.arguments)
        holders += executor.kept
    for gang in {one.gang.number: one.gang for one in state.executors.values() if one.gang is not None}.values():
        holders += (id for end in gang.ended.values() for id in holds_of(end))
    for id, fetches in state.fetching.items():
        holders += [id] * len(fetches)
    for room in state.spilling.rooms.values():
        holders += room.writing
    for kept in state.lineages.values():
        holders += kept.held
    for actor in state.actors.values():
        holders += actor.kept
        if actor.is_detached:
            holders.append(actor.id)
    holders += state.groups
    counts = Counter(holders)
    for found in state.objects.values():
        expected = counts[found.id]
        assert found.references == expected, f"object {found.id.hex()} counts {found.references}, {expected} hold it"


def check_extents(state: State) -> None:
    """Extents and copies of objects are the same; none is about to be freed."""
    copies = [(found.id, *one) for found in state.objects.values() if found.copies for one in found.copies.items()]
    sizes = {(copy.rank, copy.offset): copy.size for _, _, copy in copies}
    assert sizes.keys() == state.extents.keys(), "extents and copies differ"
    owners = {(id, copy.rank, copy.offset) for id, _, copy in copies}  # the values of a failed call share an extent
    for place, id in state.extents.items():
        assert (id, *place) in owners, "an extent of another object"
    for id, number, copy in copies:
        assert state.ranks[copy.rank].node.number == number, f"object {id.hex()} is on another node than said"
    stored: Counter[int] = Counter()
    for (number, _), size in sizes.items():
        stored[number] += size
    for rank in state.ranks.values():
        here = stored[rank.number]
        assert rank.stored == here, f"rank {rank.number} counts {rank.stored} bytes of values, and has {here}"
    assert not state.frees, "extents are to be freed after a decision"


def check_fetches(state: State) -> None:
    """Fetched objects are stored, and not there yet. Every fetch has a source, or all sources are taken."""
    sending: Counter[int] = Counter()
    for id, fetches in state.fetching.items():
        name, found = f"object {id.hex()}", state.objects.get(id)
        assert found is not None and found.places(), f"{name} is fetched and stored nowhere"
        assert found is not None
        assert found.copies is not None
        assert not spreading.unneeded(state, id), f"{name} is fetched for nobody"
        for number, one in fetches.items():
            assert one.node == number and number not in found.copies, f"{name} is fetched to node {number}, where it is"
            assert state.ranks[one.rank].node.number == number, f"{name} is fetched by another node's rank"
            assert not one.reason or one in state.alarms, f"{name} cannot be fetched, and nobody will know"
            if isinstance(one.source, Stored):
                sending[one.source.rank] += 1
                check_source(state, found, one)
            elif one.source is not None:
                assert one.source == found.disk, f"{name} is read from where it is not"
        check_waiting(state, found, fetches)
    assert sending == state.sending, f"copies are on their way from {dict(sending)}, and {state.sending} are counted"


def check_source(state: State, found: Object, fetching: Fetching) -> None:
    """The source of a fetch is a copy, or an arriving one, and not behind the fetch itself."""
    assert found.copies is not None
    node, seen = fetching.source_node, {fetching.node}
    passing = state.fetching[found.id].get(node)
    place = found.copies.get(node)
    if passing is not None and passing.offset >= 0:
        place = Stored(passing.rank, passing.offset, passing.size)
    assert place == fetching.source, f"{found} is fetched from where it is not"
    while passing is not None:
        assert node not in seen, f"{found} comes to node {node} by way of itself"
        seen.add(node)
        node = passing.source_node
        passing = state.fetching[found.id].get(node)


def check_waiting(state: State, found: Object, fetches: dict[int, Fetching]) -> None:
    """No source is open for a fetch without one."""
    waiting = [one for one in fetches.values() if one.source is None]
    if waiting:
        left = spreading.open_sources(state, found, fetches)
        reads = any(isinstance(one.source, OnDisk) for one in fetches.values())
        for one in waiting:
            usable = [node for node, (place, _, _) in left.items() if place.rank not in one.tried]
            usable = [node for node in usable if not spreading.leads_to(fetches, node, one)]
            assert not usable, f"{found} is not brought to node {one.node}, and could be"
        comes = reads or any(one.source is not None for one in fetches.values())
        assert comes, f"{found} is wanted, and nobody brings it"


def check_spilling(state: State) -> None:
    """Values on disk and in files agree; values that are being written are still in their places."""
    places = {(found.disk.rank, found.disk.offset): found.id for found in state.objects.values() if found.disk}
    assert places == state.spilling.on_disk, "files and objects differ"
    assert all(rank in state.ranks for rank, _ in places), "an object is in the file of a rank that is gone"
    assert not state.spilling.erasures, "parts of files are to be freed after a decision"
    for number, room in state.spilling.rooms.items():
        for id, one in room.writing.items():
            found = state.objects[id]
            assert found.disk is None, f"object {id.hex()} is written to disk, where it is"
            assert (found.copies or {}).get(number) == one.place, f"object {id.hex()} is dropped while it is written"
        if number in state.nodes:
            assert state.nodes[number].is_full == bool(room.wanted), f"node {number} lacks room, or does not"


def check_lineages(state: State) -> None:
    """Lineage is of use, needed, counted, and held."""
    assert state.survives_losses or not state.lineages, "lineage is kept, and the job ends with any rank"
    uses: Counter[bytes] = Counter()
    for found in state.objects.values():
        if found.lineage is not None and not found.lineage.is_dropped:
            uses[found.lineage.task.id] += 1
    for kept in state.lineages.values():
        uses.update(one.task.id for one in kept.inputs.values() if not one.is_dropped)
    for id, kept in state.lineages.items():
        assert kept.uses == uses[id] > 0, f"lineage of {id.hex()} counts {kept.uses} uses of {uses[id]}"
        assert kept.task.executor is None or kept.task.state not in lifecycle.ENDED, (
            f"lineage of {id.hex()} keeps an executor"
        )
    assert uses.keys() <= state.lineages.keys(), "a lineage is needed and not kept"
    total = sum(kept.size for kept in state.lineages.values())
    assert state.lineage_bytes == total <= LINEAGE_BYTES_MAX, f"{total} bytes of lineage, not {state.lineage_bytes}"
