"""The GPUs of nodes: which exist, which calls may use them, and how messages describe them.

An executor that has used a GPU holds memory of it for life: its CUDA context, and allocations of its libraries. So an
idle executor is ended before another one gets any of its devices. The other one is started only when the idle one is
known to be gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mpi_runtime.gpu import ledger
from mpi_runtime.gpu.device import STATED, Device
from mpi_runtime.gpu.ledger import Granted, Inventory
from mpi_runtime.gpu.topology import NVLINK
from mpi_runtime.scheduler.protocol.amounts import TYPE, Request, amount, gib
from mpi_runtime.scheduler.protocol.entries import GpuEntry, GpuUser
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX, UNIT
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from mpi_runtime.scheduler.protocol.resources import Grant, Pool
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.lifecycle import STOPPING
from mpi_runtime.scheduler.records.parts import Key
from mpi_runtime.scheduler.records.records import Executor, Node, Queue, Rank, granted
from mpi_runtime.scheduler.records.state import State

# Joining


def join(state: State, node: Node, rank: Rank, event: RankJoined) -> None:
    """Add the devices of a rank. A device counts once, however many ranks and hosts name it."""
    inventory = node.inventory
    node.gpu_problems.extend(problem for problem in event.gpu_problems if problem not in node.gpu_problems)
    if event.gpu_error and event.gpu_error not in node.gpu_problems:
        node.gpu_problems.append(event.gpu_error)
        node.gpu_error = event.gpu_error
    node.gpu_limit = node.gpu_limit or event.gpu_limit
    devices = [one for one in event.devices if state.device_nodes.setdefault(one.uuid, node.number) == node.number]
    before = len(inventory.devices)
    stated = [Device(f"{STATED}{before + index:04}", "stated, not found") for index in range(event.gpu // UNIT)]
    new = inventory.add(devices, event.links, frozenset((rank.number,))) + inventory.add(stated, (), None)
    if new:
        _count(node, new)


def _count(node: Node, new: Sequence[Device], sign: int = 1) -> None:
    """Add devices to the pools of a node, or (sign -1) remove them, before any is used."""
    inventory = node.inventory
    assert node.free.gpu_units == node.total.gpu_units, "ids are given before any device is used"
    for pool in (node.total, node.free):
        pool.gpu_units[:] = [UNIT] * len(inventory.devices)
        pool.gpu_memory[:] = [device.memory for device in inventory.devices]
        for device in new:
            for name in device.types:
                pool.custom[TYPE + name] = pool.custom.get(TYPE + name, 0) + sign * UNIT


def limit(state: State, stated: float | None) -> str:
    """Limit each node to the stated number of GPUs; None: those that were found. Returns an error, if any."""
    for node in state.nodes.values():
        inventory = node.inventory
        found = [device for device in inventory.devices if not device.uuid.startswith(STATED)]
        if stated is None or not node.hosts_executors:
            continue
        if node.gpu_error and stated and not found:
            return f"init(num_gpus={stated:g}), but on host {node.hostname} {node.gpu_error}."
        if int(stated) > len(inventory.devices):
            limit = f" ({node.gpu_limit})" if node.gpu_limit else ""
            return f"init(num_gpus={stated:g}), but host {node.hostname} has {_words(found)} for this job{limit}."
        if found:
            gone = [device for device in inventory.devices if device not in found[: int(stated)]]
            inventory.keep_only(found[: int(stated)])
            _count(node, gone, -1)
            state.index.update(node)
    return ""


def _words(devices: Sequence[Device]) -> str:
    """The number of devices of each type, for messages."""
    kinds = Counter(device.types[-1] if device.types else device.name or "GPU" for device in devices)
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "no GPU"


def owned(node: Node) -> str:
    """The GPUs of a node, for messages."""
    devices = node.inventory.in_use()
    text = f"{len(devices)} GPU"
    return f"{text} ({_words(devices)})" if any(device.types for device in devices) else text


def largest(nodes: list[Node]) -> str:
    """Describe the node with most CPUs, and the nodes with most of the other resources."""
    best = max(nodes, key=lambda node: (node.total.cpu, len(node.total.gpu_units), -node.number))
    custom = [
        f"{amount(units)} of {name!r}"
        for name, units in best.total.custom.items()
        if not name.startswith(("node:", TYPE))  # the types of GPUs are described with the GPUs
    ]
    standard = [f"{amount(best.total.cpu)} CPU", owned(best), f"{gib(best.total.memory)} of memory"]
    return f"{best.hostname} with {', '.join(standard + custom)}"


def why_not(nodes: Sequence[Node], request: Request) -> str:
    """Why no node can serve a request for GPUs: the GPUs of all nodes, and what rules out those that seem to fit."""
    if not request.needs_gpu:
        return ""
    have = [
        f"{node.hostname}: {_words(node.inventory.in_use())}"
        + f" ({len(node.inventory.out)} quarantined)" * bool(node.inventory.out)
        for node in nodes
    ]
    text = f" GPUs by node: {'; '.join(have[:EXPLAINED_MAX])}."
    text += "".join(f" On {node.hostname} {node.gpu_error}." for node in nodes[:EXPLAINED_MAX] if node.gpu_error)
    fitting = [
        (node.inventory, device)
        for node in nodes
        for device in node.inventory.in_use()
        if all(name in device.types for name in request.types)
    ]
    reserve = max((device.reserve for _, device in fitting), default=0)
    if request.gpu < UNIT and request.gpu_memory and reserve:
        text += f" Each process takes {reserve >> 20} MiB of a GPU for itself, beside gpu_memory."
    if request.gpu > UNIT and any(device.is_instance for _, device in fitting):
        text += " A task can have one instance of MIG only: CUDA shows no process more."
    if request.gpu < UNIT and any(device.is_exclusive for _, device in fitting):
        text += " GPUs in the compute mode EXCLUSIVE_PROCESS cannot be shared."
    if request.gpu > UNIT and any(len(set(inventory.seen_by)) > 1 for inventory, _ in fitting):
        text += (
            " The ranks of a node can use different GPUs, and a task has those of one rank: start ranks that use all "
            "(srun --gpus-per-node=N, without --gpus-per-task and --gpu-bind)."
        )
    return text


# Executors


def pick(node: Node, queue: Queue, free: Pool) -> Granted | None:
    """Devices for the queue, chosen with regard to idle executors; None: the ledger chooses."""
    inventory = free.inventory
    if inventory is None:
        return None
    return _share(node, queue, free) if queue.request.gpu < UNIT else _whole(node, queue, free, inventory)


def _share(node: Node, queue: Queue, free: Pool) -> Granted | None:
    """A share of a device that is shared already, so that others stay whole; else of one of a usable idle executor."""
    shared = {id for id, left in enumerate(free.gpu_units) if left < UNIT}
    choices = [shared, *_usable(node, queue, 1)]
    return next((found for ids in choices if (found := _among(queue.request, free, ids))), None)


def _whole(node: Node, queue: Queue, free: Pool, inventory: Inventory) -> Granted | None:
    """The devices of one usable idle executor; else devices that no idle executor has.

    Devices that other idle executors have too are last, because those executors would have to end.
    """
    request = queue.request
    idle = Counter(id for key, executors in node.idle.items() for id in key.gpu_ids * len(executors))
    beside: Granted | None = None
    for ids in _usable(node, queue, request.gpu // UNIT):
        found = _among(request, free, ids)
        if found is not None and all(idle[id] == 1 for id in ids):
            return found
        beside = beside or found
    everything = set(range(len(free.gpu_units)))
    clean, best = (_among(request, free, ids) for ids in (everything.difference(idle), everything))
    if clean is None or best is None:
        return beside
    return None if _weight(inventory, best) > _weight(inventory, clean) else clean


def _usable(node: Node, queue: Queue, count: int) -> list[set[int]]:
    """The device sets of this size of the idle executors that can serve the queue."""
    wanted = (queue.environment, queue.threads, count)
    fitting = [key for key in node.idle if (key.environment, key.threads, len(key.gpu_ids)) == wanted]
    return [set(key.gpu_ids) for key in fitting if not key.gang]


def _weight(inventory: Inventory, granted: Granted) -> int:
    """How well these devices are linked: the sum of the weights of all pairs."""
    return sum(inventory.weights[one][other] for one, _, _ in granted for other, _, _ in granted)


def _among(request: Request, free: Pool, gpu_ids: set[int]) -> Granted | None:
    assert free.inventory is not None
    units = [left if id in gpu_ids else -1 for id, left in enumerate(free.gpu_units)]
    return ledger.choose(free.inventory, units, free.gpu_memory, request.gpu, request.gpu_memory, request.types)


def in_the_way(node: Node, key: Key, grant: Grant, idle: dict[int, Executor] | None) -> list[Executor]:
    """Executors with a device of this key that must end first: they are idle, or end already.

    The next idle executor with the same key need not end. If there is one, no executor has to end for a share of a
    device: it was used beside the others before.
    """
    if not key.gpu_ids or (idle and grant.gpus[0][1] < UNIT):
        return []
    wanted = set(key.gpu_ids)
    next_one = next(reversed(idle.values())) if idle else None
    return [
        executor
        for executor in node.executors()
        if executor is not next_one
        and wanted.intersection(executor.key.gpu_ids)
        and (executor.grant is None or (executor.state == STOPPING and executor.actor is None))
    ]


def still_awaited(state: State, queue: Queue) -> list[list[Executor]]:
    """The executors that must end for a queue: one list for each call. For these calls no others are ended."""
    queue.awaited = [some for some in queue.awaited if any(one.id in state.executors for one in some)]
    return queue.awaited


def take_rest(executor: Executor, free: Pool) -> Grant:
    """Take the free parts of an ending executor's devices, besides its grant: no other may use them yet."""
    taken = {id: (units, memory) for id, units, memory in (executor.grant.gpus if executor.grant else ())}
    for id in executor.key.gpu_ids:
        units, memory = taken.get(id, (0, 0))
        taken[id] = units + free.gpu_units[id], memory + free.gpu_memory[id]
        free.gpu_units[id] = free.gpu_memory[id] = 0
    return Grant(0, 0, (), tuple((id, *parts) for id, parts in taken.items()))


