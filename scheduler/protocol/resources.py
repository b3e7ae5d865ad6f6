"""What nodes have, what is free and what is held: arithmetic on amounts, no policy.

A request for whole GPUs gets whole devices. A request for a share gets a share of one device: halves of two devices
never serve a request for one. `gpu/ledger.py` chooses the devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec import Struct

from mpi_runtime.gpu import ledger
from mpi_runtime.gpu.device import Device
from mpi_runtime.gpu.ledger import Granted, Inventory
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.limits import UNIT

ANY_MEMORY = 1 << 62
"""Bytes of a device with unknown memory: enough for every request."""


class Grant(Struct, gc=False):
    """The resources that an executor holds of its node or bundle, or a bundle of its node."""

    cpu: int
    memory: int
    custom: tuple[tuple[str, int], ...]
    gpus: Granted
    """(id, units, bytes) for each GPU or share of one."""


class Pool(Struct, gc=False):
    """The resources of a node or a bundle, or the free part of them.

    CPU may fall below zero when blocked calls continue.
    """

    cpu: int
    memory: int
    custom: dict[str, int]
    gpu_units: list[int]
    """Units of each GPU; the index is its id."""
    gpu_memory: list[int] = []
    """Bytes of each GPU; empty if not known."""
    inventory: Inventory | None = None
    """Facts about the GPUs, shared by all pools of a node; None: not known."""


def copy_of(pool: Pool) -> Pool:
    """A copy that can be changed."""
    return Pool(pool.cpu, pool.memory, dict(pool.custom), list(pool.gpu_units), list(pool.gpu_memory), pool.inventory)


def pool_of(grant: Grant, total: Pool) -> Pool:
    """The pool of a bundle with this grant of its node. Devices keep their ids."""
    units = [0] * len(total.gpu_units)
    memory = [0] * len(total.gpu_memory)
    for id, part, own in grant.gpus:
        units[id] = part
        if memory:
            memory[id] = own
    return Pool(grant.cpu, grant.memory, dict(grant.custom), units, memory, total.inventory)


def pool_for(request: Request) -> Pool:
    """The pool of a bundle with this request, on devices with ids from 0 on."""
    whole, share = divmod(request.gpu, UNIT)
    units = [UNIT] * whole + [share] * bool(share)
    inventory = Inventory()
    inventory.add([Device(f"{id:04}", "", request.types, ANY_MEMORY) for id in range(len(units))], (), None)
    return Pool(request.cpu, request.memory, dict(request.custom), units, [ANY_MEMORY] * len(units), inventory)


def without_gpus(first: Request, second: Request) -> Request:
    """The sum of two requests, without GPUs."""
    custom = dict(first.custom)
    for name, units in second.custom:
        custom[name] = custom.get(name, 0) + units
    return Request(first.cpu + second.cpu, 0, first.memory + second.memory, tuple(sorted(custom.items())))


def times(request: Request, count: int) -> Request:
    """This many equal requests as one."""
    custom = tuple((name, units * count) for name, units in request.custom)
    cpu, gpu, memory = request.cpu * count, request.gpu * count, request.memory * count
    return Request(cpu, gpu, memory, custom, request.gpu_memory)


def fits(request: Request, pool: Pool) -> bool:
    """Whether the pool can serve the request."""
    if request.cpu > pool.cpu and request.cpu:
        return False
    if request.memory > pool.memory:
        return False
    if request.needs_gpu and not has_gpus(request, pool):
        return False
    return all(units <= pool.custom.get(name, 0) for name, units in request.custom)


def room(request: Request, pool: Pool, most: int) -> int:
    """How often a pool can serve a request, up to `most`."""
    asked = [(pool.cpu, request.cpu), (pool.memory, request.memory)]
    asked += [(pool.custom.get(name, 0), units) for name, units in request.custom]
    most = max(0, min([most, *(there // units for there, units in asked if units)]))
    if not most or not request.needs_gpu:
        return most
    if request.gpu == UNIT:
        return min(most, len(_single(request, pool)))
    left, count = copy_of(pool), 0
    while count < most and (gpus := choose_gpus(request, left)) is not None:
        subtract_gpus(gpus, left)
        count += 1
    return count


def has_gpus(request: Request, pool: Pool) -> bool:
    """Whether there are GPUs for a request, of which they need not be chosen yet."""
    return bool(_single(request, pool)) if request.gpu == UNIT else choose_gpus(request, pool) is not None


def _single(request: Request, pool: Pool) -> tuple[int, ...]:
    """The devices that can serve a request for one whole GPU."""
    inventory, memory = devices_of(pool)
    return ledger.whole(inventory, pool.gpu_units, memory, 1, request.gpu_memory, request.types)


def choose_gpus(request: Request, pool: Pool) -> Granted | None:
    """GPUs for a request: whole free ones with the best links, or the fullest one that still has the share."""
    inventory, memory = devices_of(pool)
    return ledger.choose(inventory, pool.gpu_units, memory, request.gpu, request.gpu_memory, request.types)


def devices_of(pool: Pool) -> tuple[Inventory, list[int]]:
    """The GPUs of a pool, and their free bytes."""
    count = len(pool.gpu_units)
    return pool.inventory or unknown(count), pool.gpu_memory or [0] * count


@cache
def unknown(count: int) -> Inventory:
    """This many devices of which nothing is known."""
    inventory = Inventory()
    inventory.add([Device(f"{id:04}") for id in range(count)], (), None)
    return inventory


def take(request: Request, free: Pool) -> Grant:
    """Take a request that fits from the pool."""
    gpus = choose_gpus(request, free) if request.needs_gpu else ()
    assert gpus is not None, "take() without fits()"
    return take_gpus(request, free, gpus)


def take_gpus(request: Request, free: Pool, gpus: Granted) -> Grant:
    """Take a request that fits from the pool, with these GPUs."""
    grant = Grant(request.cpu, request.memory, request.custom, gpus)
    subtract(grant, free)
    return grant


def subtract(grant: Grant, pool: Pool) -> None:
    """Take a grant from the pool."""
    pool.cpu -= grant.cpu
    pool.memory -= grant.memory
    for name, units in grant.custom:
        pool.custom[name] -= units
    subtract_gpus(grant.gpus, pool)


def subtract_gpus(gpus: Iterable[tuple[int, int, int]], pool: Pool) -> None:
    """Take these GPUs from the pool."""
    for id, units, memory in gpus:
        pool.gpu_units[id] -= units
        if memory:
            pool.gpu_memory[id] -= memory


def give_back(grant: Grant, free: Pool) -> None:
    """Return a grant to the pool."""
    free.cpu += grant.cpu
    free.memory += grant.memory
    for name, units in grant.custom:
        free.custom[name] += units
    for id, units, memory in grant.gpus:
        free.gpu_units[id] += units
        if memory:
            free.gpu_memory[id] += memory
