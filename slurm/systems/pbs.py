"""PBS: qsub, qstat, qdel and pbsnodes of OpenPBS and PBS Pro; the variables of a job; its part of the batch script.

Written by the manual pages qsub(1B), qstat(1B), qdel(1B) and qrerun(1B) of OpenPBS 20 to 23, its `req_rerun.c`, and
answers that users have published; tried with a stand-in only. What they say, and decides much below:

- At qdel and at the end of the time all processes of the job get SIGTERM, and SIGKILL `kill_delay` seconds later.
- qrerun is for managers and operators, so a job is queued again as a new one (`lives.py`).
- Output is copied from the node at the end of the job, unless the script writes it itself.
- A server without history (`job_history_enable`) forgets a job at its end.

Jobs of Torque are recognised. Its qstat has no JSON, so they cannot be submitted.
"""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpi_runtime.slurm import commands
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.request import Request, seconds
from mpi_runtime.slurm.status import Granted, Status
from mpi_runtime.slurm.systems import devices, lives, variables
from mpi_runtime.slurm.systems.lives import Facts, Found, number, part, text
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "pbs"
COMMAND: str = "pbsnodes"  # Grid Engine has a qsub too
LAUNCHER: Mapping[str, str] = {}
CANCEL: str = "qdel"
TASK: str = "PBS_ARRAY_INDEX"
JOB: str = lives.JOB
ARRAY_JOB: str = lives.OF_TASK % TASK
ARRAY_MAX: int = 1000
NODE_COUNT: str = "PBS_NUM_NODES"
MISTAKES: str = "PBS then calls the job finished"
SIGNALS: str = lives.SIGNALS
LAUNCH: str = "{launch} &"
REQUEUE: str = lives.REQUEUE.replace("CANCEL", CANCEL)
PASSING: tuple[str, ...] = ("cannot connect to server", "communication failure", "pbs_iff: error returned")
FULL: tuple[str, ...] = ("would exceed", "maximum number of jobs")
UNKNOWN: tuple[str, ...] = ("pbs does not know the job",)
_WRAPPERS = (
    "Such an answer is that of Slurm's wrappers with the names of PBS commands (slurm-wlm-torque), which have no JSON. "
    'submit knows Slurm itself: --system slurm, or system = "slurm" in the profile'
)
CURES = (
    ("unknown option: x", _WRAPPERS),  # of their qstat
    ("[-b y|n]", _WRAPPERS),  # of their qsub, which takes no script from the standard input
    ("unknown queue", "The queues there are: qstat -Q"),
    ("unknown resource", "The resources of each node: pbsnodes -a"),
    ("invalid account", "Your projects are known to the site, not to PBS"),
    ("violates queue and/or server resource limits", "The limits of a queue: qstat -Q -f QUEUE"),
    ("cannot connect to server", "The server does not answer: qstat -B shows when it is back."),
)
_ANSWER_S = "%a %b %d %H:%M:%S %Y"
_NO_LONGER = ("unknown job id", "job has finished", "invalid state")
_OF_A_JOB = r"PBS_(?!DEFAULT|SERVER|CONF_FILE|EXEC|HOME)|NCPUS$|OMP_NUM_THREADS$|TMPDIR$"
_STATES = {
    "Q": "PENDING", "W": "PENDING", "T": "PENDING", "M": "PENDING", "H": "PENDING", "R": "RUNNING", "E": "RUNNING",
    "S": "SUSPENDED", "U": "SUSPENDED",
}  # fmt: skip
_LOOK_LIMIT_S = 10.0
_SIGNALLED, _OVERTIME = 256, -29
"""An exit status has the number of a signal above the first; the second is that of a job after its time."""
_call = functools.partial(commands.call, cures=CURES, whose="PBS")


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of PBS."""
    return bool(env.get("PBS_JOBID"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job. Its node file has a line for each task."""
    tasks = variables.read(env, ["PBS_NODEFILE"], variables.names_in)
    cpus = variables.number(env.get("PBS_NUM_PPN")) or variables.number(env.get("NCPUS"))
    return Allocation(
        system=NAME,
        job=lives.first(env, env["PBS_JOBID"]),
        nodes=tuple(tasks),
        tasks=tuple(tasks.values()),
        cpus=(cpus,) * len(tasks) if cpus else (),
        gpus=devices.listed(env),
        restarts=lives.restarts(env),
        array_task=variables.number(env.get("PBS_ARRAY_INDEX") or env.get("PBS_ARRAYID")),
    )


