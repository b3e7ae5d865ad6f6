"""A rank for agents that are tested without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_runtime.config import Config
from mpi_runtime.core.agent.forkserver import Forkservers
from mpi_runtime.core.agent.gpus import Gpus
from mpi_runtime.core.agent.memory import MemoryWatch
from mpi_runtime.core.executor.fork_messages import Setup
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport.base import Transport
from mpi_runtime.core.transport.messages import Job, WorkerToHead
from mpi_runtime.core.transport.poller import Poller

SETUP = Setup(0, "host", {0: 0}, Job(Config(), b"", [], [], 64, [], ""), "/nonexistent/files of the job")


@dataclass
class FakeRank:
    """What an agent asks of its rank: see `core/agent/agent.py`."""

    transport: Transport
    poller: Poller
    report: Callable[[WorkerToHead], None]
    arena: AgentArena
    forkservers: Forkservers = field(default_factory=lambda: Forkservers([]))
    setup: Setup = SETUP
    memory: MemoryWatch | None = None
    expects_calls: bool = False

    def find_gpus(self) -> Gpus:
        """There are none."""
        return Gpus(None, 0.0, None, "")

    def spill_directory(self) -> str:
        """Nothing is spilled."""
        return ""

    def now_s(self) -> float:
        """Time stands still."""
        return 0.0
