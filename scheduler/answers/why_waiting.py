"""Why a call does not run yet, where a value is, and why a placement group has no nodes: in words."""

from __future__ import annotations

from collections import Counter

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.dispatch import backoff, deadline, fair_shares, locality
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.places import constraints, gpu_pool
from mpi_runtime.scheduler.protocol.amounts import amount, gib
from mpi_runtime.scheduler.protocol.events import BRINGS, OWN_SCHEDULER, Label, Where
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX
from mpi_runtime.scheduler.protocol.questions import Explanation
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.lifecycle import UNSEALED
from mpi_runtime.scheduler.records.records import ANYWHERE, Bundle, Executor, Task, granted, node_of
from mpi_runtime.scheduler.records.state import Group, Object, State

READ_ONLY = (
    "Arrays of it that get() returns, or that are arguments, are read-only: all who read a large value read the same "
    "memory. get(ref, copy=True) gives arrays that may be written into; in a call, copy the argument."
)


def why_group(state: State, group: Group) -> str:
    """Why a placement group has no nodes yet, or which it has."""
    described = [f"{request}{_on(spec.labels)}" for request, spec in zip(group.requests, group.specs, strict=True)]
    bundles = "; ".join(described[:EXPLAINED_MAX])
    if group.is_placed:
        hosts = [bundle.node.hostname for bundle in group.bundles.values()]
        return f"Its bundles are reserved on {', '.join(hosts[:EXPLAINED_MAX])}."
    asks = f"It asks for {len(group.requests)} bundle(s) ({bundles}) with strategy {group.strategy}."
    if group.is_feasible:
        return f"{asks} Free now: {_free(state)}."
    labels = f" Labels of nodes: {constraints.labels_of_nodes(state)}." if any(x.labels for x in group.specs) else ""
    return (
        f"{asks} It is infeasible: no arrangement was found even if nothing else ran.{labels} Remove it, and ask for "
        "less or start the job with more."
    )


def _on(labels: tuple[Label, ...]) -> str:
    return f" on a node with {constraints.in_words(labels)}" if labels else ""


def explain(state: State, id: bytes, now: int) -> Explanation:
    """Why the call that makes this object has not ended, and the story of both."""
    found = _explain(state, id, now)
    found.story = state.stories.of(id)
    return found


def _explain(state: State, id: bytes, now: int) -> Explanation:
    found = state.objects.get(id)
    if found is None:
        return Explanation(state="unknown", why="No such object: it was freed, or never existed.")
    task = found.task
    if id in state.waiting_groups:
        name = f"placement group {id.hex()}"
        return Explanation(state="pending", name=name, why=why_group(state, state.waiting_groups[id]))
    if task is None:
        return Explanation(state=lifecycle.OBJECT_STATE_NAMES[found.state], why=_where_it_is(state, found))
    words = lifecycle.TASK_STATE_NAMES[task.state]
    return Explanation(state=words, name=task.function.spec.name, why=_why(state, task, now))


def _where_it_is(state: State, found: Object) -> str:
    """The places of a value, and why its arrays are read-only."""
    if found.is_error or found.state in (lifecycle.ERROR, lifecycle.RUNTIME_ERROR):
        return "The value is there: an error, which get() raises."
    if found.state == lifecycle.INLINE:
        return f"The value is there. {READ_ONLY}"
    if found.state in UNSEALED:
        return "It has no value yet, and no call of this job is known to make it."
    if found.state == lifecycle.GONE:
        return "The process with its value could not be reached at the last attempt."
    copies = found.copies or {}
    hosts = [state.nodes[number].hostname for number in copies][:EXPLAINED_MAX]
    places = [f"in the shared memory of {', '.join(hosts)}"] if hosts else []
    if found.disk is not None:
        places.append(f"on a disk of {state.ranks[found.disk.rank].node.hostname}")
    size = next((gib(place.size) for place in found.places()), "")
    return f"The value is there: {size}, {' and '.join(places)}. {READ_ONLY}"