def question(own: Allocation) -> Question:
    """Ask qstat for the time that was requested, and the start."""
    return ["qstat", "-f", lives.own_id(own, "PBS_JOBID")], _end


def _end(text: str, now: float) -> float | None:
    """Add the requested time to the job's start; if the start is not stated, subtract the used time."""
    facts = dict(re.findall(r"^\s+(\S+) = (.+?)\s*$", text, re.MULTILINE))
    limit = variables.seconds(facts.get("Resource_List.walltime", ""))
    used = variables.seconds(facts.get("resources_used.walltime", ""))
    began = variables.time(facts.get("stime") or facts.get("start_time", ""), _ANSWER_S)
    if limit is None:
        return None
    if began is not None:
        return began + limit
    return None if used is None else now + limit - used


def complete(request: Request) -> Request:
    """Without a number of CPUs request those that most nodes have: PBS would give one."""
    if request.cpus_per_node is not None:
        return request
    each = request.ranks_per_node or 1
    most = lives.most_common(_cpus_of_nodes()) or each
    return replace(request, cpus_per_node=max(1, most // each) * each)


def check(request: Request) -> None:
    """Raise ValueError for what PBS does not have."""
    lives.check(request, "PBS")
    if request.array is not None and not re.fullmatch(r"\d+-\d+(:\d+)?(%\d+)?", request.array):
        raise ValueError(f"array must be like '0-9', '1-9:2' or '0-9%3' for PBS, not {request.array!r}")


def header(request: Request, name: str) -> list[str]:
    """Return the lines of the batch script with the options of a job of this name, and those that begin it."""
    chunk = [f"{request.nodes}:ncpus={request.cpus_per_node or 1}", f"mpiprocs={request.ranks_per_node or 1}"]
    chunk += [f"ngpus={request.gpus_per_node}"] if request.gpus_per_node else []
    chunk += [f"mem={request.memory}{'b' if request.memory[-1:].isalpha() else 'mb'}"] if request.memory else []
    limit_s = seconds(request.time)
    options = [
        f"-N {name}",
        "-S /bin/bash",
        "-V",
        "-j oe",
        "-o /dev/null",
        f"-r {'y' if request.requeue or request.array else 'n'}",
        f"-l select={':'.join(chunk)}",
        "-l place=scatter",
    ]
    for is_wanted, option in (
        (limit_s < 1e9, f"-l walltime={lives.span(limit_s if limit_s < 1e9 else 0)}"),
        (request.partition, f"-q {request.partition}"),
        (request.account, f"-A {request.account}"),
        (request.array, f"-J {request.array}"),
        (request.after, f"-W depend=afterany:{(request.after or '').replace(',', ':')}"),
        (request.qsub, " ".join(request.qsub)),
    ):
        if is_wanted:
            options.append(option)
    own = "${PBS_JOBID%%[.[]*}"
    return [f"#PBS {option}" for option in options] + ['cd "$PBS_O_WORKDIR"', *lives.begin(request, name, own, TASK)]


def output(request: Request, name: str) -> str:
    """Return the name of the output file, as the script has it."""
    return f"{name}-{ARRAY_JOB if request.array else JOB}.out"


before = lives.clock


def after(request: Request) -> list[str]:
    """PBS notices by itself that a node has failed."""
    return []


def submit(text: str, cwd: str | None) -> str:
    """Submit a batch script and return the number of its job.

    Raises:
        SlurmError: PBS refused. The message says why.
    """
    return _submit(text, cwd)


def _submit(text: str, cwd: str | None, *options: str) -> str:
    answer = _call(["qsub", *options], cwd, text, env=lives.without_job(_OF_A_JOB))
    job = re.match(r"\d+", answer.strip().splitlines()[-1])
    if job is None:
        raise SlurmError(f"qsub has not answered with the id of a job: {answer.strip()!r}")
    lives.keep(text, job[0], cwd)
    return job[0]


def statuses(job: str) -> list[Status]:
    """Return the status of a job, or of each task of an array.

    Raises:
        SlurmError: PBS does not know the job, or does not answer.
    """
    return lives.statuses(job, _look, "PBS")


def _look(job: str) -> list[Found]:
    for name in (job, f"{job}[]"):
        try:
            facts = _jobs(_call(["qstat", "-x", "-t", "-f", "-F", "json", name]))
        except SlurmError as error:
            if not any(words in str(error).lower() for words in _NO_LONGER):
                raise
            continue
        if facts:
            return [_found(one, about) for one, about in facts.items() if "[]" not in one]
    return []


def _jobs(answer: str) -> dict[str, Facts]:
    try:
        found = part(json.loads(answer, strict=False), "Jobs")  # PBS does not mask what variables have
    except ValueError as error:
        raise SlurmError(f"qstat -F json has not answered with JSON: {error}") from None
    return {name: part(found, name) for name in found}


def _found(name: str, facts: Facts) -> Found:
    found = re.match(r"(\d+)(?:\[(\d+)\])?", name)
    job = "_".join(filter(None, found.groups())) if found else name
    resources = part(facts, "Resource_List"), part(facts, "resources_used")
    limit_s, used_s = (variables.seconds(text(one, "walltime")) for one in resources)
    start_s = variables.time(text(facts, "stime"), _ANSWER_S)
    letter, code = text(facts, "job_state"), None
    nodes = dict.fromkeys(one.partition("/")[0] for one in text(facts, "exec_host").split("+"))
    state, reason, advice, end_s = _STATES.get(letter, ""), text(facts, "comment"), "", None
    if state == "PENDING":
        start_s = variables.time(text(part(facts, "estimated"), "start_time"), _ANSWER_S)
        reason = reason.removeprefix("Not Running: ")
        if letter == "H":
            reason, advice = reason or "hold", f"it waits for another job, or is held: qrls {found and found[0]}"
    elif state:
        reason = ""
    else:  # F, or X for a task
        status = number(facts, "Exit_status")
        end_s = start_s + (used_s or 0) if start_s is not None else None
        if status is not None:
            code = int(status % _SIGNALLED + 128 if status >= _SIGNALLED else abs(status))
        reason = "" if reason.startswith("Job run at ") else reason
        is_killed = status is not None and status >= _SIGNALLED
        state = "CANCELLED" if code is None else lives.ended(143 if is_killed else code, used_s, limit_s)
        state = "TIMEOUT" if status == _OVERTIME else state
    return Found(
        job, text(facts, "Job_Name"), text(part(facts, "Variable_List"), "PBS_O_WORKDIR"), state, reason, code,
        ",".join(filter(None, nodes)), start_s, end_s, limit_s, advice,
    )  # fmt: skip


def living(name: str) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id.

    Raises:
        SlurmError: PBS does not answer.
    """
    found = [_found(one, about) for one, about in _jobs(_call(["qstat", "-f", "-F", "json"]) or "{}").items()]
    return lives.of_name(found, name)


def cancel(job: str) -> None:
    """Cancel a job, or one task of an array, even if it runs. A job that has ended is left as it is.

    Raises:
        SlurmError: PBS does not answer.
    """
    first, _, task = job.partition("_")
    for one in _present(first):
        if not task or one.job == job:
            index = one.job.partition("_")[2]
            _delete(f"{first}[{index}]" if index else first)
    for following in lives.lives(first)[:-1]:
        _delete(following)


end = cancel


def _present(job: str) -> list[Found]:
    return [one for one in _look(job) if one.state in ("PENDING", "RUNNING", "SUSPENDED")]


def _delete(job: str) -> None:
    try:
        _call(["qdel", job])
    except SlurmError as error:
        if not any(words in str(error).lower() for words in _NO_LONGER):
            raise


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started.

    Raises:
        SlurmError: PBS does not answer.
    """
    for job in jobs:
        for one in _present(job):
            if one.state == "PENDING":
                cancel(one.job)


def cluster() -> str:
    """Return the name of the cluster, that of its server."""
    return str(json.loads(_call(["qstat", "-B", "-f", "-F", "json"]), strict=False).get("pbs_server", ""))


def granted(job: str) -> dict[str, Granted]:
    """The tasks of a job are in its node file; CPUs and memory are not counted."""
    return {}


def largest_node(partition: str | None) -> float:
    """Return the most CPUs of a node; infinite if PBS does not answer."""
    return max(_cpus_of_nodes(), default=math.inf)


def _cpus_of_nodes() -> list[int]:
    try:
        nodes = json.loads(_call(["pbsnodes", "-a", "-F", "json"], limit_s=_LOOK_LIMIT_S), strict=False)["nodes"]
    except (SlurmError, ValueError, KeyError):
        return []
    return [int(one.get("resources_available", {}).get("ncpus", 0)) for one in nodes.values()]


def allow_requeue(own: Allocation) -> bool:
    """Submit a job that begins when this one has ended, and continues it."""
    dependency = f"depend=afterany:{lives.own_id(own, 'PBS_JOBID')}"
    return lives.allow_requeue(own, lambda text, cwd: _submit(text, cwd, "-W", dependency), "PBS")


def requeue(own: Allocation) -> None:
    """Nothing: the successor begins when this job has ended."""
