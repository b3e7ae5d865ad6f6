"""The verb `doctor`: shows what each rank sees of its host and of the job, and problems of the launch with their cures.

It is started in place of the program, by the same launch command: `srun --mpi=pmix mpi-runtime doctor`. With several
hosts it also measures messages between them. The exit code is 1 if there is a problem. `--report` prints the facts for
a problem report instead, as one block of text.
"""

import argparse
import dataclasses
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from mpi_runtime import config
from mpi_runtime.batch.file.entries import unknown
from mpi_runtime.cli import gpus
from mpi_runtime.cli.own_places import own_places
from mpi_runtime.core.agent.gpus import Finder, Gpus
from mpi_runtime.core.host import launchers, machine
from mpi_runtime.core.host.launch import Launch, detect
from mpi_runtime.core.host.mpiexec import find_launcher
from mpi_runtime.core.host.open_mpi import broken_settings
from mpi_runtime.core.rank.joining import join
from mpi_runtime.core.transport import mpi
from mpi_runtime.core.transport.base import Transfer, Transport, TransportError
from mpi_runtime.gpu.device import Report
from mpi_runtime.show.command_line import add_json, print_json
from mpi_runtime.show.numbers import seconds
from mpi_runtime.slurm import jobs
from mpi_runtime.slurm.allocation import Allocation, from_environment
from mpi_runtime.slurm.commands import SlurmError, call
from mpi_runtime.slurm.diagnosis import Finding, Seen, apart, cannot_start, diagnose, expected_nodes, slow_network
from mpi_runtime.slurm.walltime import end_time

PINGS = 200
BULK_BYTES = 32 << 20
BULK_TAG = 1
LIMIT_S = 60.0
"""Seconds to wait for messages of other ranks."""
START_LIMIT_S = 120.0
"""Seconds to wait for other ranks at the start. They may read Python from a slow file system."""
BLAME_S = 3.0
"""Seconds that other ranks wait if all have the same problem: rank 0 prints it, and the end of a rank ends them all."""
LIMITS = {
    "descriptors": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "bytes of a file": resource.RLIMIT_FSIZE,
    "bytes of address space": resource.RLIMIT_AS,
    "bytes of locked memory": resource.RLIMIT_MEMLOCK,
}
"""Limits of a process that a problem report names."""
SETTINGS = ("MPI_RUNTIME_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPICH_", "MPIR_CVAR_", "UCX_", "FI_")
"""Prefixes of the variables that a problem report shows."""
_OF_DEVELOPERS = r"extra == .(dev|docs|as-ray|[a-z]+-tests)\b"


def doctor(words: Sequence[str]) -> int:
    """Examine the launch. Return 1 if there is a problem, else 0."""
    asked = doctor_parser().parse_args(words)
    launch = detect(config.environment())
    if asked.report:
        if not launch.rank:
            rows = problem_report(launch)
            print_json(rows) if asked.json else print(
                "\n".join(f"{f'{name}:':12} {text}" for name, text in rows.items())
            )
        return 0
    launchers.take_own_gpus(launch.kind)
    env = config.environment()
    own = from_environment(env)
    if launch.problem:
        return _refuse(not launch.rank, launch.problem)
    if finding := broken_settings(launchers.child_environment(env)):  # each rank looks: MPI_Init of one would end all
        return _refuse(not launch.rank, f"{finding.what}\n  fix: {finding.cure}")
    found = Gpus(Finder(sys.path), gpus.LIMIT_S, None, launch.kind).report
    if launch.size == 1:
        return _report(launch, [_look(0, own, found)], own, "no MPI is used", {}, asked.json)
    mine = _look(launch.rank or 0, own, found)
    ranks_here, number_here = _neighbours(env)
    finding = cannot_start(mine, ranks_here)
    if finding is None and (places := own_places(ranks_here)):
        finding = apart(mine.host, places)
    if finding is not None:
        return _refuse(number_here == 0, f"{finding.what}\n  fix: {finding.cure}")
    try:
        library = mpi.library_version().splitlines()[0].split(",")[0]
        with _at_most(START_LIMIT_S, "have not all met"):
            transport = join(launch)
    except TransportError as error:
        return _refuse(not launch.rank, str(error))
    mine = msgspec.structs.replace(mine, rank=transport.rank)
    if transport.rank:
        transport.send(0, msgspec.msgpack.encode(mine))
        _serve(transport)
        code = 0
    else:
        ranks = _collect(transport, mine)
        times = _measure(transport)
        code = _report(launch, ranks, own, library, times, asked.json)
        for rank in range(1, transport.size):
            transport.send(rank, b"done")  # last: ranks that end may keep all CPUs busy
    transport.close(clean=True)
    return code


