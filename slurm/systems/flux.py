"""Flux: flux batch, flux jobs and flux cancel; its part of the batch script.

Written by the manual pages flux-batch(1), flux-jobs(1), flux-job(1) and flux-hostlist(1) of flux-core 0.60 to 0.80;
tried with a stand-in only. What they say, and decides much below:

- A batch script is the first program of a Flux of its own. It has no FLUX_JOB_ID: FLUX_ENCLOSING_ID and `flux getattr
  jobid` have it, and `flux --parent` reaches the Flux that has started it. So the batch script sets a variable with
  what we need.
- There are no arrays of batch scripts.
- A job cannot be queued again, so it has a successor (`lives.py`).
- At the end of the time and at a cancel a job gets SIGTERM, and SIGKILL five seconds later.
"""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import cast

from mpi_runtime.slurm import commands, nodelist
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.request import Request, seconds
from mpi_runtime.slurm.status import Granted, Status
from mpi_runtime.slurm.systems import devices, lives, variables
from mpi_runtime.slurm.systems.lives import Facts, Found, number, part, text
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "flux"
COMMAND: str = "flux"
LAUNCHER: Mapping[str, str] = {}
CANCEL: str = "flux cancel"
TASK: str = "FLUX_JOB_CC"
JOB: str = lives.JOB
ARRAY_JOB: str = lives.OF_TASK % TASK
ARRAY_MAX: int = 1
NODE_COUNT: str = "FLUX_JOB_NNODES"
MISTAKES: str = "Flux then calls the job COMPLETED"
SIGNALS: str = """\
trap 'hand_on USR1' USR1 URG
trap 'ended=1; kill -TERM $launcher 2>/dev/null' HUP  # of the first program, when its Flux ends
for signal in INT USR2; do trap "hand_on $signal" $signal; done
"""
LAUNCH: str = "{launch} &"
REQUEUE: str = lives.REQUEUE.replace("CANCEL", "flux --parent cancel")
PASSING: tuple[str, ...] = ("unable to connect to flux", "error connecting to flux", "lost connection")
FULL: tuple[str, ...] = ("max number of jobs submitted",)
UNKNOWN: tuple[str, ...] = ("flux does not know the job",)
CURES = (
    ("invalid queue", "The queues there are: flux queue list"),
    ("unsatisfiable", "What the nodes have: flux resource list"),
    ("requested duration exceeds", "The limits of each queue: flux queue list"),
    ("bank", "Your banks: flux account view-user $USER"),
    ("unable to connect to flux", "There is no Flux here: use a login node of the cluster, or flux start."),
)
PLACE = "MPI_RUNTIME_FLUX"
"""The variable of a batch script: the id of its job, the CPUs and ranks on each node, and the names of the nodes."""
_LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_OF_A_JOB = r"FLUX_JOB_|FLUX_TASK_|FLUX_ENCLOSING_|" + PLACE
_CALLS_LIMIT_S = 10.0
_call = functools.partial(commands.call, cures=CURES, whose="Flux")


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a task that Flux has started, or of a batch script."""
    return bool(env.get(PLACE) or env.get("FLUX_JOB_ID") or env.get("FLUX_ENCLOSING_ID"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variable of a batch script of `submit`. Tasks and other scripts know their id alone."""
    if not env.get(PLACE):
        job = env.get("FLUX_JOB_ID") or env["FLUX_ENCLOSING_ID"]
        return Allocation(system=NAME, job=decimal(job), gpus=devices.listed(env))
    words = variables.read(env, [PLACE], _words)
    cpus, each = variables.number(words[1]), variables.number(words[2]) or 1
    nodes = tuple(words[3:])
    return Allocation(
        system=NAME,
        job=lives.first(env, decimal(words[0])),
        nodes=nodes,
        tasks=(each,) * len(nodes),
        cpus=(cpus,) * len(nodes) if cpus else (),
        gpus=devices.listed(env),
        restarts=lives.restarts(env),
    )


