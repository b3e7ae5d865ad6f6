"""What batch systems other than Slurm and Grid Engine have in common.

The batch script writes the output itself, because some systems copy it only at the end, or have no pattern for the id
in its name. It has a clock for the signal before the end. A job that cannot be queued again under its own id has a
successor: a job with the same script that begins when this one has ended. Three files lie beside the exit file:

- `NAME-JOB.out`: the output of all lives
- `NAME-JOB.job`: the script, as long as the job may need it once more
- `NAME-JOB.next`: the id of the latest successor

To the user JOB, the id of the first life, stays the id of them all: `statuses` and `cancel` of it find the latest.
"""

import glob
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, cast

from mpi_runtime.slurm import exit_file
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.request import Request, seconds
from mpi_runtime.slurm.status import CANNOT_WRITE, ENDED, Status, task_numbers
from mpi_runtime.slurm.systems import devices, variables
from mpi_runtime.slurm.systems.system import Allocation

LIFE = "MPI_RUNTIME_LIFE"
"""The variable with the id of the first life, and the number of restarts."""
JOB, OF_TASK = "$job", "${job}_$%s"
"""The id of the first life as a word of the batch script; the same for a task, whose index a variable has."""
SIGNALS = """\
trap 'hand_on USR1' USR1 URG
for signal in INT HUP USR2; do trap "hand_on $signal" $signal; done
"""
CLOCK = """\
(trap 'kill $!; exit' TERM; sleep {seconds} & wait $! && kill -URG $$) &
clock=$!
trap 'kill $clock 2>/dev/null' EXIT
"""
REQUEUE = """\
exit() {
    [ -z "$ended" ] || [[ $state = [0-9]* ]] || builtin exit 143  # whatever code the launcher has after SIGTERM
    builtin exit "$1"
}
requeue() { builtin exit 0; }  # the successor is there already, and waits for the end of this job
if [ -n "$ended" ] && [ "$state" = requeue ] && [ $SECONDS -lt $earliest ]; then
    CANCEL "$(<"${left%.exit}.next")"  # long before the end of the time only a deletion sends SIGTERM
    rm -f "${left%.exit}.next"
    state=
fi
[ "$state" = requeue ] || rm -f "${left%.exit}.job"
"""
"""For a job with a successor; CANCEL stands for the command that deletes it."""
_KILL_S = 90
"""Seconds before the end of the time in which SIGTERM announces it."""
LATE_S = 10.0
"""Seconds until a shared file system shows the exit file of a job that the batch system has just forgotten."""
_PAUSE_S = 0.5
_KINDS = (".exit", ".job")
places: dict[str, tuple[str, str]] = {}
"""Names and directories of jobs that were seen: some systems forget a job at its end."""
_continued = False
"""Whether the job of this process has a successor."""


class Found(NamedTuple):
    """What a batch system says of a job, or of a task of an array."""

    job: str
    """The id; 12_3 for a task."""
    name: str
    place: str
    """The directory in which it was submitted."""
    state: str
    """In Slurm's words."""
    reason: str = ""
    code: int | None = None
    nodes: str = ""
    start_s: float | None = None
    end_s: float | None = None
    limit_s: float | None = None
    advice: str = ""


Facts = Mapping[str, object]
"""A part of an answer in JSON."""


def part(facts: Facts, name: str) -> Facts:
    """Return the table of this name; empty if it is not stated."""
    found = facts.get(name)
    return cast(Facts, found) if isinstance(found, dict) else {}


def text(facts: Facts, name: str) -> str:
    """Return the value of this name as text; empty if it is not stated."""
    return str(facts.get(name) or "")


def number(facts: Facts, name: str) -> float | None:
    """Return the number of this name; None: it is not stated."""
    found = facts.get(name)
    return found if isinstance(found, (int, float)) else None


Look = Callable[[str], list[Found]]
"""Asks a batch system for a job: each task of an array; empty if it does not know the job."""


def begin(request: Request, name: str, own: str, task: str, restarts: str = "0") -> list[str]:
    """Return the first lines of a batch script: `own` is the id of its job, as `restarts` a word of the shell."""
    word, limit_s = OF_TASK % task if request.array else JOB, seconds(request.time)
    return [
        f"earliest={max(0, limit_s - _KILL_S) if limit_s < 1e9 else 0:.0f}",
        f'export {LIFE}="{own} {restarts}"',
        f"job=${{{LIFE}% *}}",
        f'exec >>"$PWD/{name}-{word}.out" 2>&1 || exit {CANNOT_WRITE}',
    ]


