"""The limits of this process on this machine: processors, memory, descriptors. They may be below the host's own."""

import contextlib
import errno
import math
import os
import resource
import socket
from collections.abc import Iterator, Mapping

from mpi_runtime.config import environment, temporary_directory
from mpi_runtime.scheduler.protocol.amounts import gib

_ANYWHERE = "192.0.2.1"
"""An address that no host has (TEST-NET-1, RFC 5737). Choosing a route to it sends nothing."""
SHM_BYTES, TEMPORARY_BYTES = 16 << 20, 64 << 10
"""What a rank of Open MPI takes for messages to others on its host, and for files of its launcher."""
IN_MEMORY = ("tmpfs", "ramfs")
"""Kinds of file systems whose files take memory."""


def address_towards(towards: str = _ANYWHERE) -> str:
    """Return the address by which this host reaches another, or the outside. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 53))
            return str(probe.getsockname()[0])
        except (OSError, TypeError, UnicodeError):  # there is no such name
            with contextlib.suppress(OSError):
                return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"


def cpus_allowed() -> list[int]:
    """Return the numbers of the processors that this process may run on: its affinity mask.

    There may be more of them than `cpu_count()`: a quota limits CPU time, not the choice of processors. If we chose
    some of them, all containers of a host would choose the same ones.
    """
    return sorted(os.sched_getaffinity(0))


def cpu_count(env: Mapping[str, str] | None = None, root: str = "/") -> int:
    """Return the number of CPUs for processes like this one on this host: at least 1.

    It is the smallest of the affinity mask, the control group's quota (rounded up) and Slurm's SLURM_CPUS_ON_NODE.
    SLURM_CPUS_PER_TASK is not used: if Slurm binds tasks to their CPUs, the mask shows it; if not, the tasks share all
    CPUs of the job on the host.
    """
    env = environment() if env is None else env
    limits: list[float] = [len(cpus_allowed()), *_cpu_quotas(root)]
    if on_node := _count(env.get("SLURM_CPUS_ON_NODE", "")):
        limits.append(on_node)
    return max(1, math.ceil(min(limits)))


def memory_limit_of(directory: str) -> int:
    """Return the limit of a control group in bytes; 0: no limit. In version 1 that is a number larger than any memory.

    Above `memory.high` the kernel slows its processes down.
    """
    most = read(f"{directory}/memory.max")
    limits = [most, read(f"{directory}/memory.high")] if most else [read(f"{directory}/memory.limit_in_bytes")]
    found = [int(text) for text in limits if text.isdecimal() and int(text) < 1 << 60]  # else "max", or no such file
    return min(found, default=0)


def memory_limit(env: Mapping[str, str] | None = None, root: str = "/") -> int:
    """Return the bytes of memory for processes like this one on this host.

    It is the smallest of the host's memory, the control group's limit and Slurm's grant to the job on this host.
    """
    env = environment() if env is None else env
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += filter(None, map(memory_limit_of, cgroup_directories(root, "memory")))
    for name, times in (
        ("SLURM_MEM_PER_NODE", "1"),
        ("SLURM_MEM_PER_CPU", env.get("SLURM_CPUS_ON_NODE", "")),
        ("SLURM_MEM_PER_GPU", env.get("SLURM_GPUS_ON_NODE", "")),
    ):
        if megabytes := _count(env.get(name, "")) * _count(times):
            limits.append(megabytes << 20)
    return min(limits)


def _count(text: str) -> int:
    """Return the number that a variable states; 0: none, or one that does not fit into 64 bits."""
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def shortage(error: OSError) -> str:
    """Return a message for an error of the system: if a limit is the cause, which limit it is and how to raise it."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = f"this process may have {soft} descriptors (`ulimit -n`), and each executor takes five of them"
        cure = f"raise the hard limit, which is {hard}"
    elif error.errno == errno.EAGAIN:
        allowed = f"the user may have {_words(resource.RLIMIT_NPROC)} processes and threads (`ulimit -u`)"
        cure = "raise that, or what the control group or the batch system allows (`pids.max`)"
    elif error.errno == errno.ENOMEM:
        allowed = f"there is no memory for it (`ulimit -v` is {_words(resource.RLIMIT_AS)})"
        cure = "ask for more memory"
    elif error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f"{error.strerror}: files may have {limit} bytes (`ulimit -f`), and shared memory counts as one"
    else:
        return str(error)
    return f"{error.strerror}: {allowed}. To run more at a time {cure}; or run less at a time (num_cpus=...)"


def unusable(directory: str) -> str:
    """Make a directory unless it is there. Return why it can have no new files, in words; empty: it can."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        return str(error.strerror)
    return "" if os.access(directory, os.W_OK | os.X_OK) else "it cannot be written"


def little_room() -> str:
    """Return why MPI may not start here for want of room for its files; empty: there is some."""
    for path, needed, cure in (
        ("/dev/shm", SHM_BYTES, "start the container with --shm-size=1g, or free some of it"),
        (temporary_directory(), TEMPORARY_BYTES, "free some of it, or set TMPDIR to another directory"),
    ):
        with contextlib.suppress(OSError):  # it is not there: MPI uses another place
            found = os.statvfs(path)
            if (room := found.f_frsize * found.f_bavail) < needed:
                return f"{path} has room for {gib(room)}, and MPI needs about {gib(needed)} there for each rank: {cure}"
    return ""


def _words(limit: int) -> str:
    soft = resource.getrlimit(limit)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _cpu_quotas(root: str) -> Iterator[float]:
    """Yield the quotas of this process's control group and of those above it, in CPUs."""
    for directory in cgroup_directories(root, "cpu"):
        quota, _, period = read(f"{directory}/cpu.max").partition(" ")
        if not quota:
            quota, period = read(f"{directory}/cpu.cfs_quota_us"), read(f"{directory}/cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:  # else "max", -1, or no such file
            yield int(quota) / int(period)


def cgroup_directories(root: str, controller: str) -> Iterator[str]:
    """Yield the directories that may have limits of this process, for both versions of control groups.

    In a container the path that the kernel names may not exist below the mount. The top of the mount is then ours.
    """
    for line in read(f"{root}/proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            mounts = "", "/unified"  # the second if version 1 is mounted too
        elif controller in controllers.split(","):
            mounts = f"/{controller}", f"/{controllers}"  # the first is a link to the second, or is missing
        else:
            continue
        for mount in mounts:
            rest = path.strip("/")
            while rest and ".." not in rest.split("/"):
                yield f"{root}/sys/fs/cgroup{mount}/{rest}"
                rest = rest.rpartition("/")[0]
            yield f"{root}/sys/fs/cgroup{mount}"


def read(path: str) -> str:
    """Return the content of a file of the kernel without white space around it; empty if it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def is_in_memory(directory: str) -> bool:
    """Whether files in a directory take memory, so that a write there frees none."""
    path, kind, longest = os.path.realpath(directory), "", -1
    for line in read("/proc/self/mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        point = mount.split(" ")[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            longest, kind = len(point), system.split(" ")[0]
    return kind in IN_MEMORY
