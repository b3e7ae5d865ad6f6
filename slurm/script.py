"""The text of a batch script for a request. Pure, so that it can be printed before it is submitted."""

import re
import shlex
from pathlib import PurePath

from mpi_runtime.slurm import systems
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.status import CANNOT_WRITE
from mpi_runtime.slurm.systems.system import Queue

__all__ = ["DOCTOR", "TASK", "WARN_S", "Request", "job_name", "text", "time_note"]

WARN_S = "MPI_RUNTIME_WARN_S"
"""The variable with the number of seconds before the end for which SIGUSR1 was requested."""
TASK = "{task}"
"""A placeholder for the array index in the program's arguments."""
DOCTOR = ("-m", "mpi_runtime", "doctor")
"""The program of `submit --doctor`. All ranks run it, not only rank 0."""

_BEGIN = """\
# State of the program: "running" and where, then its exit code, or "requeue". Only an exit code here proves that it ran
# to its end: when a node fails, the launcher may end with 0, and {mistakes}.
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
_RUN = """\
{launch}
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
{signals}[ -z "$warned" ] || hand_on USR1
while wait $launcher; kill -0 $launcher 2>/dev/null; do :; done  # a signal ends a `wait` early
wait $launcher
code=$?
[ $code -ge 0 ] || code=143  # bash may lose the status of a process that the same SIGTERM has ended
state=
[ -s "$left" ] && read -r state _ <"$left"
{requeue}case $state in
    requeue) requeue; exit 1 ;;
    [0-9]*) exit "$state" ;;
esac
"""
_NO_END = """\
echo "mpi-runtime: the program did not run to its end (the launcher has ended with $code)" >&2
exit $((code ? code : 1))
"""


def text(request: Request, program: tuple[str, ...]) -> str:
    """Return the batch script that runs this program (app.py or -m module, and arguments).

    Raises:
        ValueError: there is no program.
    """
    if not program:
        raise ValueError("name a program to run: app.py, -m package.module, or -c CODE")
    queue, name = systems.queue(request.system), job_name(request, program)
    queue.check(request)
    job = queue.ARRAY_JOB if request.array else queue.JOB
    lines = ["#!/bin/bash", *queue.header(request, name)]
    lines += [*(f"# {note}" for note in [time_note(request)] if note), ""]
    lines += [_BEGIN.format(name=name, job=job, cannot_write=CANNOT_WRITE, mistakes=queue.MISTAKES)]
    for module in request.modules:
        lines += [f"module load {shlex.quote(module)}", f"check {shlex.quote(f'module load {module}')}"]
    lines += [f"export {name}={_expanded(value)}" for name, value in request.environment.items()]
    if request.warn_s is not None:
        lines.append(f"export {WARN_S}={request.warn_s}")
    for command in request.setup:
        lines += [command, f"check {shlex.quote(command)}"]
    lines += [*queue.before(request), ""]
    launch = queue.LAUNCH.format(launch=_launch(request, program, queue))
    lines += [_RUN.format(launch=launch, signals=queue.SIGNALS, requeue=queue.REQUEUE), *queue.after(request)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, _NO_END]))


def time_note(request: Request) -> str:
    """Return how a time of two parts is read, which may be meant as hours and minutes; empty for other times."""
    time, reader = request.time, "Slurm" if request.system == "slurm" else "mpi-runtime"
    found = re.fullmatch(r"(\d+):(\d+)", time or "")
    return f"{reader} reads {time} as {found[1]} min {found[2]} s; {time}:00 has hours and minutes" if found else ""


def job_name(request: Request, program: tuple[str, ...]) -> str:
    """Return the name of the job, without characters that must be quoted."""
    name = request.name
    if name is None:
        word = "doctor" if program == DOCTOR else program[1] if program[0] == "-m" and program[1:] else program[0]
        name = PurePath(word).name.removesuffix(".py")
    return safe_name(name)


def safe_name(name: str) -> str:
    """Return a name for a job without characters that must be quoted."""
    return re.sub(r"[^\w.+-]", "_", name).lstrip("-") or "program"


def _launch(request: Request, program: tuple[str, ...], queue: Queue) -> str:
    """Return the launch command. Rank 0 runs the program by `-m mpi_runtime`, which writes the exit file."""
    python = _expanded(request.python)
    flag = "--as-ray " if request.as_ray else ""
    words = f'--exit-file "$left" {flag}{" ".join(_argument(word, request, queue) for word in program)}'
    if request.ranks == 1:
        return f"{python} -m mpi_runtime {words}"
    ranks = str(request.ranks)
    if isinstance(request.nodes, str):
        ranks = f"$(({queue.NODE_COUNT} * {request.ranks_per_node or 1}))"
    if request.launcher == "mpirun":
        return f"{python} -m mpi_runtime run -n {ranks} -m mpi_runtime {words}"
    return f"{request.launcher} -n {ranks} {python} -m mpi_runtime {words}"


def _argument(word: str, request: Request, queue: Queue) -> str:
    if request.array is None or TASK not in word:
        return shlex.quote(word)
    return f'"${queue.TASK}"'.join(shlex.quote(part) if part else "" for part in word.split(TASK))


def _expanded(value: str) -> str:
    """Return a shell word in which variables and a leading `~` are expanded, and nothing else."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", value):
        return value
    if value == "~" or value.startswith("~/"):
        value = f"$HOME{value[1:]}"
    quoted = re.sub(r'["`]', r"\\\g<0>", value)
    quoted = re.sub(r"\\(?![$\"`])", r"\\\\", quoted)
    return '"' + re.sub(r"(?<!\\)\$(?![A-Za-z_]|\{[A-Za-z_]\w*\})", r"\\$", quoted) + '"'
