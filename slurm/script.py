"""The text of a batch script for a request. Pure, so that it can be printed before it is submitted."""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import cast

from mpi_runtime.slurm.nodelist import HOSTS_MAX

WARN_S = "MPI_RUNTIME_WARN_S"
"""The variable with the number of seconds before the end for which SIGUSR1 was requested."""


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
    warn_s: int | None = None
    """Send the program SIGUSR1 about this many seconds before the end of the time (see `before_walltime`)."""
    requeue: bool = False
    """Start the job again after a preemption or the failure of a node. Without it only `slurm.requeue()` does so."""
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


TASK = "{task}"
"""A placeholder for the array index in the program's arguments."""
DOCTOR = ("-m", "mpi_runtime", "doctor")
"""The program of `submit --doctor`. All ranks run it, not only rank 0."""
_TIME = re.compile(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)
"""Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""

_BEGIN = """\
# State of the program: "running" and where, then its exit code, or "requeue". Only an exit code here proves that it ran
# to its end: when a node fails, the launcher may end with 0, and Slurm then calls the job COMPLETED.
left="$PWD/{name}-{job}.exit"
# Anything of that name goes first: written through a symbolic link of another user, it could be any file.
{{ rm -f "$left" && (set -C; echo >"$left") && rm -f "$left"; }} 2>/dev/null || exit {cannot_write}
warned=
trap 'warned=1' USR1 URG  # the end is near: the program gets USR1 as soon as it can handle it
trap 'exit 143' TERM
check() {{
    local code=$?
    [ $code = 0 ] && return
    echo "mpi-runtime: the program is not started: $1 has ended with $code" >&2
    exit $code
}}
"""
_GPUS = """\
# The job has whole nodes. This shell sees all GPUs of its node. The launcher's steps on other nodes see all of them
# (Slurm 24.11) or as many as were requested (22.05). No other job runs there: the same numbers are right on each node.
if [ -n "$CUDA_VISIBLE_DEVICES" ]; then
    export CUDA_VISIBLE_DEVICES=$(cut -d, -f-{number} <<<"$CUDA_VISIBLE_DEVICES") SLURM_GPUS_ON_NODE={number}
    export OMPI_MCA_mca_base_env_list="$OMPI_MCA_mca_base_env_list;CUDA_VISIBLE_DEVICES;SLURM_GPUS_ON_NODE"
fi"""
_RUN = """\
{launch} &
launcher=$!
ended=
trap 'ended=1; kill -TERM $launcher 2>/dev/null' TERM
hand_on() {{  # a signal to the program itself if it is on this node: a launcher would send it to all ranks
    local state process host
    read -r state process host <"$left"
    [ "$state" = running ] || return
    if [ "$host" = "$HOSTNAME" ] && grep -qaF -e "$left" "/proc/$process/cmdline" 2>/dev/null; then
        kill -"$1" "$process"
    else
        kill -"$1" $launcher
    fi
}}
until [ -s "$left" ] || ! kill -0 $launcher 2>/dev/null; do sleep 0.1; done
trap 'hand_on USR1' USR1 URG
for signal in INT HUP USR2; do trap "hand_on $signal" $signal; done  # of scancel --batch: the program decides
[ -z "$warned" ] || hand_on USR1
while wait $launcher; kill -0 $launcher 2>/dev/null; do :; done  # a signal ends a `wait` early
wait $launcher
code=$?
[ $code -ge 0 ] || code=143  # bash may lose the status of a process that the same SIGTERM has ended
state=
[ -s "$left" ] && read -r state _ <"$left"
requeue() {{  # Slurm then ends this shell, and writes a line about it
    trap - TERM
    (trap '' TERM; exec scontrol requeue "$SLURM_JOB_ID") && for _ in {{1..60}}; do sleep 1; done  # outlives us by 1 s
}}
case $state in
    requeue) requeue; exit 1 ;;
    [0-9]*) exit "$state" ;;
esac
"""
_AGAIN = """\
if scontrol show job "$SLURM_JOB_ID" 2>/dev/null | grep -q "PreemptTime=[0-9]"; then
    requeue  # a preemption ends the launcher before the job: without this the job would fail
