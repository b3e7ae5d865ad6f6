"""The start of a rank process, its report to the head, and its end. Head and workers share this."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.agent.agent import NodeAgent
from mpi_runtime.core.agent.forkserver import Forkservers
from mpi_runtime.core.agent.gpus import PART_OF_START, Finder, Gpus
from mpi_runtime.core.agent.memory import MemoryWatch
from mpi_runtime.core.executor.fork_messages import Setup
from mpi_runtime.core.executor.scratch import directory_of
from mpi_runtime.core.host import launchers, machine
from mpi_runtime.core.host.launch import INSIDE, Launch, is_of_other_family, singleton_message
from mpi_runtime.core.host.memory_usage import Memory
from mpi_runtime.core.host.spawn import AS_RAY
from mpi_runtime.core.objects import arena
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport.base import Transport, TransportError
from mpi_runtime.core.transport.messages import Job, WorkerToHead
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.amounts import gib
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.rank_events import RankJoined


def join(launch: Launch, beside_user_mpi: bool = False) -> Transport:
    """Meet the other ranks. Collective over all.

    Raises:
        TransportError: MPI cannot be loaded or started as needed, or it does not know the other ranks.
    """
    if launch.size == 1:
        from mpi_runtime.core.transport.alone import Alone  # not at the top: jobs with several ranks do not need it

        return Alone()
    from mpi_runtime.core.transport import mpi

    cure = singleton_message(launch)
    if is_of_other_family(launch, mpi.library_version()):
        raise TransportError(singleton_message(launch, None) if launch.kind == "slurm-pmix" else cure)
    with contextlib.nullcontext() if beside_user_mpi else launchers.quick_mpi():
        return mpi.MpiTransport(
            expected_size=launch.size or None, cure=cure, beside_user_mpi=beside_user_mpi,
            fault_tolerant=launchers.is_fault_tolerant(),
        )  # fmt: skip


def library(launch: Launch) -> str:
    """Return the name and version of the MPI library of the ranks."""
    if launch.size == 1:
        return "without MPI"
    from mpi_runtime.core.transport import mpi

    first_line = mpi.library_version().splitlines()[0].split(",")[0]
    name = " ".join(first_line.replace("Version:", "").split())
    if launchers.is_fault_tolerant():
        return f"{name} with ULFM, so the job survives the loss of worker ranks, and MPI does not use UCX"
    return name


class Host:
    """The ranks of one host in one job, and their arena.

    Each job has a new arena: the driver may still read arrays in the last one. Its memory lives as long as they do.
    """

    def __init__(self, transport: Transport, job: Job) -> None:
        """Share an arena with the other ranks of the host, without the lost ranks of `job`.

        Raises:
            TransportError: the system refuses the memory, or it cannot be shared.
        """
        mine = transport.hosts[transport.rank]
        self.ranks = [rank for rank, host in enumerate(transport.hosts) if host == mine and rank not in job.lost]
        self.working = [rank for rank in self.ranks if rank] or self.ranks
        """The ranks that run calls. Rank 0, which schedules, does so only if it is alone on its host."""
        self.regions = {rank: index for index, rank in enumerate(self.ranks)}
        self._transport, self._key, self._lost_seen = transport, job.token.encode(), len(job.lost)
        capacity = job.config.object_store_memory or arena.default_capacity(machine.memory_limit())
        shared = None
        if transport.rank != self.ranks[0]:
            shared = transport.share_descriptor(None, self._key)
        if shared is None:
            shared = transport.share_descriptor(_new_arena(capacity, len(self.ranks)), self._key)
        assert shared is not None
        self.arena = shared

    def heed_losses(self) -> None:
        """Share the arena once more if all lower ranks of this host have died: they may not have done so for all."""
        transport = self._transport
        if len(transport.lost) == self._lost_seen:
            return
        self._lost_seen = len(transport.lost)
        lower = self.ranks[: self.ranks.index(transport.rank)]
        if lower and all(rank in transport.lost for rank in lower):
            transport.share_again(self.arena, self._key)


def _new_arena(capacity: int, ranks: int) -> int:
    try:
        return arena.create(capacity, ranks)
    except OSError as error:
        raise TransportError(
            f"The system refuses the file in shared memory for values, of {gib(arena.Layout(capacity, ranks).size)} "
            f"({arena.SPREAD} times object_store_memory for each rank of the host, most of it empty): "
            f"{machine.shortage(error)}. Raise the limit, or ask for less with init(object_store_memory=...)."
        ) from error


class Rank:
    """A rank in one job: its host, its agent with what that asks of it, and its report to the head (`joined`)."""

    def __init__(
        self,
        transport: Transport,
        poller: Poller,
        report: Callable[[WorkerToHead], None],
        job: Job,
        launcher: str,
        forkservers: Forkservers,
        finder: Finder | None = None,
    ) -> None:
        """Join a job. `launcher`: its kind. `finder`: of GPUs, if it was started early.

        Raises:
            TransportError: see `Host`.
        """
        self.job = job
        self.config = config = job.config
        self.host = host = Host(transport, job)
        self.transport, self.poller, self.forkservers = transport, poller, forkservers
        self.report, self.now_s = report, time.monotonic
        me = transport.rank
        self._is_working = me in host.working
        self._launcher = launcher
        self.arena = AgentArena(host.arena, host.regions[me])
        scratch = directory_of(configuration.scratch_directory(), job.token, transport.hostnames[me])
        self.setup = Setup(me, transport.hostnames[me], host.regions, job, scratch)
        self.expects_calls = me == host.working[0]  # the first call of this host will run here
        self.memory: MemoryWatch | None = None
        self._finder = finder
        if self._is_working:
            self._finder = finder or Finder(forkservers.path)
            memory = Memory(config.memory_limit or 0, is_alone=launcher != INSIDE)
            self.memory = MemoryWatch(me, memory, config.memory_usage_threshold, time.monotonic, report)
        self.agent = NodeAgent(self)
        self.joined = self._joined(transport, self.arena.layout.capacity, self.agent.gpus)

    def find_gpus(self) -> Gpus:
        """Return the GPUs of the rank. May wait for a helper process."""
        launchers.take_own_gpus(self._launcher)
        timeout_s = self.config.start_timeout_s * PART_OF_START
        return Gpus(self._finder, timeout_s, self.config.num_gpus, self._launcher)

    def spill_directory(self) -> str:
        """Return the directory for values that leave a full arena; empty: nothing is spilled."""
        stated = self.config.object_spilling_directory is not None
        for one in configuration.spill_directories(self.config):
            if stated or (os.path.isdir(one) and not machine.is_in_memory(one)):
                return one
        return ""

    def _joined(self, transport: Transport, capacity: int, gpus: Gpus) -> RankJoined:
        """Return the resources of this rank. Each working rank reports those of the host: the head takes them once."""
        config, me = self.config, transport.rank
        works, address = self._is_working, machine.address_towards()
        cpus = machine.cpus_allowed() if works else []
        cpu = -1
        if config.num_cpus is not None:
            cpu = max(0, round(config.num_cpus * UNIT)) if works else 0
        elif len(cpus) > (counted := machine.cpu_count()):
            cpu = counted * UNIT  # a quota allows fewer than there are
        return RankJoined(
            rank=me,
            host=self.host.ranks[0],
            hostname=transport.hostnames[me],
            cpus=cpus,
            cpu=cpu,
            gpu=gpus.stated * UNIT if works else 0,
            memory=(config.memory or machine.memory_limit()) if works else 0,
            custom=self._custom_units(transport.hostnames[me], address) if works else {},
            arena=capacity,
            labels=configuration.labels(config) if works else {},
            wall_us=time.time_ns() // 1000 - now_us(),
            devices=gpus.report.devices,
            links=gpus.report.links,
            gpu_problems=gpus.report.problems,
            gpu_error=gpus.report.error,
            gpu_limit=gpus.limit if config.num_gpus else "",
            cpu_limit=_cpu_limit(self._launcher, me, len(cpus)) if cpus and cpu < 0 else "",
            address=address,
            spill_problem=self._spill_problem(),
            end_us=_end_us(config.requeue_before_s if config.requeue else config.drain_s) if me == 0 else 0,
        )

    def _spill_problem(self) -> str:
        if not self.config.object_spilling_directory or not self.expects_calls:
            return ""
        (directory,) = configuration.spill_directories(self.config)
        if not (problem := machine.unusable(directory)):
            return ""
        return f"values cannot leave its memory for a disk: object_spilling_directory {directory}: {problem}"

    def _custom_units(self, hostname: str, address: str) -> dict[str, int]:
        """Return the custom resources of the host. Calls that request some of the first one run here.

        Libraries made for Ray count nodes by the names of these resources, and look for addresses in them.
        """
        stated = {name: round(units * UNIT) for name, units in configuration.resources(self.config).items()}
        if AS_RAY not in self.job.preload:
            return {f"node:{hostname}": UNIT, **stated}
        of_head = {"node:__internal_head__": UNIT} if self.host.ranks[0] == 0 else {}
        return {f"node:{address}": UNIT, **of_head, **stated}


def _cpu_limit(launcher: str, rank: int, cpus: int) -> str:
    """Return why a rank may use fewer CPUs than its host has, and the cure, for messages; empty if it may use all."""
    have = os.cpu_count() or 1
    if launcher in ("none", INSIDE) or cpus >= have:
        return ""
    from mpi_runtime.slurm.diagnosis import unbound  # not at the top: few jobs need it

    return (
        f"rank {rank} is bound to {cpus} of {have} CPUs; if the launcher has bound it, start the job with "
        f"`mpi-runtime run`, or with: {unbound(launcher).replace(' ...', '')}"
    )


def once_for_each_host(ranks: Iterable[RankJoined]) -> Iterator[RankJoined]:
    """Leave out the resources of a host if an earlier rank has reported them. Any rank may have died before."""
    reported = set()
    for one in ranks:
        if one.host in reported:
            yield msgspec.structs.replace(one, cpu=min(one.cpu, 0), gpu=0, memory=0, custom={}, labels={})
            continue
        if one.custom:  # it is a working rank, which reports those of its host
            reported.add(one.host)
        yield one


def _end_us(spare_s: float) -> int:
    """Return when the job's time ends, less `spare_s`, in microseconds of the monotonic clock; 0: not known."""
    if not configuration.is_batch_job():
        return 0  # no batch job: the module need not be loaded
    from mpi_runtime.slurm.walltime import end_time_at_start

    end_s = end_time_at_start()
    return 0 if end_s is None else end_us(end_s, spare_s)


def end_us(end_s: float, spare_s: float) -> int:
    """Return an end in seconds since 1970, less `spare_s`, in microseconds of the monotonic clock."""
    from mpi_runtime.slurm.walltime import lead_s  # not at the top, as above

    return max(1, round((end_s - lead_s(spare_s, end_s)) * 1e6) - time.time_ns() // 1000 + now_us())


def raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors as far as the system allows. Each executor takes four."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def end_process(code: int) -> NoReturn:
    """End a rank process without the exit handlers of Python: a worker may have imported the user's program.

    With code 0 the exit handlers of C libraries run. In one of them MPICH reports to its launcher that this rank has
    ended well; otherwise the launcher would kill all other ranks of the host. After a failure they could hang, so they
    do not run.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the other end may be closed
            stream.flush()
    if not code:
        import ctypes

        ctypes.CDLL(None).exit(0)
    os._exit(code)


def now_us() -> int:
    """Return the monotonic time in microseconds."""
    return time.monotonic_ns() // 1000