def _words(text: str) -> list[str]:
    words = text.split()
    if len(words) < 3:
        raise ValueError("it must have a job, CPUs, ranks and nodes")
    nodelist.check_number(len(words))
    return words


def decimal(job: str) -> str:
    """Return the decimal form of an id, which Flux prints in base 58 as ƒ2ocEvDUtBb; other text as it is."""
    if not re.fullmatch(f"[ƒf][{_LETTERS}]+", job):
        return job
    number = 0
    for letter in job[1:]:
        number = 58 * number + _LETTERS.index(letter)
    return str(number)


def question(own: Allocation) -> Question:
    """Ask for the seconds that are left of the job around this process."""
    return ["flux", "job", "timeleft"], _end


def _end(text: str, now: float) -> float | None:
    found = re.fullmatch(r"\d+(\.\d+)?", text.strip())
    return now + float(text) if found else None


def complete(request: Request) -> Request:
    """Return the request: Flux gives whole nodes if that is requested."""
    return request


def check(request: Request) -> None:
    """Raise ValueError for what Flux does not have."""
    lives.check(request, "Flux", array=True)
    if request.memory is not None:
        raise ValueError("Flux has no memory to request: leave out memory (--memory)")


def header(request: Request, name: str) -> list[str]:
    """Return the lines of the batch script with the options of a job of this name, and those that begin it."""
    limit_s = seconds(request.time)
    options = [f"--job-name={name}", "--output=/dev/null", f"--nodes={request.nodes}"]
    if request.cpus_per_node is None:
        options.append("--exclusive")
    if request.cpus_per_node is not None or request.gpus_per_node:
        options.append(f"--nslots={request.nodes_max}")
    for is_wanted, option in (
        (request.cpus_per_node, f"--cores-per-slot={request.cpus_per_node}"),
        (request.gpus_per_node, f"--gpus-per-slot={request.gpus_per_node}"),
        (limit_s < 1e9, f"--time-limit={min(limit_s, 1e9):.0f}s"),
        (request.partition, f"--queue={request.partition}"),
        (request.account, f"--bank={request.account}"),
        (request.qsub, " ".join(request.qsub)),
    ):
        if is_wanted:
            options.append(option)
    options += [f"--dependency=afterany:{job}" for job in (request.after or "").split(",") if job]
    cpus, ranks = request.cpus_per_node or "-", request.ranks_per_node or 1
    return [
        *(f"# flux: {option}" for option in options),
        "own=$(flux job id --to=dec $(flux getattr jobid))",
        f'export {PLACE}="$own {cpus} {ranks} $(flux hostlist --local --expand)"',
        *lives.begin(request, name, "$own", TASK),
    ]


def output(request: Request, name: str) -> str:
    """Return the name of the output file, as the script has it."""
    return f"{name}-{JOB}.out"


before = lives.clock


def after(request: Request) -> list[str]:
    """Flux notices by itself that a node has failed."""
    return []


def submit(text: str, cwd: str | None) -> str:
    """Submit a batch script and return the id of its job, in decimal form.

    Raises:
        SlurmError: Flux refused. The message says why.
    """
    return _submit(text, cwd)


def _submit(text: str, cwd: str | None, *options: str) -> str:
    answer = _call(["flux", *_parent(), "batch", *options], cwd, text, env=lives.without_job(_OF_A_JOB))
    job = decimal(answer.strip().splitlines()[-1])
    if not job.isdecimal():
        raise SlurmError(f"flux batch has not answered with the id of a job: {answer.strip()!r}")
    lives.keep(text, job, cwd)
    return job


def statuses(job: str) -> list[Status]:
    """Return the status of a job.

    Raises:
        SlurmError: Flux does not know the job, or does not answer.
    """
    return lives.statuses(job, _look, "Flux")