def clock(request: Request) -> list[str]:
    """Return the lines that announce the end, if that was requested."""
    if request.warn_s is None:
        return []
    return [CLOCK.format(seconds=f"{max(1, seconds(request.time) - request.warn_s):.0f}")]


def without_job(variables: str) -> dict[str, str]:
    """Return the environment without the variables of the job around this process; a pattern finds those."""
    own = re.compile("|".join((variables, LIFE, "PMI", "PMIX_", "OMPI_COMM_WORLD_", *devices.OF_JOB)))
    return {name: value for name, value in environment().items() if not own.match(name)}


def keep(text: str, job: str, cwd: str | None, has_successor: bool = True) -> None:
    """Remember where a job was submitted, and keep its script if it may have a successor."""
    place = Path(cwd or ".").resolve()
    found = re.search(r'^left="\$PWD/(.+)-\$(job|\{job\}_.*)\.exit"$', text, re.MULTILINE)
    if found is None or f'export {LIFE}="$' not in text:
        return  # of another author, or a successor
    places[job] = (found[1], str(place))
    if found[2] == "job" and has_successor:  # no array
        with suppress(OSError):  # the job cannot be queued again, and says why
            (place / f"{found[1]}-{job}.job").write_text(text)


def first(env: Mapping[str, str], own: str) -> str:
    """Return the id of the first life of this job, which `submit` has printed; `own` if `submit` has not made it."""
    found = re.fullmatch(r"(\d+) \d+", env.get(LIFE, ""))
    return found[1] if found else own


def own_id(own: Allocation, variable: str) -> str:
    """Return the id of this life of a job: the value of a variable, if it is the job of this process."""
    env = environment()
    return env.get(variable, own.job) if first(env, "") == own.job else own.job


def restarts(env: Mapping[str, str]) -> int:
    """Return how many lives of this job there were before."""
    found = re.fullmatch(r"\d+ (\d+)", env.get(LIFE, ""))
    return int(found[1]) if found else 0


def allow_requeue(own: Allocation, submit: Callable[[str, str], str], whose: str) -> bool:
    """Submit the successor of the job of this process. Return whether there is one now.

    Raises:
        SlurmError: the job was not submitted by `submit`, is a task of an array, or the batch system refused.
    """
    global _continued
    if exit_file.current is None:
        raise SlurmError(
            f"{whose} does not queue jobs of users again. Jobs of mpi-runtime submit submit themselves once more; "
            "save, and submit this one yourself"
        )
    if own.array_task is not None:
        raise SlurmError(f"a task of an array cannot be submitted alone to {whose}: save, and submit the array again")
    if _continued:
        return True
    path = Path(exit_file.current.path)
    try:
        text = path.with_suffix(".job").read_text()
    except OSError as error:
        raise SlurmError(f"the job cannot be submitted again: {error}") from None
    life = f"{own.job} {own.restarts + 1}"
    text = re.sub(rf'^export {LIFE}=".*"$', f'export {LIFE}="{life}"', text, flags=re.MULTILINE)
    following = submit(text, str(path.parent))
    path.with_suffix(".next").write_text(f"{following}\n")
    _continued = True
    return True


def statuses(job: str, look: Look, whose: str) -> list[Status]:
    """Return the status of a job in its latest life, or of each task of an array.

    Raises:
        SlurmError: the batch system does not know the job, and no exit file has its end.
    """
    first, _, task = job.partition("_")
    found = look(first)
    for one in found:
        places[first] = (one.name, one.place)
    if first not in places and (files := [one for one in Path.cwd().glob(f"*-{first}*") if one.suffix in _KINDS]):
        places[first] = (files[0].stem.rpartition("-")[0], str(Path.cwd()))
    if following := _following(first):
        found = [one._replace(job=first) for one in look(following)]
    found = found or _by_file(first, whose)
    if task:
        found = [one for one in found if int(task) in task_numbers(_status(one))]
    return [_status(one) for one in found]


def of_name(found: Sequence[Found], name: str) -> dict[str, str]:
    """The state of each of these jobs that has this name and has not ended, by id."""
    return {one.job: one.state for one in found if one.name == name and one.state not in ENDED}


def lives(job: str) -> list[str]:
    """Return the ids of a job, the latest first."""
    return list(filter(None, (_following(job), job)))