def are_shared(source: Source) -> bool:
    """Whether any executor has a share of a device of this source."""
    return any(units < UNIT for one in granted(source) if one.grant for _, units, _ in one.grant.gpus)


def held_by_actors(source: Source) -> list[tuple[int, int, int]]:
    """The devices of actors in a node or bundle: they do not become free by waiting."""
    return [entry for one in granted(source) if one.grant and one.actor is not None for entry in one.grant.gpus]


def homes(node: Node) -> list[int]:
    """The home of each device of a node: the rank that preferably runs calls with it; -1: no rank can.

    The home is the rank with most of the CPUs near the device. Each rank gets an equal number of devices. If no CPUs
    are known, each rank gets a block of consecutive devices.
    """
    inventory = node.inventory
    count = len(inventory.devices)
    if len(inventory.homes) == count:
        return inventory.homes
    ranks = sorted((rank for rank in node.ranks if rank.hosts_executors), key=lambda rank: rank.number)
    found = inventory.homes = [-1] * count
    near = [[len({*rank.cpus}.intersection(device.cpus)) for rank in ranks] for device in inventory.devices]
    least, rest = divmod(count, len(ranks))
    owned = [0] * len(ranks)
    for is_first in (True, False):  # the remainder is dealt out when each rank has its part
        for id in [id for id in range(count) if found[id] < 0]:
            has_rest = not is_first and sum(number > least for number in owned) < rest
            able = [place for place, rank in enumerate(ranks) if inventory.is_seen_by(id, rank.number)]
            if is_first:
                best = max((near[id][place] for place in able), default=0)
                able = [place for place in able if near[id][place] == best and owned[place] < least]
            if able:
                block = id * len(ranks) // count
                place = min(able, key=lambda one: (owned[one] >= least + has_rest, -near[id][one], abs(one - block)))
                owned[place] += 1
                found[id] = ranks[place].number
    return found