fi
"""
_LOST = """\
# A launcher may notice that a node has failed long before Slurm does. --mem=0: another step may have all memory still.
probe="srun --overlap --mem=0 --mpi=none --nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES"
if [ -z "$ended" ] && ! said=$(timeout {limit} $probe --ntasks-per-node=1 true 2>&1); then
    echo "mpi-runtime: a node of the job does not answer, so it is queued again. $(head -n 1 <<<"$said")" >&2
    requeue
fi
"""
_NO_END = """\
echo "mpi-runtime: the program did not run to its end (the launcher has ended with $code)" >&2
exit $((code ? code : 1))
"""
CANNOT_WRITE = 73
"""The exit code of the script if it can write nothing into its directory, as `sysexits.h` has it."""
PROBE_LIMIT_S = 60
"""Seconds that nodes may take to run a command that does nothing."""


def text(request: Request, program: tuple[str, ...]) -> str:
    """Return the batch script that runs this program (app.py or -m module, and arguments).

    Raises:
        ValueError: there is no program.
    """
    if not program:
        raise ValueError("name a program to run: app.py, -m package.module, or -c CODE")
    job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if request.array else "$SLURM_JOB_ID"
    lines = ["#!/bin/bash", *(f"#SBATCH {_option(option)}" for option in _options(request, program))]
    lines += [*(f"# {note}" for note in [time_note(request.time)] if note), ""]
    lines += [_BEGIN.format(name=job_name(request, program), job=job, cannot_write=CANNOT_WRITE)]
    for module in request.modules:
        lines += [f"module load {shlex.quote(module)}", f"check {shlex.quote(f'module load {module}')}"]
    lines += [f"export {name}={_expanded(value)}" for name, value in request.environment.items()]
    if request.warn_s is not None:
        lines.append(f"export {WARN_S}={request.warn_s}")
    for command in request.setup:
        lines += [command, f"check {shlex.quote(command)}"]
    if number := request.cpus_per_node is None and re.search(r"\d+$", str(request.gpus_per_node)):
        lines.append(_GPUS.format(number=number[0]))
    lines += ["", _RUN.format(launch=_launch(request, program))]
    if request.requeue:
        lines += [_AGAIN, *([_LOST.format(limit=PROBE_LIMIT_S)] if request.nodes_max > 1 else [])]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, _NO_END]))


def time_note(time: str | None) -> str:
    """Return how Slurm reads a time of two parts, which may be meant as hours and minutes; empty for other times."""
    found = re.fullmatch(r"(\d+):(\d+)", time or "")
    return f"Slurm reads {time} as {found[1]} min {found[2]} s; {time}:00 has hours and minutes" if found else ""


def job_name(request: Request, program: tuple[str, ...]) -> str:
    """Return the name of the job, without characters that must be quoted."""
    name = request.name
    if name is None:
        word = "doctor" if program == DOCTOR else program[1] if program[0] == "-m" and program[1:] else program[0]
        name = PurePath(word).name.removesuffix(".py")
    return re.sub(r"[^\w.+-]", "_", name).lstrip("-") or "program"


def output(request: Request, program: tuple[str, ...]) -> str:
    """Return the name of the output file, with Slurm's patterns."""
    return f"{job_name(request, program)}-{'%A_%a' if request.array else '%j'}.out"


def _options(request: Request, program: tuple[str, ...]) -> list[str]:
    # Without a number Slurm gives a whole node one task for each CPU. With a number it gives the least of a range.
    is_range = isinstance(request.nodes, str)
    tasks = 1 if is_range else request.ranks_per_node or 1
    options = [
        f"--job-name={job_name(request, program)}",
        f"--output={output(request, program)}",
        "--open-mode=append",
        f"--nodes={request.nodes}",
        *([] if is_range else [f"--ntasks-per-node={tasks}"]),
    ]
    if request.cpus_per_node is None:
        options.append("--exclusive")
    else:
        options.append(f"--cpus-per-task={request.cpus_per_node // tasks}")
    for name, value in (
        ("gpus-per-node", request.gpus_per_node), ("mem", request.memory), ("time", request.time),
        ("partition", request.partition), ("account", request.account), ("qos", request.qos), ("array", request.array),
    ):  # fmt: skip
        if value is not None:
            options.append(f"--{name}={value}")
    if request.warn_s is not None:
        # Only to the script (B:), and a signal that is ignored by default: it may come before the script's first line.
        options.append(f"--signal=B:URG@{request.warn_s}")
    options.append("--requeue" if request.requeue else "--no-requeue")
    return [*options, *request.sbatch]


