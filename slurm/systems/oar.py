"""OAR: oarsub, oarstat, oardel and oarnodes; the variables of a job; its part of the batch script.

Tried with OAR 2.5.9 and its PostgreSQL. What was seen there and in its programs, and decides much below:

- OAR keeps no copy of a script, and a job has no environment but that of a fresh shell. So `NAME-JOB.job`, which only
  its owner can read, has the script and the environment of `submit`; OAR shows commands of jobs to everybody.
- oardel and the end of the time kill at once: no process gets SIGTERM. `--checkpoint` sends the signal before the end,
  at the first of OAR's looks every 10 s, and again at each look after it.
- A job of type idempotent that ends with 99 after more than 60 s is queued again as a new one with the same array id
  and index, and other jobs that wait for it wait for the new one. So the array id is the id of a job to its user.
- The database keeps jobs that have ended.
"""

import functools
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from mpi_runtime.slurm import commands, exit_file
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.request import Request, seconds
from mpi_runtime.slurm.status import CANNOT_WRITE, Granted, Status
from mpi_runtime.slurm.systems import devices, lives, variables
from mpi_runtime.slurm.systems.lives import Facts, Found, number, part, text
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "oar"
COMMAND: str = "oarsub"
CANCEL: str = "oardel"
TASK: str = "OAR_ARRAY_INDEX"
JOB: str = lives.JOB
ARRAY_JOB: str = lives.OF_TASK % TASK
ARRAY_MAX: int = 1000
NODE_COUNT: str = "OAR_NODES"
MISTAKES: str = "OAR then calls the job terminated"
SIGNALS: str = lives.SIGNALS
LAUNCH: str = "{launch} &"
AGAIN_S = 60
"""OAR queues no job again that has run for less."""
REQUEUE: str = f"""\
exit() {{  # 99 has a meaning of its own to OAR; that of the program is in the file
    [ -z "$ended" ] || [[ $state = [0-9]* ]] || builtin exit 143  # whatever code the launcher has after SIGTERM
    [ "$1" != 99 ] || builtin exit 98
    builtin exit "$1"
}}
requeue() {{
    [ -z "$ended" ] || exit 1  # OAR itself sends no SIGTERM: somebody ends this job
    echo "requeue $((restarts + 1))" >"$left"
    [ $SECONDS -gt {AGAIN_S + 2} ] || sleep $(({AGAIN_S + 3} - SECONDS))  # a shorter job would not be queued again
    builtin exit 99
}}
[ "$state" = requeue ] || rm -f "${{left%.exit}}.job"
"""
PASSING: tuple[str, ...] = ("cannot connect to executor", "db connection error", "connection refused")
FULL: tuple[str, ...] = ()
UNKNOWN: tuple[str, ...] = ("oar does not know the job",)
CURES = (
    ("not enough resources", "The nodes there are, with their cores: oarnodes"),
    ("bad resource request", "The properties of nodes, which sites name: oarnodes"),
    ("queue", "The queues there are: oarnodes -s shows nodes, your site names its queues"),
    ("admission rule", "A rule of your site: its documentation says why"),
    ("cannot connect to executor", "The server does not answer; oarstat shows when it is back."),
)
LAUNCHER: Mapping[str, str] = {
    "OMPI_MCA_plm_rsh_agent": "oarsh",
    "PRTE_MCA_plm_ssh_agent": "oarsh",
    "HYDRA_LAUNCHER_EXEC": "oarsh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": "oarsh",
}
"""Variables by which launchers reach other nodes of a job: Open MPI 4 and 5, MPICH, Intel MPI."""
_BEGIN = """\
restarts=0
{{ read -r state restarts <"$PWD/{name}-{job}.exit"; }} 2>/dev/null
[ "$state" = requeue ] || restarts=0"""
_RUN = """exec bash -c 'f={name}-$OAR_ARRAY_ID.job
for i in {{1..600}}; do [ -s "$f" ] && exec bash "$f"; sleep 0.1; done; exit {cannot_write}'"""
"""The file is written as soon as the id is known; a shared file system shows it late."""
_OF_A_SHELL = (
    r"OAR|_$|PWD$|OLDPWD$|SHLVL$|HOSTNAME$|TERM$|DISPLAY$|XAUTHORITY$|SSH_|XDG_|DBUS_|PERL5LIB$|BASH_ENV$|SUDO_"
)
_STATES = {
    "Waiting": "PENDING", "Hold": "PENDING", "toLaunch": "PENDING", "toAckReservation": "PENDING",
    "Launching": "PENDING", "Running": "RUNNING", "Finishing": "RUNNING", "toError": "RUNNING",
    "Suspended": "SUSPENDED", "Resuming": "SUSPENDED", "Terminated": "COMPLETED", "Error": "FAILED",
}  # fmt: skip
_LOOK_LIMIT_S = 10.0
_call = functools.partial(commands.call, cures=CURES, whose="OAR")


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of OAR."""
    return bool(env.get("OAR_JOB_ID") and env.get("OAR_NODEFILE"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job. Its node file has a line for each core, and is as old as the job."""
    cores = variables.read(env, ["OAR_NODEFILE"], variables.names_in)
    index = variables.number(env.get(TASK))
    return Allocation(
        system=NAME,
        job=lives.first(env, env.get("OAR_ARRAY_ID") or env["OAR_JOB_ID"]),
        nodes=tuple(cores),
        tasks=tuple(cores.values()),
        cpus=tuple(cores.values()),
        gpus=devices.listed(env),
        restarts=lives.restarts(env),
        array_task=index if lives.LIFE in env or index != 1 else None,  # each job is the first of an array
        end_s=_end_by_file(env),
    )