def _look(job: str) -> list[Found]:
    try:
        answer = _call(["flux", *_parent(), "jobs", "-a", "--json", job])
    except SlurmError as error:
        if re.search("unknown|not found|invalid", str(error).lower()):
            return []
        raise
    try:
        facts = cast(Facts, json.loads(answer))
    except ValueError as error:
        raise SlurmError(f"flux jobs --json has not answered with JSON: {error}") from None
    return [_found(facts)] if "id" in facts else []


def _found(facts: Facts) -> Found:
    state, result = text(facts, "state"), text(facts, "result")
    start_s, limit_s = number(facts, "t_run"), number(facts, "duration") or None
    code, end_s, reason, advice = None, None, "", ""
    if state == "INACTIVE":
        status, problem = int(number(facts, "returncode") or 0), part(facts, "exception")
        code, end_s = (128 - status if -128 < status < 0 else abs(status)), number(facts, "t_inactive")
        reason = text(problem, "note") if problem.get("occurred") else ""
        state = {"CANCELED": "CANCELLED"}.get(result, result)
    elif state in ("RUN", "CLEANUP"):
        state = "RUNNING"
    else:
        sched = part(part(facts, "annotations"), "sched")
        reason, start_s = text(sched, "reason_pending"), number(sched, "t_estimate")
        if facts.get("dependencies"):
            reason, advice = "dependency", "it waits for another job"
        elif facts.get("urgency") == 0:
            reason, advice = "hold", f"it is held: flux job urgency {facts['id']} default"
        state = "PENDING"
    nodes = ",".join(nodelist.expand(text(facts, "nodelist")))
    return Found(
        decimal(text(facts, "id")), text(facts, "name"), text(facts, "cwd"), state, reason, code, nodes, start_s,
        end_s, limit_s, advice,
    )  # fmt: skip


def living(name: str) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id.

    Raises:
        SlurmError: Flux does not answer.
    """
    answer = json.loads(_call(["flux", *_parent(), "jobs", "--json", f"--name={name}"]) or "{}")
    return lives.of_name([_found(one) for one in cast("list[Facts]", answer.get("jobs", []))], name)


def _parent() -> list[str]:
    """In a batch job its own Flux knows none of the jobs beside it."""
    return ["--parent"] if environment().get(PLACE) else []


def cancel(job: str) -> None:
    """Cancel a job, even if it runs. A job that has ended is left as it is.

    Raises:
        SlurmError: Flux does not answer.
    """
    for one in lives.lives(job):
        _cancel(one)


end = cancel


def _cancel(job: str) -> None:
    try:
        _call(["flux", *_parent(), "cancel", job])
    except SlurmError as error:
        if not re.search("inactive|unknown|not found", str(error).lower()):
            raise


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started.

    Raises:
        SlurmError: Flux does not answer.
    """
    for job in jobs:
        if any(one.state == "PENDING" for one in _look(job)):
            cancel(job)


def cluster() -> str:
    """Return the name of the cluster; Flux has none, but that of its nodes."""
    return ""


def granted(job: str) -> dict[str, Granted]:
    """CPUs and memory of each node are not counted."""
    return {}


def largest_node(partition: str | None) -> float:
    """Return the most cores of a node; infinite if Flux does not answer."""
    try:
        rows = _call(["flux", "resource", "list", "-n", "-o", "{nnodes} {ncores}"], limit_s=_CALLS_LIMIT_S).splitlines()
    except SlurmError:
        return math.inf
    counts = [line.split() for line in rows if re.fullmatch(r"[1-9]\d* \d+", line.strip())]
    return max((int(cores) / int(nodes) for nodes, cores in counts), default=math.inf)


def allow_requeue(own: Allocation) -> bool:
    """Submit a job that begins when this one has ended, and continues it."""
    dependency = f"--dependency=afterany:{lives.own_id(own, PLACE).partition(' ')[0]}"
    return lives.allow_requeue(own, lambda text, cwd: _submit(text, cwd, dependency), "Flux")


def requeue(own: Allocation) -> None:
    """Nothing: the successor begins when this job has ended."""
