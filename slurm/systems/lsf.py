"""LSF: bsub, bjobs, bkill and bhosts; the variables of a job; its part of the batch script.

Written by IBM's reference of LSF 10.1 (bsub, bjobs, bkill, brequeue) and answers that users have published; tried with
a stand-in only. What they say, and decides much below:

- At the end of the time all processes of the job get SIGUSR2, later SIGINT, SIGTERM and SIGKILL; at bkill the last
  three. So the program ignores SIGUSR2, which would end it, and the batch script sends it SIGTERM instead.
- A script that ends with a code of `bsub -Q` is queued again under the same id.
- Output is written at the end of the job, unless the script writes it itself.
- Times have minutes, so the batch script has a clock of its own for the signal before the end.
"""

import functools
import json
import math
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from mpi_runtime.slurm import commands, exit_file, nodelist
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.request import Request, seconds
from mpi_runtime.slurm.status import Granted, Status
from mpi_runtime.slurm.systems import devices, lives, variables
from mpi_runtime.slurm.systems.lives import Found
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "lsf"
COMMAND: str = "bsub"
LAUNCHER: Mapping[str, str] = {}
CANCEL: str = "bkill"
TASK: str = "LSB_JOBINDEX"
JOB: str = lives.JOB
ARRAY_JOB: str = lives.OF_TASK % TASK
ARRAY_MAX: int = 1000
NODE_COUNT: str = "LSB_MAX_NUM_PROCESSORS"
MISTAKES: str = "LSF then calls the job DONE"
SIGNALS: str = """\
trap 'hand_on USR1' USR1 URG
trap 'ended=1; kill -TERM $launcher 2>/dev/null' USR2  # the end of the time: SIGKILL follows
for signal in INT HUP; do trap "hand_on $signal" $signal; done
"""
LAUNCH: str = "(trap '' USR2; exec {launch}) &  # LSF sends it to all processes when the time is over"
REQUEUE: str = """\
exit() {  # 99 has a meaning of its own: #BSUB -Q
    [ -z "$ended" ] || [[ $state = [0-9]* ]] || builtin exit 143  # whatever code the launcher has after SIGTERM
    case $1 in 99) builtin exit 98 ;; *) builtin exit "$1" ;; esac
}
requeue() {
    builtin exit 99
}
# Long before the end of the time only a deletion sends SIGTERM.
if [ -n "$ended" ] && [ "$state" = requeue ] && [ $SECONDS -lt $earliest ]; then state=; fi
"""
PASSING: tuple[str, ...] = ("cannot connect to lsf", "lsf is down", "batch daemon not responding", "please wait")
FULL: tuple[str, ...] = ("pending job threshold", "job limit has been reached")
UNKNOWN: tuple[str, ...] = ("lsf does not know the job",)
CURES = (
    ("no such queue", "The queues there are: bqueues"),
    ("bad resource requirement", "The resources there are: lsinfo; of each host: lshosts"),
    ("too many processors requested", "The slots of each host: bhosts; the limits of a queue: bqueues -l QUEUE"),
    ("runlimit", "The longest time of a queue: bqueues -l QUEUE"),
    ("project", "Your projects are known to the site: its documentation names the command"),
    ("lsf is down", "The daemons do not answer: lsid shows when they are back."),
)
_FIELDS = (
    "jobid jobindex stat job_name exec_host sub_cwd exit_code exit_reason pend_reason start_time finish_time "
    "run_time runtimelimit"
)
_STATES = {
    "PEND": "PENDING", "WAIT": "PENDING", "PSUSP": "PENDING", "RUN": "RUNNING", "UNKWN": "RUNNING",
    "USUSP": "SUSPENDED", "SSUSP": "SUSPENDED", "DONE": "COMPLETED", "EXIT": "FAILED", "ZOMBI": "FAILED",
}  # fmt: skip
_OF_A_JOB = r"LSB_|LSF_(?!ENVDIR|SERVERDIR|LIBDIR|BINDIR|VERSION|CONFDIR)|LS_(JOBPID|SUBCWD|EXEC)|JSM_"
_LOOK_LIMIT_S = 10.0
_call = functools.partial(commands.call, cures=CURES, whose="LSF")


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of LSF."""
    return bool(env.get("LSB_JOBID"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job, with a list of names and slots, `node1 16 node2 16`."""
    words = variables.read(env, ["LSB_MCPU_HOSTS"], _names_and_slots)
    slots = tuple(variables.number(word) or 0 for word in words[1::2])
    index = variables.number(env.get("LSB_JOBINDEX"))
    return Allocation(
        system=NAME,
        job=env["LSB_JOBID"],
        nodes=tuple(words[::2]),
        tasks=slots,
        cpus=slots,
        gpus=devices.listed(env),
        restarts=lives.restarts(env),
        array_task=index or None,  # 0: no array
    )