def _end_by_file(env: Mapping[str, str]) -> float | None:
    limit_s = variables.number(env.get("OAR_JOB_WALLTIME_SECONDS"))
    try:
        return None if limit_s is None else os.stat(env["OAR_NODEFILE"]).st_mtime + limit_s
    except OSError:
        return None


def question(own: Allocation) -> Question:
    """Ask oarstat for the start and the time, which oarwalltime may have changed."""
    job = lives.own_id(own, "OAR_JOB_ID")

    def end(answer: str, now: float) -> float | None:
        facts = _jobs(answer).get(job, {})
        start_s, limit_s = number(facts, "startTime"), number(facts, "walltime")
        return start_s + limit_s if start_s and limit_s is not None else None

    return ["oarstat", "-f", "-J", "-j", job], end


def complete(request: Request) -> Request:
    """Nothing is missing: without a number of CPUs OAR gives whole nodes."""
    return request


def check(request: Request) -> None:
    """Raise ValueError for what OAR does not have."""
    lives.check(request, "OAR")
    if request.array is not None and not re.fullmatch(r"1-[1-9]\d*", request.array):
        raise ValueError(f"array must be like '1-9' for OAR, which counts from 1, not {request.array!r}")
    if request.memory is not None:
        raise ValueError("OAR has no memory of jobs: state a property of nodes, as --qsub=-p --qsub='mem > 64'")
    if request.gpus_per_node and request.cpus_per_node is not None:
        raise ValueError("OAR gives cores with GPUs: leave out cpus_per_node, or state resources by --qsub=-l")


def header(request: Request, name: str) -> list[str]:
    """Return the lines of the batch script with the options of a job of this name, and those that begin it."""
    each = f"/core={request.cpus_per_node}" if request.cpus_per_node is not None else ""
    each = f"/gpu={request.gpus_per_node}" if request.gpus_per_node else each
    limit_s = seconds(request.time)
    time = f",walltime={lives.span(limit_s)}" if limit_s < 1e9 else ""
    options = [f"-n {name}", "-t idempotent", "-O /dev/null", "-E /dev/null", f"-l nodes={request.nodes}{each}{time}"]
    for is_wanted, option in (
        (request.partition, f"-q {request.partition}"),
        (request.account, f"--project {request.account}"),
        (request.array, f"--array {(request.array or '').removeprefix('1-')}"),
        (request.warn_s, f"--checkpoint {request.warn_s} --signal 10"),
        *((True, f"-a {job}") for job in (request.after or "").split(",") if job),
        (request.qsub, shlex.join(request.qsub)),
    ):
        if is_wanted:
            options.append(option)
    own, job = "$OAR_ARRAY_ID", f"$OAR_ARRAY_ID{f'_${TASK}' if request.array else ''}"
    begin = [] if request.array else [f"unset {TASK} OAR_ARRAYINDEX  # each job is the first of an array"]
    begin += [_BEGIN.format(name=name, job=job), *lives.begin(request, name, own, TASK, "$restarts")]
    begin += [f"export {variable}=${{{variable}:-{value}}}" for variable, value in LAUNCHER.items()]
    return [f"#OAR {option}" for option in options] + begin


