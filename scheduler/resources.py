"""Requests and grants: arithmetic on amounts, no policy.

A request for whole GPUs gets whole devices, a request for a share gets a share of one device: half of two devices never
serves a request for one.
"""

from msgspec import Struct

from mpi_runtime.scheduler.events import BundleSpec, Spec
from mpi_runtime.scheduler.limits import UNIT


class Request(Struct, frozen=True, gc=False):
    """What one call needs of one node. Hashable: calls are queued by it."""

    cpu: int
    gpu: int
    memory: int
    custom: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        parts = [f"{amount(self.cpu)} CPU"] if self.cpu else []
        parts += [f"{amount(self.gpu)} GPU"] if self.gpu else []
        parts += [f"{self.memory} bytes of memory"] if self.memory else []
        parts += [f"{amount(units)} of {name!r}" for name, units in self.custom]
        return ", ".join(parts) or "nothing"


class Grant(Struct, gc=False):
    """What an executor has been given of its node or bundle, or a bundle of its node."""

    cpu: int
    memory: int
    custom: tuple[tuple[str, int], ...]
    devices: tuple[tuple[int, int], ...]
    """(device id, units) for each GPU or share of one."""


class Pool(Struct, gc=False):
    """What a node or a bundle owns, or what is free of it. CPU may fall below zero when blocked calls wake."""

    cpu: int
    memory: int
    custom: dict[str, int]
    devices: list[int]
    """Units for each GPU; the index is its device id."""


def amount(units: int) -> str:
    """Units as people write them."""
    return f"{units / UNIT:g}"


def request_of(spec: Spec | BundleSpec) -> Request:
    """The request of a spec's calls, or of a bundle."""
    return Request(spec.cpu, spec.gpu, spec.memory, tuple(sorted(spec.custom.items())))


def copy_of(pool: Pool) -> Pool:
    """The same amounts, to be changed."""
    return Pool(pool.cpu, pool.memory, dict(pool.custom), list(pool.devices))


def pool_of(grant: Grant, devices: int) -> Pool:
    """What a bundle owns that was granted this by a node with so many devices: they keep their ids."""
    units = [0] * devices
    for device, part in grant.devices:
        units[device] = part
    return Pool(grant.cpu, grant.memory, dict(grant.custom), units)


def pool_for(request: Request) -> Pool:
    """What a bundle would own that asks for this, on devices with ids from 0 on."""
    whole, share = divmod(request.gpu, UNIT)
    return Pool(request.cpu, request.memory, dict(request.custom), [UNIT] * whole + [share] * bool(share))


def fits(request: Request, pool: Pool) -> bool:
    """Whether the pool can serve the request."""
    if request.cpu > pool.cpu and request.cpu:
        return False
    if request.memory > pool.memory:
        return False
    if request.gpu and choose_devices(request.gpu, pool.devices) is None:
        return False
    return all(units <= pool.custom.get(name, 0) for name, units in request.custom)


def choose_devices(units: int, free: list[int]) -> tuple[tuple[int, int], ...] | None:
    """Devices for a request of GPU units: whole free ones in order, or the fullest one that still has the share."""
    if units >= UNIT:
        whole = [(device, UNIT) for device, left in enumerate(free) if left == UNIT]
        count = units // UNIT
        return tuple(whole[:count]) if len(whole) >= count else None
    shares = [(left, device) for device, left in enumerate(free) if left >= units]
    return ((min(shares)[1], units),) if shares else None


def take(request: Request, free: Pool) -> Grant:
    """Take what fits from the pool."""
    devices = choose_devices(request.gpu, free.devices) if request.gpu else ()
    assert devices is not None, "take() without fits()"
    free.cpu -= request.cpu
    free.memory -= request.memory
    for name, units in request.custom:
        free.custom[name] -= units
    for device, units in devices:
        free.devices[device] -= units
    return Grant(request.cpu, request.memory, request.custom, devices)


def give_back(grant: Grant, free: Pool) -> None:
    """Return a grant to the pool."""
    free.cpu += grant.cpu
    free.memory += grant.memory
    for name, units in grant.custom:
        free.custom[name] += units
    for device, units in grant.devices:
        free.devices[device] += units