def _names_and_slots(text: str) -> list[str]:
    words = text.split()
    nodelist.check_number(len(words) // 2)
    return words


def question(own: Allocation) -> Question:
    """Ask bjobs, since LSF 9.1, for the time that is left. It has minutes alone, so also for what it is made of."""
    job = own.job if own.array_task is None else f"{own.job}[{own.array_task}]"
    return ["bjobs", "-noheader", "-o", "time_left run_time runtimelimit delimiter=';'", job], _end


def _end(text: str, now: float) -> float | None:
    """Read `0:12 L;16038 second(s);280.0`. Another letter marks an estimate, at which the job does not end."""
    found = re.fullmatch(r"(\d+):(\d+) L(?:;(\d+) second\(s\);([\d.]+)\b.*)?", text.strip())
    if found is None:
        return None
    left_s = int(found[1]) * 3600.0 + int(found[2]) * 60
    exact_s = float(found[4]) * 60 - int(found[3]) if found[4] else left_s
    return now + (exact_s if left_s - 60 <= exact_s <= left_s + 60 else left_s)


def complete(request: Request) -> Request:
    """Without a number of CPUs request the slots that most hosts have: LSF would give one."""
    if request.cpus_per_node is not None:
        return request
    each = request.ranks_per_node or 1
    most = lives.most_common(_slots_of_hosts()) or each
    return replace(request, cpus_per_node=max(1, most // each) * each)


def check(request: Request) -> None:
    """Raise ValueError for what LSF does not have."""
    lives.check(request, "LSF")
    if request.array is not None and not re.fullmatch(
        r"[1-9]\d*(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", request.array
    ):
        raise ValueError(f"array must be like '1-9', '1,3,5' or '1-9%3' for LSF, not {request.array!r}")


def header(request: Request, name: str) -> list[str]:
    """Return the lines of the batch script with the options of a job of this name, and those that begin it."""
    each, limit_s = request.cpus_per_node or request.ranks_per_node or 1, seconds(request.time)
    indices, percent, at_a_time = (request.array or "").partition("%")
    own = f"{name}[{indices}]{percent}{at_a_time}" if request.array else name
    options = [
        f'-J "{own}"',
        "-L /bin/bash",
        "-o /dev/null",
        f"-n {request.nodes_max * each}",
        f'-R "span[ptile={each}]"',
        '-Q "99"',
        "-r" if request.requeue else "-rn",
    ]
    for is_wanted, option in (
        (request.gpus_per_node, f'-gpu "num={request.gpus_per_node}"'),
        (request.memory, f'-R "rusage[mem={request.memory}]"'),
        (limit_s < 1e9, f"-W {math.ceil(min(limit_s, 1e9) / 60)}"),
        (request.partition, f"-q {request.partition}"),
        (request.account, f"-P {request.account}"),
        (request.after, f'-w "{" && ".join(f"ended({job})" for job in (request.after or "").split(","))}"'),
        (request.qsub, " ".join(request.qsub)),
    ):
        if is_wanted:
            options.append(option)
    word = lives.OF_TASK % TASK if request.array else "$LSB_JOBID"
    again = f'$([ -e "$PWD/{name}-{word.replace(JOB[1:], "LSB_JOBID")}.exit" ] && echo 1 || echo 0)'
    return [f"#BSUB {option}" for option in options] + lives.begin(request, name, "$LSB_JOBID", TASK, again)


def output(request: Request, name: str) -> str:
    """Return the name of the output file, as the script has it."""
    return f"{name}-{ARRAY_JOB if request.array else JOB}.out"


before = lives.clock


def after(request: Request) -> list[str]:
    """LSF notices by itself that a host has failed."""
    return []


def submit(text: str, cwd: str | None) -> str:
    """Submit a batch script and return the id of its job.

    Raises:
        SlurmError: LSF refused. The message says why.
    """
    answer = _call(["bsub"], cwd, text, env=lives.without_job(_OF_A_JOB))
    job = re.search(r"Job <(\d+)>", answer)
    if job is None:
        raise SlurmError(f"bsub has not answered with the id of a job: {answer.strip()!r}")
    lives.keep(text, job[1], cwd, has_successor=False)
    return job[1]


def statuses(job: str) -> list[Status]:
    """Return the status of a job, or of each task of an array.

    Raises:
        SlurmError: LSF does not know the job, or does not answer.
    """
    return lives.statuses(job, _look, "LSF")


def _look(*jobs: str) -> list[Found]:
    try:
        answer = _call(["bjobs", "-a", "-o", _FIELDS, "-json", *jobs])
    except SlurmError as error:
        if "is not found" in str(error).lower() or "no matching job" in str(error).lower():
            return []
        raise
    try:
        records = cast(list[dict[str, str]], json.loads(answer)["RECORDS"])
    except (ValueError, KeyError) as error:
        raise SlurmError(f"bjobs -json has not answered with JSON: {error}") from None
    return [_found(one) for one in records if "ERROR" not in one]


def _found(facts: Mapping[str, str]) -> Found:
    index = facts.get("JOBINDEX", "0")
    job = facts["JOBID"].partition("[")[0] + (f"_{index}" if index not in ("", "0") else "")
    minutes = re.match(r"[\d.]+", facts.get("RUNTIMELIMIT", ""))
    limit_s = float(minutes[0]) * 60 if minutes else None
    used = re.match(r"\d+", facts.get("RUN_TIME", ""))
    used_s = float(used[0]) if used else None
    state, reason, code, advice = _STATES.get(facts["STAT"], "PENDING"), "", None, ""
    start_s, end_s = lives.recent(facts.get("START_TIME", "")), None
    if state == "PENDING":
        reason, start_s = facts.get("PEND_REASON", "").strip("; "), None
        if facts["STAT"] == "PSUSP":
            advice = f"it is held: bresume {job}"
    elif state in ("COMPLETED", "FAILED"):
        end_s = lives.recent(facts.get("FINISH_TIME", "").removesuffix(" L"))
        reason = facts.get("EXIT_REASON", "") if state == "FAILED" else ""
        code = int(facts.get("EXIT_CODE") or 0)
        state = lives.ended(code, used_s, limit_s)
        if facts["STAT"] == "EXIT" and state == "COMPLETED":
            state = "CANCELLED"
        for word, other in (("TERM_OWNER", "CANCELLED"), ("TERM_RUNLIMIT", "TIMEOUT"), ("TERM_MEM", "OUT_OF_MEMORY")):
            state = other if word in reason else state
    hosts = dict.fromkeys(one.rpartition("*")[2] for one in filter(None, facts.get("EXEC_HOST", "").split(":")))
    name = facts.get("JOB_NAME", "").partition("[")[0]
    place = facts.get("SUB_CWD", "").replace("$HOME", os.path.expanduser("~"))
    return Found(job, name, place, state, reason, code, ",".join(hosts), start_s, end_s, limit_s, advice)


def living(name: str) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id.

    Raises:
        SlurmError: LSF does not answer.
    """
    return lives.of_name(_look("-J", name), name)


def cancel(job: str) -> None:
    """Cancel a job, or one task of an array, even if it runs. A job that has ended is left as it is.

    Raises:
        SlurmError: LSF does not answer.
    """
    first, _, task = job.partition("_")
    try:
        _call(["bkill", f"{first}[{task}]" if task else first])
    except SlurmError as error:
        if not re.search("already finished|no matching job|is not found", str(error).lower()):
            raise


end = cancel


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started.

    Raises:
        SlurmError: LSF does not answer.
    """
    for job in jobs:
        for one in _look(job):
            if one.state == "PENDING":
                cancel(one.job)


def cluster() -> str:
    """Return the name of the cluster."""
    found = re.search(r"My cluster name is (\S+)", _call(["lsid"]))
    return found[1] if found else ""


def granted(job: str) -> dict[str, Granted]:
    """The slots of a job are in its environment; CPUs and memory are not counted."""
    return {}


def largest_node(partition: str | None) -> float:
    """Return the most slots of a host; infinite if LSF does not answer."""
    return max(_slots_of_hosts(), default=math.inf)


def _slots_of_hosts() -> list[int]:
    try:
        rows = [line.split() for line in _call(["bhosts", "-w"], limit_s=_LOOK_LIMIT_S).splitlines()[1:]]
    except SlurmError:
        return []
    return [int(row[3]) for row in rows if row[3:] and row[3].isdecimal()]


def allow_requeue(own: Allocation) -> bool:
    """Raise SlurmError unless the script of the job can end with 99, and it was not cancelled."""
    if exit_file.current is None:
        raise SlurmError(
            "LSF queues a job again if its batch script ends with a code of bsub -Q. Scripts of mpi-runtime submit do "
            "that; for this one: brequeue, and save first"
        )
    return True


def requeue(own: Allocation) -> None:
    """Nothing: the batch script ends with 99 as soon as the program has ended."""