def _following(first: str) -> str:
    name, place = places.get(first, ("", ""))
    try:
        return Path(place, f"{name}-{first}.next").read_text().strip() if name else ""
    except OSError:
        return ""


def _by_file(job: str, whose: str) -> list[Found]:
    """What the exit files have of a job that the batch system does not know any more."""
    if job not in places:
        raise SlurmError(f"{whose} does not know the job {job}, and there is no exit file of it in this directory")
    name, place = places[job]
    end_s = time.monotonic() + LATE_S
    while True:
        files = sorted(Path(place).glob(f"{glob.escape(f'{name}-{job}')}*.exit"))
        codes = {file.stem.removeprefix(f"{name}-"): exit_file.read(file) for file in files}
        if (codes and None not in codes.values()) or time.monotonic() > end_s:
            break
        time.sleep(_PAUSE_S)
    reason = f"{whose} has forgotten it"
    if not codes:  # it has not begun
        return [Found(job, name, place, "CANCELLED", reason)]
    return [
        Found(one, name, place, "COMPLETED" if code == 0 else "FAILED", reason, code) for one, code in codes.items()
    ]


def ended(code: int, used_s: float | None, limit_s: float | None) -> str:
    """Return the state of a job that has ended with this exit code, in Slurm's words.

    The batch script ends with 143 if it has got SIGTERM, and the program did not run to its end.
    """
    if code == 143:
        is_over = used_s is not None and limit_s is not None and used_s >= limit_s
        return "TIMEOUT" if is_over else "CANCELLED"
    return "FAILED" if code else "COMPLETED"


def _status(one: Found) -> Status:
    place = Path(one.place).resolve()
    base = place / f"{one.name}-{one.job}"
    used_s = None if one.start_s is None or one.state == "PENDING" else (one.end_s or time.time()) - one.start_s
    is_running = one.state in ("RUNNING", "SUSPENDED") and one.start_s is not None and one.limit_s is not None
    end_s = (one.start_s or 0) + (one.limit_s or 0) if is_running else one.end_s
    return Status(
        job=one.job, state=one.state, reason=one.reason, exit_code=one.code, nodes=one.nodes, name=one.name,
        start=shown(one.start_s), end=shown(end_s), time_used=span(used_s), time_limit=span(one.limit_s),
        output=f"{base}.out" if one.name and "[" not in one.job else None,
        program_exit_code=exit_file.read(Path(f"{base}.exit")), advice=one.advice,
    )  # fmt: skip


def shown(at_s: float | None) -> str:
    """Return a time as ISO 8601; empty if it is not known."""
    return "" if at_s is None else datetime.fromtimestamp(at_s).isoformat(timespec="seconds")


def span(for_s: float | None) -> str:
    """Return a number of seconds as 01:00:00; empty if it is not known."""
    if for_s is None:
        return ""
    minutes, rest = divmod(int(for_s), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def recent(text: str) -> float | None:
    """Read a time without its year, such as `Dec 28 19:56`; None: it is not in this form."""
    at_s, year = None, datetime.now().year
    for one in (year, year - 1):  # a job of December, in January
        if (at_s := variables.time(f"{one} {text}", "%Y %b %d %H:%M")) is None or at_s <= time.time() + 86400:
            break
    return at_s


def most_common(counts: Sequence[int]) -> int | None:
    """Return the number of CPUs that most nodes have; None if there are none."""
    return max(sorted(counts), key=counts.count, default=None)


def check(request: Request, whose: str, **wrong: bool) -> None:
    """Raise ValueError for what none of these systems has, and for fields that are `wrong` for one of them."""
    for is_wrong, what in (
        (isinstance(request.nodes, str), "ranges of nodes: state their number"),
        (bool(request.sbatch), "options of sbatch: state its own by --qsub"),
        (request.pe is not None, "parallel environments (pe)"),
        (request.launcher != "mpirun", "srun: leave launcher at mpirun"),
        (request.warn_s is not None and not seconds(request.time) < 1e9, "signal before an unknown end: state time"),
        (wrong.get("qos", True) and request.qos is not None, "qualities of service (qos)"),
        (not re.fullmatch(r"\d*", str(request.gpus_per_node or "")), "types of GPUs that all sites name alike: "
         "state a number, or yours by --qsub"),
        (wrong.get("array", False) and request.array is not None, "arrays of jobs: one job can run many commands by "
         "--batch"),
    ):  # fmt: skip
        if is_wrong:
            raise ValueError(f"{whose} has no {what}")