def _option(option: str) -> str:
    """Return an option as sbatch reads it in a script: words end at blanks, # begins a comment, as in a shell."""
    name, equals, value = option.partition("=")
    if not equals or not re.search(r"[\s'\"\\#]", value) or re.search(r"\s", name):
        return option  # `-C a100` is as its author has written it
    return shlex.quote(option).replace("\\", "\\\\")


def _launch(request: Request, program: tuple[str, ...]) -> str:
    """Return the launch command. Rank 0 runs the program by `-m mpi_runtime`, which writes the exit file."""
    python = _expanded(request.python)
    words = f'--exit-file "$left" {" ".join(_argument(word, request) for word in program)}'
    if request.ranks == 1:
        return f"{python} -m mpi_runtime {words}"
    ranks = str(request.ranks)
    if isinstance(request.nodes, str):
        ranks = f"$((SLURM_JOB_NUM_NODES * {request.ranks_per_node or 1}))"
    if request.launcher == "mpirun":
        return f"{python} -m mpi_runtime run -n {ranks} -m mpi_runtime {words}"
    return f"{request.launcher} -n {ranks} {python} -m mpi_runtime {words}"


def _argument(word: str, request: Request) -> str:
    if request.array is None or TASK not in word:
        return shlex.quote(word)
    return '"$SLURM_ARRAY_TASK_ID"'.join(shlex.quote(part) if part else "" for part in word.split(TASK))


def _expanded(value: str) -> str:
    """Return a shell word in which variables and a leading `~` are expanded, and nothing else."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", value):
        return value
    if value == "~" or value.startswith("~/"):
        value = f"$HOME{value[1:]}"
    quoted = re.sub(r'["`]', r"\\\g<0>", value)
    quoted = re.sub(r"\\(?![$\"`])", r"\\\\", quoted)
    return '"' + re.sub(r"(?<!\\)\$(?![A-Za-z_]|\{[A-Za-z_]\w*\})", r"\\$", quoted) + '"'


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
    for name in ("memory", "name", "partition", "account", "qos", "array", "launcher", "python"):
        value = getattr(request, name)
        if not isinstance(value, str) and (value is not None or name in ("launcher", "python")):
            raise TypeError(f"{name} must be a string, not {value!r}")
    for name, allowed, what in (
        ("gpus_per_node", (int, str, type(None)), "a whole number, or 'type:number'"),
        ("requeue", (bool,), "True or False"),
        ("environment", (Mapping,), "a table of variables"),
    ):
        value = getattr(request, name)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise TypeError(f"{name} must be {what}, not {value!r}")
    for name in ("modules", "setup", "sbatch"):
        value = getattr(request, name)
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
            raise TypeError(f"{name} must be a list of strings, not {value!r}")
    variables = cast(Mapping[object, object], request.environment)  # a file may hold values of any type
    for variable, stated in variables.items():
        if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_]\w*", variable):
            raise ValueError(f"environment: {variable!r} cannot be the name of a variable")
        if not isinstance(stated, str):
            raise TypeError(f"environment: {variable} must be a string, as {str(stated)!r}, not {stated!r}")
    for option in _options(request, ("program",)):
        if not option.isprintable():
            raise ValueError(f"{option!r} cannot be an option of a job: it has a character that ends the line")
    if request.array is not None and not re.match(r"\d", request.array):
        raise ValueError(f"array must be indices such as '0-9', '1,3,5' or '1-100%10', not {request.array!r}")
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