def _why(state: State, task: Task, now: int) -> str:
    executor = task.executor
    if task.state == lifecycle.WAITING:
        missing = [id.hex() for id in task.call.arguments if state.objects[id].state in UNSEALED]
        group = state.waiting_groups.get(task.function.where.group)
        if group is not None:
            return f"It waits for placement group {group.id.hex()}: {why_group(state, group)}"
        if task.is_asked and not missing:
            return "The journal is asked whether an earlier run has made its values."
        return f"It waits for {len(missing)} argument(s): {notes.listed(missing, EXPLAINED_MAX)}."
    if executor is not None:
        rank = executor.rank
        where = f"executor {executor.id} ({executor.stage}) on rank {rank.number} of {rank.node.hostname}"
        if executor.gang is not None:
            nodes = list(dict.fromkeys(one.rank.node.hostname for one in executor.gang.members))
            where = f"a gang of {len(executor.gang.members)} on {notes.listed(nodes, EXPLAINED_MAX)}: rank 0 is {where}"
        if task.state == lifecycle.BLOCKED:
            return f"It runs in {where} and waits for {_awaited(state, executor, now)}"
        if task.state == lifecycle.STAGING:
            return f"{task.missing} argument(s) are on their way to {where}: {_coming(state, task, rank.node.number)}."
        running = executor.running()
        if running is task and executor.waits_for:  # of an actor, which keeps its resources meanwhile
            return f"It runs in {where}, which waits for {_awaited(state, executor, now)}"
        if running is task:
            own = f" Its own scheduler has its calls: `mpi-runtime top {executor.pid}` on that host."
            return f"It runs in {where}.{own if task.function.spec.environment.get(OWN_SCHEDULER) == BRINGS else ''}"
        return f"It is with {where}, behind {running.function.spec.name if running else 'others'}."
    if task.function.is_method:
        assert task.actor is not None
        if task.actor.executor is None:
            creation = task.actor.creation
            later = _why(state, creation, now) if creation.executor is None else ""
            return f"Its actor is being created.{later and ' '}{later}"
        first = task.actor.callers[actor_calls.line_of(task.actor, task)][0]
        is_timed = first.state == lifecycle.READY and actor_calls.is_timed(task.actor, first.function)
        late = deadline.why_not(state, first.function, now) if is_timed else ""
        if late and first is not task:
            return f"It comes after a call of {first.function.spec.name} by the same caller. Of that: {late}"
        return late or "Its actor is busy with earlier calls."
    late = backoff.why(state, task, now) or deadline.why_not(state, task.function, now)
    if late:
        return late
    full = fair_shares.why_not(task.function.account)
    ranks = task.function.spec.ranks
    each = f" for each, at once, of all {ranks} members of a gang" if ranks else ""
    needs = (
        f"It needs {task.function.requests()}{each}{_place(task.function.where)}. {_free(state, task.function.where)}."
    )
    if ranks:
        return f"{full}{needs}"
    source = constraints.find_source(state, task.queue) if task.queue is not None else None
    near = locality.why(state, task, source, now)
    return f"{full}{needs}{near and ' '}{near}{'' if source else _holders(state, task.function.where)}"


def _awaited(state: State, executor: Executor, now: int) -> str:
    """The values that the call of an executor waits for, and why the first of the missing ones is not there."""
    values = f"{notes.listed([id.hex() for id in executor.waits_for], EXPLAINED_MAX)}."
    missing = [known for id in executor.waits_for if (known := state.objects.get(id)) and known.state in UNSEALED]
    task = missing[0].task if missing else None
    if task is None or (task.executor is not None and task.executor.waits_for):  # one step, since waits may be deep
        return values
    return f"{values} Of {task.function.spec.name}: {_why(state, task, now)}"


def _coming(state: State, task: Task, number: int) -> str:
    """The sizes and sources of the copies that a call waits for."""
    coming = [(id, state.fetching.get(id, {}).get(number)) for id in dict.fromkeys(task.call.arguments)]
    words = []
    for id, fetching in coming:
        if fetching is None:
            continue
        size = gib(next((place.size for place in state.objects[id].places()), 0))
        source = state.nodes.get(fetching.source_node)
        where = f"from {source.hostname}" if source is not None else "from disk"
        words.append(f"{size} {where if fetching.source is not None else 'that wait for a source'}")
    return notes.listed(words, EXPLAINED_MAX) or "they are about to be fetched"


def _place(where: Where) -> str:
    if where.group:
        which = "any bundle" if where.bundle < 0 else f"bundle {where.bundle}"
        return f" in {which} of placement group {where.group.hex()}"
    return _on(where.labels)


def _free(state: State, where: Where = ANYWHERE) -> str:
    """The free resources of the nodes or bundles that count."""
    found = list(constraints.sources(state, where)) if where is not ANYWHERE else list(state.nodes.values())
    free = [
        f"{_source_name(source)}: {amount(source.free.cpu)} CPU, {_free_gpus(source)}"
        + (" (kept for a larger request)" if source.reserved_for is not None else "")
        for source in found[:EXPLAINED_MAX]
    ]
    more = f" and {len(found) - EXPLAINED_MAX} more" if len(found) > EXPLAINED_MAX else ""
    return f"{'; '.join(free)}{more}"


def _holders(state: State, where: Where) -> str:
    """The calls and actors that hold resources of the nodes or bundles that count, with their numbers."""
    sources = list(constraints.sources(state, where))[:EXPLAINED_MAX]
    names = Counter(_holder(one) for source in sources for one in granted(source))
    return f" In use by {notes.listed([f'{name} ({n})' for name, n in names.most_common()], 4)}." if names else ""


def _holder(executor: Executor) -> str:
    if executor.actor is not None:
        return f"actor {executor.actor.creation.function.spec.name}"
    first = next(iter(executor.assigned.values()), None)
    return first.function.spec.name if first is not None else "a process that ends"


def _free_gpus(source: Source) -> str:
    out = len(node_of(source).inventory.out)
    units = gpu_pool.in_use(source.free, source.free.gpu_units)
    return f"{amount(units)} GPU free" + f" ({out} quarantined)" * bool(out)


def _source_name(source: Source) -> str:
    hostname = node_of(source).hostname
    return f"bundle {source.index} on {hostname}" if isinstance(source, Bundle) else hostname
