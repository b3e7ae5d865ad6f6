"""Requests and grants: arithmetic on amounts, no policy.

A request for whole GPUs gets whole devices, a request for a share gets a share of one device: half of two devices never
serves a request for one. Which devices those are is decided in `gpu/ledger.py`.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from mpi_runtime.gpu import ledger
from mpi_runtime.gpu.device import Device
from mpi_runtime.gpu.ledger import Granted, Inventory
from mpi_runtime.scheduler.events import BundleSpec, Spec
from mpi_runtime.scheduler.limits import UNIT

ANY_MEMORY = 1 << 62
"""Bytes of a device that is not known yet: as many as anybody asks for."""
TYPE = "accelerator_type:"
"""What a node has of `accelerator_type:X` are its devices of type X: who asks for some of it is given no others."""


class Request(Struct, frozen=True, gc=False):
    """What one call needs of one node. Hashable: calls are queued by it."""

    cpu: int
    gpu: int
    memory: int
    custom: tuple[tuple[str, int], ...] = ()
    gpu_memory: int = 0
    """Bytes of each device; without `gpu` it needs one device, and no units of it."""

    @property
    def needs_device(self) -> bool:
        """Whether it needs any device."""
        return bool(self.gpu or self.gpu_memory)

    @property
    def types(self) -> tuple[str, ...]:
        """What each of its devices must be called."""
        return tuple(name[len(TYPE) :] for name, _ in self.custom if name.startswith(TYPE))

    def __str__(self) -> str:
        parts = [f"{amount(self.cpu)} CPU"] if self.cpu else []
        kind = f" of type {' and '.join(self.types)}" if self.types and self.needs_device else ""
        parts += [f"{amount(self.gpu)} GPU{kind}"] if self.gpu else []
        where = "" if self.gpu else kind and f" on a GPU{kind}"
        parts += [f"{self.gpu_memory} bytes of GPU memory{where}"] if self.gpu_memory else []
        parts += [f"{self.memory} bytes of memory"] if self.memory else []
        custom = [(name, units) for name, units in self.custom if not (kind and name.startswith(TYPE))]
        parts += [f"{amount(units)} of {name!r}" for name, units in custom]
        return ", ".join(parts) or "nothing"


class Grant(Struct, gc=False):
    """What an executor has been given of its node or bundle, or a bundle of its node."""

    cpu: int
    memory: int
    custom: tuple[tuple[str, int], ...]
    devices: Granted
    """(device id, units, bytes) for each GPU or share of one."""


class Pool(Struct, gc=False):
    """What a node or a bundle owns, or what is free of it. CPU may fall below zero when blocked calls wake."""

    cpu: int
    memory: int
    custom: dict[str, int]
    devices: list[int]
    """Units for each GPU; the index is its device id."""
    device_memory: list[int] = []
    """Bytes of each; empty where nothing is known of them."""
    inventory: Inventory | None = None
    """What they are; shared by all pools of a node. None: nothing is known of them."""


def amount(units: int) -> str:
    """Units as people write them."""
    return f"{units / UNIT:g}"


def request_of(spec: Spec | BundleSpec) -> Request:
    """The request of a spec's calls, or of a bundle."""
    gpu_memory = spec.gpu_memory if isinstance(spec, Spec) else 0
    return Request(spec.cpu, spec.gpu, spec.memory, tuple(sorted(spec.custom.items())), gpu_memory)


def copy_of(pool: Pool) -> Pool:
    """The same amounts, to be changed."""
    return Pool(pool.cpu, pool.memory, dict(pool.custom), list(pool.devices), list(pool.device_memory), pool.inventory)


def pool_of(grant: Grant, total: Pool) -> Pool:
    """What a bundle owns that was granted this by a node which owns that: devices keep their ids."""
    units = [0] * len(total.devices)
    memory = [0] * len(total.device_memory)
    for device, part, own in grant.devices:
        units[device] = part
        if memory:
            memory[device] = own
    return Pool(grant.cpu, grant.memory, dict(grant.custom), units, memory, total.inventory)


def pool_for(request: Request) -> Pool:
    """What a bundle would own that asks for this, on devices with ids from 0 on."""
    whole, share = divmod(request.gpu, UNIT)
    units = [UNIT] * whole + [share] * bool(share)
    inventory = Inventory()
    inventory.add([Device(f"{id:04}", "", request.types, ANY_MEMORY) for id in range(len(units))], (), None)
    return Pool(request.cpu, request.memory, dict(request.custom), units, [ANY_MEMORY] * len(units), inventory)


def without_devices(first: Request, second: Request) -> Request:
    """What two requests need together besides GPUs."""
    custom = dict(first.custom)
    for name, units in second.custom:
        custom[name] = custom.get(name, 0) + units
    return Request(first.cpu + second.cpu, 0, first.memory + second.memory, tuple(sorted(custom.items())))


def fits(request: Request, pool: Pool) -> bool:
    """Whether the pool can serve the request."""
    if request.cpu > pool.cpu and request.cpu:
        return False
    if request.memory > pool.memory:
        return False
    if request.needs_device and choose_devices(request, pool) is None:
        return False
    return all(units <= pool.custom.get(name, 0) for name, units in request.custom)


def choose_devices(request: Request, pool: Pool) -> Granted | None:
    """Devices for a request: whole free ones that are linked best, or the fullest one that still has the share."""
    inventory = pool.inventory or unknown(len(pool.devices))
    memory = pool.device_memory or [0] * len(pool.devices)
    return ledger.choose(inventory, pool.devices, memory, request.gpu, request.gpu_memory, request.types)


@cache
def unknown(count: int) -> Inventory:
    """So many devices of which nothing is known."""
    inventory = Inventory()
    inventory.add([Device(f"{id:04}") for id in range(count)], (), None)
    return inventory


def take(request: Request, free: Pool) -> Grant:
    """Take what fits from the pool."""
    devices = choose_devices(request, free) if request.needs_device else ()
    assert devices is not None, "take() without fits()"
    return take_devices(request, free, devices)


def take_devices(request: Request, free: Pool, devices: Granted) -> Grant:
    """Take what fits from the pool, with these devices."""
    free.cpu -= request.cpu
    free.memory -= request.memory
    for name, units in request.custom:
        free.custom[name] -= units
    for device, units, memory in devices:
        free.devices[device] -= units
        if memory:
            free.device_memory[device] -= memory
    return Grant(request.cpu, request.memory, request.custom, devices)


def give_back(grant: Grant, free: Pool) -> None:
    """Return a grant to the pool."""
    free.cpu += grant.cpu
    free.memory += grant.memory
    for name, units in grant.custom:
        free.custom[name] += units
    for device, units, memory in grant.devices:
        free.devices[device] += units
        if memory:
            free.device_memory[device] += memory
