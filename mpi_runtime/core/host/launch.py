"""Detects the launcher of this process, its rank and the number of ranks, before MPI starts.

Launchers set environment variables for their processes. The order of the table matters: inside an allocation, the
processes of mpirun are children of a daemon that is itself a Slurm step. Slurm's variables then describe the daemon and
are wrong for the rank, so the variables of mpirun come first.

Of Slurm's variables only those of a *step* show that srun started the process. A batch script and a shell of salloc
have SLURM_NTASKS and even SLURM_PROCID=0, but are single processes; they have no SLURM_STEP_NUM_TASKS.

srun connects its tasks by MPI only if its `--mpi` fits the MPI library. If it does not, each task silently becomes a
world of one rank. `detect` notices if `--mpi` is missing. Only MPI knows whether it is wrong: the code that calls
MPI_Init calls `is_of_other_family` before, compares the size of its world with `Launch.size` after, and fails with
`singleton_message`.
"""

from collections.abc import Mapping

from msgspec import Struct

from mpi_runtime.config import LAUNCHER

_TABLE = (
    # kind, variable with the rank, variable with the number of ranks
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI's mpirun, jsrun
    ("mvapich", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # mpirun_rsh
    ("mvapich", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"),
    ("pals", "PALS_RANKID", "PMI_SIZE"),  # HPE Cray's mpiexec
    ("flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("mpich", "PMI_RANK", "PMI_SIZE"),  # hydra: MPICH's and Intel's mpiexec
    ("slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("pmix", "PMIX_RANK", ""),  # prun and others that speak PMIx alone
)


INSIDE = "call"
"""The kind of launch of a job inside a call with its own scheduler: one rank, which serves one job after another."""
FIRST_WORKER = 1
"""The rank on which the first call runs, if there are several ranks."""


class Launch(Struct, frozen=True):
    """How this process was started."""

    kind: str = "none"
    """The launcher: "none" (plain Python, or a launcher with one rank), "openmpi", "mpich", "slurm-pmix" ..."""
    rank: int = 0
    size: int = 1
    """Number of ranks; 0: only MPI knows."""
    problem: str | None = None
    """Why this launch cannot work, and what to do; None: the environment shows no problem."""


def detect(env: Mapping[str, str]) -> Launch:
    """Return how a process with this environment was started."""
    forced = env.get(LAUNCHER, "")
    if forced == "none":
        return Launch()
    if forced:
        return Launch(problem=f"the variable {LAUNCHER} is {forced!r}; it may be 'none' or must not be set")
    for kind, rank_name, size_name in _TABLE:
        if rank_name not in env or (kind == "slurm" and size_name not in env):
            continue
        rank, size = _number(env[rank_name]), _number(env.get(size_name, "0"))
        if rank is None or size is None or 0 < size <= rank:
            found = ", ".join(f"{name}={env[name]!r}" for name in (rank_name, size_name) if name in env)
            return Launch(problem=f"the variables of a launcher make no sense: {found}. {_leftovers(rank_name)}")
        if size == 1:
            return Launch()
        kind = _slurm_kind(env) if kind == "slurm" or (kind == "mpich" and _is_slurm_pmi2(env)) else kind
        return Launch(kind, rank, size, _srun_problem(size) if kind == "slurm-none" else None)
    return Launch()


def singleton_message(launch: Launch, world_size: int | None = 1) -> str:
    """Return the error message for a world that is not of the size that the launcher has announced.

    `world_size`: of the world that MPI_Init made; None: it was not called, because it would have ended the process.
    """
    what = f"The launcher started {launch.size} ranks, but MPI made a world of {world_size}"
    if world_size is None:
        what = f"The launcher started {launch.size} ranks, but MPI cannot make a world of them"
    reason = "MPI did not find the launcher, because the two are of different kinds"
    cure = {
        "openmpi": "This is Open MPI's mpirun, so mpi4py must use Open MPI.",
        "mpich": "This is the mpiexec of MPICH or a relative, so mpi4py must use one of that family.",
        "slurm-pmix": "srun spoke PMIx, so mpi4py must use Open MPI. With MPICH use: srun --mpi=pmi2",
        "slurm-pmi2": "srun spoke PMI2, so mpi4py must use MPICH or a relative. With Open MPI use: srun --mpi=pmix",
    }.get(launch.kind, f"The launcher is of the kind {launch.kind!r}.")
    return (
        f"{what}: {reason}. {cure}\n"
        "Which MPI mpi4py uses: python -m mpi4py --mpi-lib-version\n"
        "Inside an allocation or without one, this starts the mpiexec beside this Python, else on PATH, and with "
        f"--mpi mpich (openmpi, intel) that of this MPI: python -m mpi_runtime run -n {launch.size or 'N'} app.py\n"
        f"If there is no launcher, its variables are left over: unset them, or set {LAUNCHER}=none."
    )


def is_of_other_family(launch: Launch, library: str) -> bool:
    """Whether an MPI library does not understand this launcher. `library` is the library's version text.

    Call it before MPI_Init, because some libraries end the process in it without naming the cause.
    """
    if launch.kind == "slurm-pmix":
        # Some builds of MPICH speak PMIx, and their version text names it. The others end the process in MPI_Init.
        return "MPICH configure:" in library and "pmix" not in library.lower()
    is_of_mpich = "MPICH" in library or "Intel(R) MPI" in library
    return (is_of_mpich and launch.kind == "openmpi") or ("Open MPI" in library and launch.kind == "mpich")


def _srun_problem(size: int) -> str:
    return (
        f"srun started {size} tasks but offered them no MPI, so each would be a world of one rank.\n"
        "With Open MPI use: srun --mpi=pmix; with MPICH: srun --mpi=pmi2 (`srun --mpi=list` shows what there is); "
        "or use mpirun inside the allocation.\n"
        f"If {size} separate programs are meant, set {LAUNCHER}=none."
    )


def _leftovers(rank_name: str) -> str:
    return f"If they are left over from another job, unset them ({rank_name} first), or set {LAUNCHER}=none."


def _is_slurm_pmi2(env: Mapping[str, str]) -> bool:
    """Whether srun itself has set PMI_RANK, not hydra.

    hydra also sets MPI_LOCALRANKID, and the Slurm step around it is that of its proxies.
    """
    return "MPI_LOCALRANKID" not in env and env.get("PMI_SIZE") == env.get("SLURM_STEP_NUM_TASKS")


def _slurm_kind(env: Mapping[str, str]) -> str:
    if "PMIX_RANK" in env:
        return "slurm-pmix"
    if "PMI_RANK" in env or "PMI_FD" in env:
        return "slurm-pmi2"
    if "PMI_CONTROL_PORT" in env or env.get("SLURM_MPI_TYPE", "").startswith("cray"):
        return "slurm-cray"
    return "slurm-none"


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None  # as MPI counts ranks
