"""The request for a job: its fields, and what they may be. Pure."""

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from mpi_runtime.slurm.nodelist import HOSTS_MAX

_TIME = re.compile(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)
"""Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The resources and settings of a job. For fields that are None Slurm's own defaults apply."""

    nodes: int | str = 1
    """The number of nodes; or a range, "1-3": Slurm starts the job with as many of them as are free."""
    ranks_per_node: int | None = None
    """MPI ranks on each node; None: one, which gives all CPUs of the job on its node to calls."""
    cpus_per_node: int | None = None
    """CPUs on each node, a multiple of `ranks_per_node`; None: whole nodes for this job alone, with all their CPUs."""
    gpus_per_node: int | str | None = None
    """GPUs on each node: a number, or type and number, such as 4 or "a100:4"."""
    memory: str | None = None
    """Memory of each node, as Slurm writes it: "64G"; "0" for all of it."""
    time: str | None = None
    """The time limit, as Slurm writes it: "1:00:00", "2-12" (days and hours), "30" (minutes)."""
    name: str | None = None
    """The name of the job; None: the name of the program."""
    partition: str | None = None
    """The partition."""
    account: str | None = None
    """The account to charge."""
    qos: str | None = None
    """The quality of service."""
    array: str | None = None
    """The indices of a job array, as Slurm writes them: "0-9", "1-100%10"."""
    after: str | None = None
    """The ids of jobs that must have ended before, however they ended, with commas between: "4711,4712"."""
    warn_s: int | None = None
    """Send the program SIGUSR1 about this many seconds before the end of the time (see `before_walltime`)."""
    requeue: bool = False
    """Start the job again after a preemption or the failure of a node. Without it only `slurm.requeue()` does so."""
    as_ray: bool = False
    """In the program, and in all modules that it imports, `import ray` gives this runtime."""
    modules: tuple[str, ...] = ()
    """Environment modules to load."""
    setup: tuple[str, ...] = ()
    """Shell commands to run before the program, each complete in itself. If one fails, the job fails."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables to set. $NAME, ${NAME} and a leading ~ are expanded on the node; \\$ is a dollar sign."""
    launcher: str = "mpirun"
    """"mpirun", which is that of this Python's MPI; or "srun" with options: "srun --mpi=pmix"."""
    sbatch: tuple[str, ...] = ()
    """Other options of sbatch, one word each: "--constraint=a100"."""
    python: str = sys.executable
    """The interpreter on the nodes; $NAME and a leading ~ are expanded there."""
    system: str = "slurm"
    """The batch system, by its name: "slurm", "sge" (Grid Engine), "pbs", "lsf", "flux" or "oar"."""
    pe: str | None = None
    """The parallel environment of Grid Engine; None: one that gives each node as many slots as CPUs are requested."""
    qsub: tuple[str, ...] = ()
    """Other options of qsub, bsub, flux batch or oarsub, where the system is not Slurm: "-l", "gpu=1"."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def nodes_max(self) -> int:
        """The largest number of nodes."""
        return int(str(self.nodes).rpartition("-")[2])

    @property
    def ranks(self) -> int:
        """The largest number of ranks. A single rank needs no MPI."""
        return self.nodes_max * (self.ranks_per_node or 1)


def seconds(time: str | None) -> float:
    """Return a time limit as Slurm writes it, in seconds; infinite if it is not stated.

    The forms are minutes, minutes:seconds, hours:minutes:seconds, and after a number of days and a dash
    hours[:minutes[:seconds]].
    """
    days, dash, rest = (time or "").rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts):
        return math.inf  # none, UNLIMITED or INFINITE
    factors = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return int(days or 0) * 86400 + sum(int(part) * factor for part, factor in zip(parts, factors, strict=False))


def _check(request: Request) -> None:
    for name in ("nodes", "ranks_per_node", "cpus_per_node", "warn_s"):
        value = getattr(request, name)
        if name == "nodes" and isinstance(value, str):
            _check_range(value)
            continue
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, not {value}")
    if request.nodes_max > HOSTS_MAX:
        raise ValueError(f"nodes must be at most {HOSTS_MAX}, not {request.nodes}")
    for name in (
        "memory",
        "name",
        "partition",
        "account",
        "qos",
        "array",
        "after",
        "pe",
        "launcher",
        "python",
        "system",
    ):
        value = getattr(request, name)
        if not isinstance(value, str) and (value is not None or name in ("launcher", "python", "system")):
            raise TypeError(f"{name} must be a string, not {value!r}")
    for name, allowed, what in (
        ("gpus_per_node", (int, str, type(None)), "a whole number, or 'type:number'"),
        ("requeue", (bool,), "True or False"),
        ("as_ray", (bool,), "True or False"),
        ("environment", (Mapping,), "a table of variables"),
    ):
        value = getattr(request, name)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise TypeError(f"{name} must be {what}, not {value!r}")
    for name in ("modules", "setup", "sbatch", "qsub"):
        value = getattr(request, name)
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
            raise TypeError(f"{name} must be a list of strings, not {value!r}")
    variables = cast(Mapping[object, object], request.environment)  # a file may hold values of any type
    for variable, stated in variables.items():
        if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_]\w*", variable):
            raise ValueError(f"environment: {variable!r} cannot be the name of a variable")
        if not isinstance(stated, str):
            raise TypeError(f"environment: {variable} must be a string, as {str(stated)!r}, not {stated!r}")
    _check_lines(request)
    if request.array is not None and not re.match(r"\d", request.array):
        raise ValueError(f"array must be indices such as '0-9', '1,3,5' or '1-100%10', not {request.array!r}")
    if request.after is not None and not re.fullmatch(r"\d+(,\d+)*", request.after):
        raise ValueError(f"after must be ids of jobs, such as '4711' or '4711,4712', not {request.after!r}")
    if request.launcher != "mpirun" and request.launcher.split()[:1] != ["srun"]:
        raise ValueError(f"launcher must be 'mpirun' or 'srun ...', not {request.launcher!r}")
    _check_time(request.time)
    _check_signal(request)
    ranks, cpus = request.ranks_per_node or 1, request.cpus_per_node
    if cpus is not None and cpus % ranks:
        raise ValueError(
            f"cpus_per_node must be a multiple of ranks_per_node ({ranks}), not {cpus}: Slurm counts CPUs by rank. "
            f"Take {-(-cpus // ranks) * ranks}, or one rank for each node, which uses all CPUs there"
        )


def _check_lines(request: Request) -> None:
    names = ("gpus_per_node", "memory", "time", "partition", "account", "qos", "array", "pe")
    options = [f"--{name.replace('_', '-').replace('memory', 'mem')}={getattr(request, name)}" for name in names]
    for option in (*options, *request.sbatch, *request.qsub):
        if not option.isprintable():
            raise ValueError(f"{option!r} cannot be an option of a job: it has a character that ends the line")


def _check_range(nodes: str) -> None:
    least, dash, most = nodes.partition("-")
    is_right = all(re.fullmatch(r"[1-9]\d{0,8}", part) for part in (least, most if dash else least))
    if not is_right or int(least) > int(most or least):
        raise ValueError(f"nodes must be a number of 1 or more, or a range such as '1-3', not {nodes!r}")


def _check_signal(request: Request) -> None:
    for option in request.sbatch if request.ranks > 1 and request.launcher == "mpirun" else ():
        if found := re.fullmatch(r"--signal=(R:)?\w+(@(\d+))?", option):
            raise ValueError(
                f"{option} sends the signal to all processes of the job, also to the daemons of mpirun on other nodes, "
                f"which it kills. Use warn_s={found[3] or 60} (--warn-s {found[3] or 60}): only the program receives it"
            )


def _check_time(time: object) -> None:
    if time is None:
        return
    if not isinstance(time, str):
        raise TypeError(
            f"time must be a string, as Slurm writes it, not {time!r}: a bare number is minutes to Slurm. "
            f"{time} minutes are '{time}', {time} seconds are '0:{time}'"
        )
    if not _TIME.fullmatch(time):
        near = re.fullmatch(r"(\d+)\s*([smhd])\w*", time.strip(), re.IGNORECASE)
        form = {"s": "0:{}", "m": "{}", "h": "{}:00:00", "d": "{}-0"}
        hint = f"; {time} is {form[near[2].lower()].format(near[1])!r}" if near else ""
        raise ValueError(
            f"time must be minutes, minutes:seconds, hours:minutes:seconds or days-hours, not {time!r}{hint}"
        )