def nearest(node: Node, gpu_ids: Sequence[int]) -> dict[int, int]:
    """The number of these GPUs with each rank as their home."""
    return Counter(homes(node)[id] for id in gpu_ids)


def ranks_for(node: Node, gpu_ids: Sequence[int]) -> list[Rank]:
    """The ranks of a node that can run an executor with these GPUs."""
    able = node.inventory.ranks_of(gpu_ids)
    return [rank for rank in node.ranks if rank.hosts_executors and (able is None or rank.number in able)]


def is_out(source: Source, gpu_ids: Sequence[int]) -> bool:
    """Whether any of these GPUs is quarantined."""
    inventory = source.total.inventory
    return inventory is not None and any(id in inventory.out for id in gpu_ids)


def clear(node: Node, gpu_ids: Sequence[int]) -> None:
    """Clear GPUs of suspicion: a process that used them has ended a call."""
    for id in gpu_ids:
        node.inventory.suspects.pop(id, None)


def in_use(pool: Pool, amounts: Sequence[int]) -> int:
    """The sum of these amounts over the devices of a pool that are not quarantined."""
    out = pool.inventory.out if pool.inventory is not None else {}
    return sum(amount for id, amount in enumerate(amounts) if id not in out) if out else sum(amounts)


def types_out(pool: Pool) -> dict[str, int]:
    """The quarantined devices of each type, in units, by the name of the resource."""
    inventory, found = pool.inventory, dict[str, int]()
    if inventory is not None:
        for name in [TYPE + name for id in inventory.out for name in inventory.devices[id].types]:
            found[name] = found.get(name, 0) + UNIT
    return found


