"""What calls ask for: the one record of it, from options to grants.

Amounts of CPU, GPU and custom resources are integers, UNIT to one, so shares add up exactly; memory is in bytes. What
nodes have is in `resources.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from mpi_runtime.scheduler.protocol.limits import UNIT

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
TYPE = "accelerator_type:"
"""A node has its devices of type X as `accelerator_type:X`. A request for some of it gets only such devices."""


class Request(Struct, array_like=True, frozen=True, gc=False):
    """The resources that one call needs of one node. Hashable, because calls are queued by it."""

    cpu: Number = 0
    gpu: Number = 0
    memory: Number = 0
    custom: tuple[tuple[str, Number], ...] = ()
    """Sorted by name, each name once: see `custom_of`."""
    gpu_memory: Number = 0
    """Bytes of each device. Without `gpu`: bytes of one device, and no units of it."""

    @property
    def needs_gpu(self) -> bool:
        """Whether it needs a GPU."""
        return bool(self.gpu or self.gpu_memory)

    @property
    def types(self) -> tuple[str, ...]:
        """The type that each of its devices must have."""
        return tuple(name[len(TYPE) :] for name, _ in self.custom if name.startswith(TYPE))

    def __str__(self) -> str:
        parts = [f"{amount(self.cpu)} CPU"] if self.cpu else []
        kind = f" of type {' and '.join(self.types)}" if self.types and self.needs_gpu else ""
        parts += [f"{amount(self.gpu)} GPU{kind}"] if self.gpu else []
        where = "" if self.gpu else kind and f" on a GPU{kind}"
        parts += [f"{gib(self.gpu_memory)} of GPU memory{where}"] if self.gpu_memory else []
        parts += [f"{gib(self.memory)} of memory"] if self.memory else []
        custom = [(name, units) for name, units in self.custom if not (kind and name.startswith(TYPE))]
        parts += [f"{amount(units)} of {name!r}" for name, units in custom]
        return ", ".join(parts) or "nothing"


def amount(units: int) -> str:
    """Units in the numbers that people use."""
    return f"{units / UNIT:g}"


def times(count: int) -> str:
    """Return how often something happened: once, 3 times."""
    return "once" if count == 1 else f"{count} times"


def gib(size: int) -> str:
    """Return a number of bytes with a binary unit, as people read it."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def custom_of(units: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Custom resources in the form of requests."""
    return tuple(sorted(units.items()))


def is_in_order(request: Request) -> bool:
    """Whether each custom resource of a request from elsewhere stands there once, and in order."""
    names = [name for name, _ in request.custom]
    return len(names) < 2 or all(first < second for first, second in pairwise(names))