def output(request: Request, name: str) -> str:
    """Return the name of the output file, as the script has it."""
    return f"{name}-{ARRAY_JOB if request.array else JOB}.out"


def before(request: Request) -> list[str]:
    """OAR sends the signal before the end."""
    return []


def after(request: Request) -> list[str]:
    """OAR notices by itself that a node has failed."""
    return []


def submit(text: str, cwd: str | None) -> str:
    """Submit a batch script and return the id of its job, the array id.

    Raises:
        SlurmError: OAR refused. The message says why.
    """
    place = Path(cwd or ".").resolve()
    words = [word for line in re.findall(r"^#OAR (.*)$", text, re.MULTILINE) for word in shlex.split(line)]
    name = words[words.index("-n") + 1] if "-n" in words else "job"
    options: list[str] = []
    for word in words:  # whoever waits for an array waits for each task of it
        earlier = _look(word) if options[-1:] == ["-a"] else []
        options += [id for one in earlier for id in ("-a", one.job)][1:] or [word]
    command = _RUN.format(name=name, cannot_write=CANNOT_WRITE)
    answer = _call(["oarsub", *options, "-d", str(place), command], str(place))
    found = re.search(r"^OAR_ARRAY_ID=(\d+)", answer, re.MULTILINE) or re.search(
        r"^OAR_JOB_ID=(\d+)", answer, re.MULTILINE
    )
    if found is None:
        raise SlurmError(f"oarsub has not answered with the id of a job: {answer.strip()!r}")
    lives.keep(text, found[1], cwd, has_successor=False)
    path = place / f"{name}-{found[1]}.job"
    try:
        path.unlink(missing_ok=True)
        with open(os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write("".join(_exports()) + text)
        path.with_suffix(".new").rename(path)
    except OSError as error:
        cancel(found[1])
        raise SlurmError(f"the script of job {found[1]} cannot be written, so it was cancelled: {error}") from None
    return found[1]


def _exports() -> list[str]:
    """Return lines of shell that make the environment of this process."""
    lines: list[str] = []
    for name, value in lives.without_job(_OF_A_SHELL).items():
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            lines.append(f"export {name}={shlex.quote(value)}\n")
        elif found := re.fullmatch(r"BASH_FUNC_([\w-]+)%%", name):  # a function, such as `module`
            lines.append(f"{found[1]} {value}\nexport -f {found[1]}\n")
    return lines


def statuses(job: str) -> list[Status]:
    """Return the status of a job, or of each task of an array.

    Raises:
        SlurmError: OAR does not know the job, or does not answer.
    """
    return lives.statuses(job, _named, "OAR")


def _named(job: str) -> list[Found]:
    """Return each task of a job as its user names it: the id of the array, and the index if there are several."""
    found = _latest(job)
    is_array = len(found) > 1 or any("--array" in text(facts, "initial_request") for facts in found)
    return [
        _found(f"{text(one, 'array_id')}_{text(one, 'array_index')}" if is_array else text(one, "array_id"), one)
        for one in found
    ]


def _look(job: str) -> list[Found]:
    """Return each task of a job in its latest life, with the id that OAR has for it."""
    return [_found(text(facts, "Job_Id"), facts) for facts in _latest(job)]


def _latest(job: str) -> list[Facts]:
    first, _, index = job.partition("_")
    jobs = _jobs(_call(["oarstat", "-f", "-J", "--array", first]))
    if not jobs and (other := _jobs(_call(["oarstat", "-f", "-J", "-j", first])).get(first)):
        return _latest(f"{text(other, 'array_id')}_{text(other, 'array_index')}")
    latest: dict[int, Facts] = {}
    for _, facts in sorted(jobs.items(), key=lambda one: int(one[0])):
        latest[int(number(facts, "array_index") or 1)] = facts
    return [facts for task, facts in sorted(latest.items()) if not index or task == int(index)]


def _jobs(answer: str) -> dict[str, Facts]:
    try:
        found: Facts = json.loads(answer or "{}", strict=False)
    except ValueError as error:
        raise SlurmError(f"oarstat -J has not answered with JSON: {error}") from None
    return {name: part(found, name) for name in found}


def _found(job: str, facts: Facts) -> Found:
    word, code, advice = text(facts, "state"), None, ""
    state, reason = _STATES.get(word, word.upper()), ""
    start_s, end_s, limit_s = (number(facts, name) or None for name in ("startTime", "stopTime", "walltime"))
    if state == "PENDING":
        start_s = number(facts, "scheduledStart") or None
        message = text(facts, "message")
        reason = "dependency" if facts.get("dependencies") else message if not message.startswith("R=") else ""
        if word == "Hold":
            reason, advice = "hold", f"it is held: oarresume {text(facts, 'Job_Id')}"
    elif word in ("Terminated", "Error"):
        status = number(facts, "exit_code")
        if status is not None:
            code = int(status) >> 8 or (128 + (int(status) & 127) if int(status) & 127 else 0)
        used_s = end_s - start_s if start_s is not None and end_s is not None else None
        state, reason = _ended(facts, code, used_s, limit_s)
    nodes = ",".join(map(str, _several(facts, "assigned_network_address")))
    return Found(
        job, text(facts, "name"), text(facts, "launchingDirectory"), state, reason, code,
        nodes, start_s, end_s, limit_s, advice,
    )  # fmt: skip


def _several(facts: Facts, name: str) -> list[object]:
    found = facts.get(name)
    return cast(list[object], found) if isinstance(found, list) else []


def _ended(facts: Facts, code: int | None, used_s: float | None, limit_s: float | None) -> tuple[str, str]:
    kinds = [text(cast(Facts, one), "type") for one in _several(facts, "events") if isinstance(one, dict)]
    if "WALLTIME" in kinds:
        return "TIMEOUT", ""
    if code is not None and text(facts, "state") == "Terminated":
        return lives.ended(code, used_s, limit_s), ""
    if any(kind.startswith("FRAG_JOB") for kind in kinds):
        return "CANCELLED", ""
    own = [kind for kind in kinds if not kind.startswith("SWITCH_INTO")]
    return "FAILED", own[-1] if own else text(facts, "message")


def living(name: str) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id.

    Raises:
        SlurmError: OAR does not answer.
    """
    own = _jobs(_call(["oarstat", "-f", "-J", "-u"])).items()
    return lives.of_name([_found(job, facts) for job, facts in own], name)


def cancel(job: str) -> None:
    """Cancel a job, or one task of an array, even if it runs. A job that has ended is left as it is.

    Raises:
        SlurmError: OAR does not answer.
    """
    _delete([one.job for one in _look(job) if one.state in ("PENDING", "RUNNING", "SUSPENDED")])


def end(job: str) -> None:
    """Cancel a job that waits, and send SIGTERM to the script of one that runs.

    Raises:
        SlurmError: OAR does not answer.
    """
    found = _look(job)
    _delete([one.job for one in found if one.state in ("PENDING", "SUSPENDED")])
    _delete([one.job for one in found if one.state == "RUNNING"], "-s", "TERM")


def _delete(jobs: Sequence[str], *options: str) -> None:
    if jobs:
        _call(["oardel", *options, *jobs])


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started.

    Raises:
        SlurmError: OAR does not answer.
    """
    for job in jobs:
        _delete([one.job for one in _look(job) if one.state == "PENDING"])


def cluster() -> str:
    """OAR has no name of a cluster that its users can ask for."""
    return ""


def granted(job: str) -> dict[str, Granted]:
    """The cores of a job are in its node file; memory is not counted."""
    return {}


def largest_node(partition: str | None) -> float:
    """Return the most cores of a node; infinite if OAR does not answer."""
    try:
        resources = _jobs(_call(["oarnodes", "-J"], limit_s=_LOOK_LIMIT_S))
    except SlurmError:
        return math.inf
    cores = Counter(text(one, "network_address") for one in resources.values() if text(one, "type") == "default")
    return max(cores.values(), default=math.inf)


def allow_requeue(own: Allocation) -> bool:
    """Raise SlurmError unless the script of the job can end with 99, and its time is long enough."""
    if exit_file.current is None:
        raise SlurmError(
            "OAR queues a job again if it is of type idempotent and ends with exit code 99. Scripts of mpi-runtime "
            "submit are and do; submit this one as oarsub -t idempotent, let it end with 99, and save first"
        )
    limit_s = variables.number(environment().get("OAR_JOB_WALLTIME_SECONDS"))
    if limit_s is not None and limit_s < AGAIN_S + 15:
        raise SlurmError(
            f"OAR queues no job again that has run for less than {AGAIN_S} s, and this one has {limit_s} s in all. "
            "Request at least 2 minutes (--time 2:00)"
        )
    return True


def requeue(own: Allocation) -> None:
    """Nothing: the batch script ends with 99 as soon as the program has ended."""