def doctor_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime doctor`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime doctor",
        description="Start it in place of a program, with the same launch command. It shows what each rank sees, what "
        "is wrong with the launch, and how to fix it.",
    )
    parser.add_argument(
        "--report", action="store_true", help="print versions, MPI, limits and settings, to paste into a problem report"
    )
    add_json(parser)
    return parser


def _refuse(is_first: bool, problem: str) -> int:
    if is_first:
        print(f"wrong: {problem}", flush=True)
    else:
        time.sleep(BLAME_S)
    return 1


def _neighbours(env: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of ranks on this host and the number of this one, if the launcher sets them; else 1 and 0."""
    for size, number in (
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ):
        if env.get(size, "").isdecimal() and env.get(number, "").isdecimal():
            return int(env[size]), int(env[number])
    return 1, 0


def _look(rank: int, own: Allocation, found: Report) -> Seen:
    room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Seen(
        rank,
        os.uname().nodename,
        tuple(machine.cpus_allowed()),
        os.cpu_count() or 1,
        machine.memory_limit(),
        own.gpus,
        found.error,
        len(found.devices),
        room.f_frsize * room.f_blocks if room else None,
        None if descriptors == resource.RLIM_INFINITY else descriptors,
    )


# For a problem report.


def problem_report(launch: Launch) -> dict[str, str]:
    """Return the facts about this host and the launch, for a problem report."""
    from importlib import metadata  # here and below: it loads 44 modules

    env = config.environment()
    own = from_environment(env)
    required = [one for one in metadata.requires("mpi-runtime") or () if not re.search(_OF_DEVELOPERS, one)]
    names = sorted({re.split(r"[^\w-]", one)[0] for one in required})
    packages = [f"{name} {version}" for name in names if (version := _version_of(name))]
    settings = [name for name in sorted(env) if name.startswith(SETTINGS) and not launchers.is_launcher_variable(name)]
    found = Gpus(Finder(sys.path), gpus.LIMIT_S, None, launch.kind).report
    room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    system = os.uname()
    return {
        "mpi-runtime": _version_of("mpi-runtime") or "not installed",
        "Python": f"{sys.version.split()[0]} ({sys.executable})",
        "system": f"{system.sysname} {system.release} {system.machine}",
        "packages": ", ".join(packages),
        **_mpi(),
        "started by": f"{launch.kind}, ranks: {launch.size or 'unknown'} {launch.problem or ''}".strip(),
        "batch job": _job(own) if own.system else "none",
        "CPUs": f"{_ranges(machine.cpus_allowed())} of {os.cpu_count()}, counted as {machine.cpu_count()}",
        "memory": f"{machine.memory_limit() / 2**30:.1f} GiB",
        "/dev/shm": f"{room.f_frsize * room.f_blocks / 2**30:.1f} GiB" if room else "none",
        "limits": ", ".join(f"{name} {_limits(number)}" for name, number in LIMITS.items()),
        "GPUs": found.error or ", ".join(device.name for device in found.devices) or "none",
        "settings": " ".join(f"{name}={env[name]}" for name in settings) or "none",
    }


def _version_of(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _mpi() -> dict[str, str]:
    """Return the name of the MPI library, and the launcher that `mpi-runtime run` would use."""
    try:
        library = " ".join(mpi.library_version().splitlines()[0].split(",")[0].split())
    except TransportError as error:
        library = str(error.__cause__ or error)
    launcher = find_launcher()
    return {"MPI": library, "launcher": f"{launcher.version} ({launcher.path})" if launcher else "none"}


def _limits(number: int) -> str:
    soft, hard = ("unlimited" if one == resource.RLIM_INFINITY else str(one) for one in resource.getrlimit(number))
    return soft if soft == hard else f"{soft} (hard: {hard})"


# Between the ranks. Rank 0 asks; the others answer until it sends "done".


def _collect(transport: Transport, mine: Seen) -> list[Seen]:
    ranks = [mine]
    while len(ranks) < transport.size:
        ranks += [msgspec.msgpack.decode(frame, type=Seen) for _, frame in _next(transport)]
    return sorted(ranks, key=lambda one: one.rank)


def _next(transport: Transport) -> list[tuple[int, bytes]]:
    deadline = time.monotonic() + LIMIT_S
    while True:
        if frames := transport.receive():
            return [(rank, bytes(frame)) for rank, frame in frames]
        if time.monotonic() > deadline:
            raise TransportError(f"other ranks have sent nothing for {LIMIT_S:g} s")


def _serve(transport: Transport) -> None:
    """Answer pings and receive bulk data until rank 0 is done. Polls with pauses if no message came for 0.1 s."""
    asked_s = 0.0
    while True:
        frames = transport.receive()
        for _, frame in frames:
            asked_s = time.monotonic()
            if bytes(frame) == b"done":
                return
            if bytes(frame) == b"bulk":
                _finish(transport.receive_bulk(0, BULK_TAG, memoryview(bytearray(BULK_BYTES))))
            transport.send(0, frame)
        if not frames and time.monotonic() - asked_s > 0.1:
            time.sleep(0.001)


def _finish(transfer: Transfer) -> None:
    with _at_most(LIMIT_S, "have not exchanged a message of 32 MiB"):
        while not transfer.done():
            pass


@contextmanager
def _at_most(limit_s: float, what: str) -> Generator[None]:
    """End this process if the block takes longer. MPI may wait without a limit for a rank that has ended."""

    def end() -> None:
        print(f"wrong: after {limit_s:g} s the ranks {what}: one of them has ended or hangs", flush=True)
        print("  fix: MPI's messages above, if there are any; or fewer hosts at a time, to find the one", flush=True)
        os._exit(1)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _measure(transport: Transport) -> dict[str, tuple[float, float]]:
    """Return for each other host the seconds that a small message takes one way, and bytes per second, from rank 0."""
    others = {host: transport.hosts.index(host) for host in transport.hosts if host != transport.hosts[0]}
    found: dict[str, tuple[float, float]] = {}
    for rank in others.values():
        took: list[float] = []
        for _ in range(PINGS):
            begin = time.perf_counter()
            transport.send(rank, b"ping")
            _next(transport)
            took.append(time.perf_counter() - begin)
        data = memoryview(bytearray(BULK_BYTES))
        speeds: list[float] = []
        for _ in range(3):
            begin = time.perf_counter()
            transport.send(rank, b"bulk")
            _finish(transport.send_bulk(rank, BULK_TAG, data))
            _next(transport)
            speeds.append(BULK_BYTES / (time.perf_counter() - begin))
        found[transport.hostnames[rank]] = sorted(took)[PINGS // 2] / 2, max(speeds)
    return found


# Output


def _report(
    launch: Launch,
    ranks: Sequence[Seen],
    own: Allocation,
    library: str,
    times: dict[str, tuple[float, float]],
    as_json: bool,
) -> int:
    env = config.environment()
    expected = dataclasses.replace(own, nodes=expected_nodes(launch.kind, own, env))
    found = diagnose(launch.kind, ranks, expected, *_granted(own))
    found += _settings(env, len(ranks[0].cpus))
    found += filter(None, (slow_network(ranks[0].host, host, latency_s) for host, (latency_s, _) in times.items()))
    is_wrong = not all(finding.is_note for finding in found)
    if as_json:
        messages = [
            {"host": host, "seconds": seconds, "bytes_per_s": speed} for host, (seconds, speed) in times.items()
        ]
        about = {"job": own.job, "system": own.system, "nodes": own.nodes, "launcher": launch.kind, "library": library}
        print_json({**about, "ranks": ranks, "messages": messages, "findings": found})
        sys.stdout.flush()
        return int(is_wrong)
    print(f"{_job(own)}; launcher: {launch.kind}; {library}")
    print("rank  host             CPUs              memory     GPUs shown (found)")
    for one in ranks:
        shown = "not set" if one.gpus is None else ",".join(one.gpus) or "none"
        memory = f"{one.memory / 2**30:6.1f} GiB"
        print(f"{one.rank:4}  {one.host:15}  {_ranges(one.cpus):16}  {memory}  {shown} ({one.gpus_found})")
    for host, (latency_s, speed) in times.items():
        print(f"{ranks[0].host} to {host}: {latency_s * 1e6:.0f} us for a small message, {speed / 1e9:.2f} GB/s")
    if times:
        print("(the median of one way, and the best of three times 32 MiB; the launcher's flags change both)")
    for finding in found:
        print(f"{'note' if finding.is_note else 'wrong'}: {finding.what}\n  fix: {finding.cure}")
    print("" if is_wrong else "nothing wrong was found\n", end="", flush=True)
    return int(is_wrong)


def _settings(env: Mapping[str, str], cpus: int) -> list[Finding]:
    """Notes about variables of this runtime that are probably mistakes."""
    known = [name for name in vars(config).values() if isinstance(name, str) and name.startswith("MPI_RUNTIME_")]
    known += jobs.VARIABLES
    found = [
        Finding(f"{name} is set, and this runtime does not read it", unknown("variable", name, known), is_note=True)
        for name in sorted(env)
        if name.startswith("MPI_RUNTIME_") and name not in known
    ]
    stated = env.get(config.NUM_CPUS, "")
    if stated.isdecimal() and int(stated) > cpus:
        what = f"{config.NUM_CPUS} is {stated}, and rank 0 may use {cpus}: calls will share processors"
        found.append(Finding(what, f"unset {config.NUM_CPUS}", is_note=True))
    return found


def _job(own: Allocation) -> str:
    if not own.system:
        return "no batch job"
    end = end_time()
    left = "" if end is None else f", {seconds(end - time.time())} left"
    unknown = "in a command or call, which has CPUs and GPUs of its own"
    if own.system == "flux":  # it states them to no process but the scripts of submit
        unknown = "on nodes that no variable states"
    where = f"on {', '.join(own.nodes)}" if own.nodes else unknown
    return f"job {own.job} ({own.system}) {where}{left}"


def _granted(own: Allocation) -> tuple[dict[str, jobs.Granted], bool]:
    """Return the job's resources by node, as Slurm states them, and whether Slurm hides devices of other jobs."""
    if own.system != "slurm" or not own.nodes:  # without nodes: a command of a batch, which has a part of the job
        return {}, False
    try:
        return jobs.granted(own.job), "ConstrainDevices        = yes" in call(["scontrol", "show", "config"])
    except SlurmError:
        return {}, False


def _ranges(numbers: Sequence[int]) -> str:
    """Write 0, 1, 2, 5 as 0-2,5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
