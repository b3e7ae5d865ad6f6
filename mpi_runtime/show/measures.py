"""What was measured on each host of a running job: the last numbers, and curves of the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from mpi_runtime.gpu.device import Measures as Gpu
from mpi_runtime.scheduler.protocol.entries import HostUse
from mpi_runtime.scheduler.protocol.window_questions import HostsUse, NodeLoad, StoreState

POINTS_MAX = 100
"""The points of a curve: five minutes, if ranks measure every three seconds."""
CURVES = ("CPU use", "memory in use", "object store", "GPU use", "GPU memory")


class Measured(msgspec.Struct):
    """A host of a job. Shares are parts of 1."""

    cpu: float = -1.0
    """The busy share of its processors; -1: not known yet."""
    memory_used: int = 0
    memory: int = 0
    """Bytes that the host, or a control group, has."""
    gpus: list[Gpu] = []
    curves: dict[str, deque[float]] = msgspec.field(
        default_factory=lambda: {name: deque[float](maxlen=POINTS_MAX) for name in CURVES}
    )
    period_s: float = 3.0
    """Seconds between the points."""

    @property
    def gpu_use(self) -> float:
        """The mean use of its GPUs; -1: not known."""
        known = [one.use for one in self.gpus if one.use >= 0]
        return sum(known) / len(known) / 100 if known else -1.0

    @property
    def gpu_memory(self) -> tuple[int, int]:
        """The bytes in use and all bytes of its GPUs."""
        known = [one for one in self.gpus if one.memory > 0]
        return sum(one.memory_used for one in known), sum(one.memory for one in known)

    def take(self, use: HostUse, stored: float, period_s: float) -> None:
        """Take an answer of the job, and the used share of the object store."""
        self.cpu, self.memory_used, self.memory = use.cpu, use.memory_used, use.memory
        self.gpus, self.period_s = use.gpus, period_s
        used, whole = self.gpu_memory
        values = (self.cpu, self.memory_used / (self.memory or 1), stored, self.gpu_use, used / whole if whole else -1)
        for name, value in zip(CURVES, values, strict=True):
            if value >= 0:
                self.curves[name].append(value)


def measured_of(
    found: HostsUse, kept: dict[str, Measured], nodes: Sequence[NodeLoad], store: StoreState | None
) -> dict[str, Measured]:
    """What was measured on each host, by its name. The curves of what was `kept` grow."""
    arenas = {one.name: one.arena for one in nodes}
    stored = {one.hostname: one.used for one in store.nodes} if store is not None else {}
    measured = {name: kept.get(name) or Measured() for name in found.nodes}
    for name, one in measured.items():
        one.take(found.nodes[name], stored.get(name, 0) / (arenas.get(name) or 1), found.period_s)
    return measured
