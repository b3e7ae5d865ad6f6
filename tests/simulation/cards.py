"""GPUs in simulations: what ranks say of them, what can be asked for, and a look from outside at who gets which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpi_runtime.gpu.device import DEVICE, NODE, PROGRAM, Device, Link
from tests.simulation.options import UNIT, Shape
from tests.simulation.require import require

if TYPE_CHECKING:
    from mpi_runtime.scheduler.protocol.events import Faulted
    from mpi_runtime.scheduler.protocol.rank_events import RankJoined
    from tests.simulation.executors import Executor
    from tests.simulation.hosts import Use
    from tests.simulation.steps import Function

MEMORY = {"A": 40 << 30, "B": 80 << 30}
"""Bytes of a GPU of each type."""
RESERVE = 1 << 29
"""Bytes of each that every process takes for its context."""
TYPE = "accelerator_type:"
Taken = tuple[int, int, int]
"""The id of a GPU, units, and bytes."""


def numbers(shape: Shape, index: int) -> list[int]:
    """The described GPUs that a rank of a host can use. One that runs nothing has none."""
    if index >= shape.cpus:
        return []
    every = range(len(shape.kinds))
    return [number for number in every if not shape.is_split or number % 3 == 0 or number % _users(shape) == index]


def _users(shape: Shape) -> int:
    return min(shape.ranks, shape.cpus)


def described(shape: Shape, host: int, index: int) -> tuple[list[Device], list[Link]]:
    """What a rank says of the GPUs that it can use. They are linked in pairs."""
    names = [f"GPU-{host}-{number}" for number in range(len(shape.kinds))]
    found = [
        Device(
            names[number],
            kind,
            (kind,),
            MEMORY[kind],
            reserve=RESERVE,
            bus=f"{number}",
            cpus=_near(shape, number) if shape.is_far else (),
            is_exclusive=number in shape.exclusive,
            instance=(number, 0) if number in shape.instances else (-1, -1),
        )
        for number in numbers(shape, index)
        for kind in shape.kinds[number : number + 1]
    ]
    return found, [Link(one, other, 2, 50) for one, other in zip(names[::2], names[1::2], strict=False)]


def _near(shape: Shape, number: int) -> tuple[int, ...]:
    """The processors that are near to a GPU: those of one rank, the last of which have the first GPUs."""
    users = _users(shape)
    return tuple(range(users - 1 - number * users // len(shape.kinds), shape.cpus, shape.ranks))


def reach(shape: Shape, kind: str = "") -> int:
    """How many GPUs of a host, of a type or of any, one call can have."""
    if not shape.kinds:
        return 0 if kind else shape.gpus
    return _most(shape, kind, shape.instances) or min(1, _most(shape, kind, ()))


def shareable(shape: Shape, kind: str = "") -> int:
    """Of how many GPUs that one rank can use there are shares."""
    return _most(shape, kind, shape.exclusive) if shape.kinds else reach(shape, kind)


def _most(shape: Shape, kind: str, without: tuple[int, ...]) -> int:
    """The most GPUs, of a type or of any, that one rank can use, without some."""
    usable = [set(numbers(shape, index)).difference(without) for index in range(shape.ranks)]
    return max(sum(kind in ("", shape.kinds[number]) for number in some) for some in usable)


def _with_context(asked: int, part: int) -> int:
    """What a process takes of a GPU that has asked for bytes, or has a part of it: in the latter its context is in."""
    return asked + RESERVE if asked else part + RESERVE * (part <= RESERVE)


class Cards:
    """The GPUs of one host."""

    def __init__(self) -> None:
        self.stated = 0
        self.usable: dict[int, dict[str, Device]] = {}
        """Those of each rank, by UUID."""
        self.devices: list[Device] = []
        """Those that are described; the place of each is its id."""
        self.out: set[str] = set()
        """Those that the head has said to be quarantined. Only for membership."""
        self.blamed: Counter[str] = Counter()
        """How many failures on each may be its own."""
        self.without_cuda = 0
        """How many processes have said that CUDA does not start."""
        self.failures: Counter[str] = Counter()
        """How many processes in a row have failed on each as soon as they used it, as no program can have caused it."""

    def join(self, event: RankJoined) -> None:
        """A rank has said what it can use."""
        self.stated += event.gpu // UNIT
        self.usable[event.rank] = {device.uuid: device for device in event.devices}
        self.devices = sorted({*self.devices, *event.devices}, key=lambda device: device.bus)

    def lose(self, rank: int) -> None:
        """A rank is gone: what only it could use nobody is given."""
        lost = self.usable.pop(rank, {})
        self.out.update(uuid for uuid in lost if not any(uuid in others for others in self.usable.values()))

    def heard(self, uuid: str, event: Faulted) -> None:
        """The head hears that a process can use a GPU no more."""
        self.failures[uuid] += event.is_fresh and event.blame == DEVICE
        self.blamed[uuid] += event.blame in (DEVICE, PROGRAM)
        self.without_cuda += event.blame == NODE

    def is_quarantined(self, uuid: str) -> None:
        """The head gives a GPU to nobody any more."""
        require(self.blamed[uuid] >= 2, f"{uuid} is quarantined, and others have used it up")
        self.out.add(uuid)

    def is_given_up(self) -> None:
        """The head gives no GPU of the host to anybody any more."""
        require(self.without_cuda > 0, "a host is given up, and CUDA has started there")
        self.out.update(device.uuid for device in self.devices)

    def draws_calls(self) -> bool:
        """Whether more processes have said that CUDA does not start than can have begun before the head knew it."""
        return self.without_cuda > 10 * len(self.devices)

    def count(self) -> int:
        """How many there are."""
        return self.stated + len(self.devices)

    def types(self) -> dict[str, int]:
        """What the host has of each type."""
        count = Counter(device.types[0] for device in self.devices)
        return {TYPE + kind: number * UNIT for kind, number in count.items()}

    def given(self, executor: Executor, function: Function) -> tuple[Taken, ...]:
        """What a call has that an executor starts: as many as it asks for, as they were asked for."""
        ids, name = executor.effect.gpu_ids, f"executor {executor.number}"
        require(len(set(ids)) == len(ids), f"{name} has a GPU twice")
        count = -(-function.gpu // UNIT) or int(function.gpu_memory > 0)
        require(len(ids) == count, f"{name} has {ids} for {function.gpu} units of GPU")
        units = min(function.gpu, UNIT)
        if units == UNIT:
            self._require_alone(executor)
        devices = self.devices
        if not devices:
            return tuple((id, units, 0) for id in ids)
        found = [devices[id] for id in ids]
        instances = [one.uuid for one in found if one.instance[0] >= 0]
        require(count < 2 or not instances, f"{name} has an instance of MIG and others")
        require(units == UNIT or not any(one.is_exclusive for one in found), f"{name} has a share of one process's GPU")
        require([one.uuid for one in found] == executor.effect.uuids, f"{name}: {ids} are {executor.effect.uuids}")
        types = [kind.removeprefix(TYPE) for kind, _ in function.custom if kind.startswith(TYPE)]
        for one in found:
            require(one.uuid in self.usable[executor.agent.rank], f"{name} is on a rank that cannot use {one.uuid}")
            require(all(kind in one.types for kind in types), f"{name} has {one.uuid}, and wants one of {types}")
            require(one.memory >= function.gpu_memory, f"{name} wants {function.gpu_memory} bytes of {one.uuid}")
        explored = executor.world.counters
        explored["GPUs of a type"] += bool(types) and count > 0
        explored["shares of described GPUs"] += 0 < units < UNIT
        explored["bytes of GPUs"] += function.gpu_memory > 0
        explored["several described GPUs"] += count > 1
        explored["instances of MIG"] += bool(instances)
        explored["exclusive GPUs"] += any(one.is_exclusive for one in found)
        some_cannot = any(one.uuid not in usable for one in found for usable in self.usable.values() if usable)
        explored["GPUs that not all ranks can use"] += some_cannot
        share = {id: _with_context(function.gpu_memory, devices[id].memory * units // UNIT) for id in ids}
        return tuple((id, units, devices[id].memory if units == UNIT else share[id]) for id in ids)

    def _require_alone(self, executor: Executor) -> None:
        """Who has whole GPUs finds no other process on them, not even one that idles: it would hold memory of them."""
        for agent in executor.agent.agents.values():
            for other in agent.executors.values() if agent.host == executor.agent.host else ():
                both = set(other.effect.gpu_ids).intersection(executor.effect.gpu_ids)
                is_other = other is not executor and other.alive and both
                require(not is_other, f"executor {executor.number} has GPU {both} of executor {other.number}")

    def could(self, function: Function) -> bool:
        """Whether a rank could give a call its GPUs if nothing else ran."""
        if not function.gpu and not function.gpu_memory:
            return True
        types = [kind.removeprefix(TYPE) for kind, _ in function.custom if kind.startswith(TYPE)]
        count = max(1, function.gpu // UNIT)
        for usable in self.usable.values() if self.devices else ():
            fitting = [
                one
                for uuid, one in usable.items()
                if uuid not in self.out
                and one.memory >= function.gpu_memory + RESERVE * (function.gpu_memory > 0 and function.gpu < UNIT)
                and all(kind in one.types for kind in types)
                and not (one.is_exclusive and function.gpu < UNIT)
                and not (one.instance[0] >= 0 and count > 1)
            ]
            if len(fitting) >= count:
                return True
        return self.stated >= count and not types and not function.gpu_memory  # nothing is known of these

    def oversold(self, uses: Iterable[Use]) -> str:
        """Of which GPU more is used than there is, in units or bytes."""
        units: Counter[int] = Counter()
        memory: Counter[int] = Counter()
        for use in uses:
            for id, part, own in use.devices:
                units[id] += part
                memory[id] += own
        sizes = [device.memory for device in self.devices] or [0] * self.stated if units else []
        for id, used in units.items():
            if id >= len(sizes) or used > UNIT or memory[id] > sizes[id]:
                return f"{used} units and {memory[id]} bytes of GPU {id} in use"
        return ""
