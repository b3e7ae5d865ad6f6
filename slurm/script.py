"""From what a user asks for to the text of a batch script: pure, so that it can be printed before it is submitted."""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a job is to have. What is None is left to Slurm's own defaults."""

    nodes: int = 1
    ranks_per_node: int | None = None
    """None: one worker on each node that uses all that the job has there, and the head besides on the first."""
    cpus_per_node: int | None = None
    """None: whole nodes, for this job alone."""
    gpus_per_node: int | str | None = None
    """A number, or type and number: 4, "a100:4"."""
    memory: str | None = None
    """Of each node, as Slurm writes it: "64G"; "0" for all of it."""
    time: str | None = None
    """As Slurm writes it: "1:00:00", "2-12" (days and hours), "30" (minutes)."""
    name: str | None = None
    """None: the name of the program."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    array: str | None = None
    """Of a job array, as Slurm writes it: "0-9", "1-100%10"."""
    warn_s: int | None = None
    """Send the program SIGUSR1 about so many seconds before the time ends (see `before_walltime`)."""
    requeue: bool = False
    """Let Slurm start the job again after a preemption or the failure of a node."""
    modules: tuple[str, ...] = ()
    """Environment modules to load."""
    setup: tuple[str, ...] = ()
    """Lines of shell to run before the program."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables to set."""
    launcher: str = "mpirun"
    """"mpirun": the one that belongs to the MPI of this Python; "srun" with what follows it: "srun --mpi=pmix"."""
    sbatch: tuple[str, ...] = ()
    """Other options of sbatch, each one word: "--constraint=a100"."""
    python: str = sys.executable
    """The interpreter on the nodes."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def ranks(self) -> int:
        """How many ranks are started: one for a single node, which then needs no MPI."""
        if self.ranks_per_node is not None:
            return self.nodes * self.ranks_per_node
        return 1 if self.nodes == 1 else self.nodes + 1


_AFTER_PREEMPTION = (
    "# A preemption ends the launcher before the job, which would then have failed, and not be queued again.",
    'if scontrol show job "$SLURM_JOB_ID" 2>/dev/null | grep -q "PreemptTime=[0-9]"; then',
    '    scontrol requeue "$SLURM_JOB_ID"',
    "fi",
)


def text(request: Request, program: tuple[str, ...]) -> str:
    """Return the batch script that runs this program (app.py or -m module, and arguments).

    ValueError: there is no program.
    """
    if not program:
        raise ValueError("name a program to run: app.py, -m package.module, or -c CODE")
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(request, program)), ""]
    lines += [f"module load {shlex.quote(module)}" for module in request.modules]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in request.environment.items()]
    lines += request.setup
    if request.ranks > 1 and request.launcher != "mpirun":
        lines.append("unset SLURM_NTASKS_PER_NODE  # these are places; srun would take them for an order")
    lines.append("")
    lines += [
        "# The program leaves its exit code here when it has come to its end. Nothing else proves that it has: when a",
        "# node fails a launcher may end with 0, and then Slurm calls the job COMPLETED.",
        f'left="$PWD/{job_name(request, program)}-$SLURM_JOB_ID.exit"',
        'rm -f "$left"',
        "",
        f'{_launch(request)} --exit-file "$left" {shlex.join(program)} &',
        "launcher=$!",
        "# Slurm signals this shell; the launcher hands it on to the program. Each signal ends a `wait` early.",
        "trap 'kill -USR1 $launcher' USR1",
        "trap 'kill -TERM $launcher' TERM",
        "while wait $launcher; kill -0 $launcher 2>/dev/null; do :; done",
        "wait $launcher",
        "code=$?",
        'if [ -s "$left" ]; then exit "$(cat "$left")"; fi',
        *(_AFTER_PREEMPTION if request.requeue else ()),
        'echo "mpi-runtime: the program has not come to its end (the launcher has ended with $code)" >&2',
        "exit $((code ? code : 1))",
    ]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def job_name(request: Request, program: tuple[str, ...]) -> str:
    """Return the name of the job, in which nothing has to be quoted."""
    name = request.name
    if name is None:
        word = program[1] if program[0] == "-m" and program[1:] else program[0]
        name = PurePath(word).name.removesuffix(".py")
    return re.sub(r"[^\w.+-]", "_", name).lstrip("-") or "program"


def output(request: Request, program: tuple[str, ...]) -> str:
    """Return the name of the job's output, in Slurm's patterns."""
    return f"{job_name(request, program)}-{'%A_%a' if request.array else '%j'}.out"


def _options(request: Request, program: tuple[str, ...]) -> list[str]:
    # Without a number of tasks a whole node counts as one task for each CPU. The head has a place of its own.
    tasks = request.ranks_per_node or (2 if request.nodes > 1 else 1)
    options = [
        f"--job-name={job_name(request, program)}",
        f"--output={output(request, program)}",
        f"--nodes={request.nodes}",
        f"--ntasks-per-node={tasks}",
    ]
    if request.cpus_per_node is None:
        options.append("--exclusive")
    else:
        options.append(f"--cpus-per-task={-(-request.cpus_per_node // tasks)}")
    for name, value in (
        ("gpus-per-node", request.gpus_per_node), ("mem", request.memory), ("time", request.time),
        ("partition", request.partition), ("account", request.account), ("qos", request.qos), ("array", request.array),
    ):  # fmt: skip
        if value is not None:
            options.append(f"--{name}={value}")
    if request.warn_s is not None:
        options.append(f"--signal=B:USR1@{request.warn_s}")  # without B: Open MPI's daemons would die of it
    if request.requeue:
        options += ["--requeue", "--open-mode=append"]
    return [*options, *request.sbatch]


def _launch(request: Request) -> str:
    """The words before the program: rank 0 runs it, by `-m mpi_runtime`, which leaves the exit code."""
    python = shlex.quote(request.python)
    if request.ranks == 1:
        return f"{python} -m mpi_runtime"
    if request.launcher == "mpirun":
        return f"{python} -m mpi_runtime run -n {request.ranks} -m mpi_runtime"
    return f"{request.launcher} -n {request.ranks} {python} -m mpi_runtime"


def _check(request: Request) -> None:
    for name in ("nodes", "ranks_per_node", "cpus_per_node", "warn_s"):
        value = getattr(request, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, not {value}")
    for name in ("modules", "setup", "sbatch"):
        value = getattr(request, name)
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
            raise TypeError(f"{name} must be a list of strings, not {value!r}")
    for name in request.environment:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"environment: {name!r} cannot be the name of a variable")
    if request.launcher != "mpirun" and request.launcher.split()[:1] != ["srun"]:
        raise ValueError(f"launcher must be 'mpirun' or 'srun ...', not {request.launcher!r}")