def uuids(node: Node, gpu_ids: Sequence[int]) -> list[str]:
    """The UUIDs of these GPUs."""
    return [node.inventory.devices[id].uuid for id in gpu_ids]


# What there is


def table(node: Node) -> list[GpuEntry]:
    """One entry for each GPU of a node: its properties, its free part, and its users."""
    users: dict[int, list[GpuUser]] = {}
    for executor in node.executors():
        for id, units, memory in executor.grant.gpus if executor.grant is not None else ():
            users.setdefault(id, []).append(_user(executor, units, memory))
    return [_entry(node, node.inventory, id, users.get(id, [])) for id in range(len(node.inventory.devices))]


def _entry(node: Node, inventory: Inventory, id: int, users: list[GpuUser]) -> GpuEntry:
    device = inventory.devices[id]
    is_out = id in inventory.out
    return GpuEntry(
        id=id,
        uuid=device.uuid,
        name=device.name,
        types=list(device.types),
        memory=device.memory,
        bus=device.bus,
        numa=device.numa,
        exclusive=device.is_exclusive,
        ranks=[rank.number for rank in node.ranks if rank.hosts_executors and inventory.is_seen_by(id, rank.number)],
        home=homes(node)[id] if node.hosts_executors else -1,
        linked=[other for other, weight in enumerate(inventory.weights[id]) if weight >= NVLINK],
        free=0.0 if is_out else node.free.gpu_units[id] / UNIT,
        memory_free=0 if is_out else node.free.gpu_memory[id],
        quarantined=inventory.out.get(id, ""),
        used_by=users,
    )


def _user(executor: Executor, units: int, memory: int) -> GpuUser:
    running = executor.running()
    name = running.function.spec.name if running is not None else ""
    if executor.actor is not None:
        name = executor.actor.creation.function.spec.name
    return GpuUser(name, executor.pid, float(amount(units)), memory)
