"""Slurm: sbatch, scontrol, scancel, sinfo and sacct; the variables of a job; its part of the batch script."""

import functools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpi_runtime.slurm import commands, exit_file, nodelist
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.status import ENDED, Granted, Status
from mpi_runtime.slurm.systems import devices, slurm_variables, variables
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "slurm"
COMMAND: str = "sbatch"
LAUNCHER: Mapping[str, str] = {}
CANCEL: str = "scancel"
JOB: str = "$SLURM_JOB_ID"
ARRAY_JOB: str = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
TASK: str = "SLURM_ARRAY_TASK_ID"
ARRAY_MAX: int = 1000
NODE_COUNT: str = "SLURM_JOB_NUM_NODES"
MISTAKES: str = "Slurm then calls the job COMPLETED"
SIGNALS: str = """\
trap 'hand_on USR1' USR1 URG
for signal in INT HUP USR2; do trap "hand_on $signal" $signal; done  # of scancel --batch: the program decides
"""
LAUNCH: str = "{launch} &"
REQUEUE: str = """\
requeue() {  # Slurm then ends this shell, and writes a line about it
    trap - TERM
    (trap '' TERM; exec scontrol requeue "$SLURM_JOB_ID") && for _ in {1..60}; do sleep 1; done  # outlives us by 1 s
}
"""
PASSING: tuple[str, ...] = ("unable to contact slurm controller", "socket timed out", "zero bytes were transmitted")
FULL: tuple[str, ...] = ("job submit limit", "submitjob")
UNKNOWN: tuple[str, ...] = ("invalid job id", "already completing")

_ADVICE = {
    # Reasons why a job waits for ever, or until a person acts.
    "PartitionConfig": "no nodes of its partition satisfy its request, or its time is longer than they allow",
    "PartitionNodeLimit": "it requests more nodes than its partition gives to a job",
    "PartitionTimeLimit": "it requests more time than its partition gives to a job",
    "BadConstraints": "no node satisfies its request",
    "JobHeldUser": "it is held: scontrol release JOB",
    "JobHeldAdmin": "the administrators hold it",
    "launch_failed_requeued_held": "it could not be started, and is held: scontrol release JOB",
    "DependencyNeverSatisfied": "the job that it waits for has not ended as it must",
}
_NOT_STARTED = "Slurm could not start it: the node cannot use its directory, or not write the file of its output there"
_AVAILABLE = ("idle", "allocated", "mixed", "completing", "planned", "reserved")
"""States of nodes that can run jobs, now or later."""
_NEVER = "requested node configuration is not available"
_SBATCH_NAMES = {
    "array": "array-inx",
    "mem": "mem-per-node",
    "time": "timelimit",
    "no-requeue": "requeue",
    "requeue": "no-requeue",
}
"""Options whose variables for sbatch have other names."""
_OF_A_JOB = re.compile("|".join(("SLURM", "PMI", "PMIX_", "OMPI_COMM_WORLD_", *devices.ALL)))
"""Variables that Slurm and launchers set in jobs."""
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")
_SACCT = {
    "JobID": "JobId", "State": "JobState", "ExitCode": "ExitCode", "NodeList": "NodeList", "Start": "StartTime",
    "End": "EndTime", "Elapsed": "RunTime", "Timelimit": "TimeLimit", "JobName": "JobName", "WorkDir": "WorkDir",
}  # fmt: skip
"""The columns to ask the accounting for, and the names that the controller has for the same facts."""
_CURES = (
    # A part of Slurm's message in lower case, and what helps.
    ("invalid partition", "The partitions there are: sinfo -o '%R %l %G'"),
    ("invalid account", "Your accounts: sacctmgr show associations user=$USER format=account,partition"),
    ("invalid qos", "What you may use: sacctmgr show associations user=$USER format=account,qos"),
    ("memory specification", "What the nodes have, in MB: sinfo -o '%R %m'"),
    ("generic resource", "What the nodes have: sinfo -N -o '%N %R %G'"),
    ("node configuration is not available", "What the nodes have: sinfo -o '%R %D %c %m %G'"),
    ("more processors requested", "What the nodes have: sinfo -o '%R %D %c %m %G'"),
    ("node count specification", "How many nodes a job may have: scontrol show partition"),
    ("array specification", "Like 0-9, 1,3,5, 0-9:3, 0-99%10; below MaxArraySize (scontrol show config)"),
    ("time limit", "The longest time that each partition allows: sinfo -o '%R %l'"),
    ("configuration source", "Slurm is not set up on this host: use a login node of the cluster."),
    ("unable to contact slurm controller", "The controller does not answer: sinfo shows when it is back."),
    ("invalid job id", "Slurm forgets jobs a few minutes after their end; sacct -j JOB may still know it."),
)  # fmt: skip
_GPUS = """\
# The job has whole nodes. This shell sees all GPUs of its node. The launcher's steps on other nodes see all of them
# (Slurm 24.11) or as many as were requested (22.05). No other job runs there: the same numbers are right on each node.
for name in {names}; do
    if [ -n "${{!name}}" ]; then
        export $name=$(cut -d, -f-{number} <<<"${{!name}}") SLURM_GPUS_ON_NODE={number}
        export OMPI_MCA_mca_base_env_list="$OMPI_MCA_mca_base_env_list;$name;SLURM_GPUS_ON_NODE"
    fi
done"""
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
PROBE_LIMIT_S = 60
"""Seconds that nodes may take to run a command that does nothing."""
_LOOK_LIMIT_S = 10.0
"""Seconds to wait for an answer that only makes a check better."""
allocation = slurm_variables.allocation
_call = functools.partial(commands.call, cures=_CURES)


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of Slurm."""
    return bool(env.get("SLURM_JOB_ID"))


def question(own: Allocation) -> Question:
    """Ask scontrol, because the time may have been changed."""
    return ["scontrol", "show", "job", "-o", own.job], _end


def _end(text: str, now: float) -> float | None:
    found = re.search(r"\bEndTime=(\S+)", text)
    return variables.time(found[1], "%Y-%m-%dT%H:%M:%S") if found else None


def complete(request: Request) -> Request:
    """Return the request: Slurm completes it itself."""
    return request


def check(request: Request) -> None:
    """Raise ValueError for options of other systems."""
    if request.pe is not None or request.qsub:
        raise ValueError("pe and qsub are for other systems; for other options of Slurm: sbatch (--sbatch)")


def header(request: Request, name: str) -> list[str]:
    """Return the lines of the batch script with the options of a job of this name."""
    return [f"#SBATCH {_option(option)}" for option in _options(request, name)]


def output(request: Request, name: str) -> str:
    """Return the name of the output file, with Slurm's patterns."""
    return f"{name}-{'%A_%a' if request.array else '%j'}.out"


def before(request: Request) -> list[str]:
    """Show each node as many GPUs as were requested, if the job has whole nodes."""
    number = request.cpus_per_node is None and re.search(r"\d+$", str(request.gpus_per_node))
    return [_GPUS.format(number=number[0], names=" ".join(devices.OF_JOB))] if number else []


def after(request: Request) -> list[str]:
    """Queue the job again after a preemption or the failure of a node, if it was requested."""
    if not request.requeue:
        return []
    return [_AGAIN, *([_LOST.format(limit=PROBE_LIMIT_S)] if request.nodes_max > 1 else [])]


def _options(request: Request, name: str) -> list[str]:
    # Without a number Slurm gives a whole node one task for each CPU. With a number it gives the least of a range.
    is_range = isinstance(request.nodes, str)
    tasks = 1 if is_range else request.ranks_per_node or 1
    options = [
        f"--job-name={name}",
        f"--output={output(request, name)}",
        "--open-mode=append",
        f"--nodes={request.nodes}",
        *([] if is_range else [f"--ntasks-per-node={tasks}"]),
    ]
    if request.cpus_per_node is None:
        options.append("--exclusive")
    else:
        options.append(f"--cpus-per-task={request.cpus_per_node // tasks}")
    for option, value in (
        ("gpus-per-node", request.gpus_per_node), ("mem", request.memory), ("time", request.time),
        ("partition", request.partition), ("account", request.account), ("qos", request.qos), ("array", request.array),
    ):  # fmt: skip
        if value is not None:
            options.append(f"--{option}={value}")
    if request.after is not None:
        options.append(f"--dependency=afterany:{request.after.replace(',', ':')}")
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


def submit(text: str, cwd: str | None) -> str:
    """Submit a batch script and return the id of its job.

    Raises:
        SlurmError: Slurm refused, or no nodes of the partition can ever run it. The message says why.
    """
    env = _for_sbatch(text)
    try:
        _call(["sbatch", "--test-only"], cwd, text, env=env)
    except SlurmError as error:
        # By default Slurm accepts jobs that can never run. Its message is the same for jobs that wait for the repair
        # of a node. sbatch reports any other error again below.
        if _NEVER in str(error).lower() and _are_all_nodes_available(text):
            raise SlurmError(f"it could never start. {error}") from None
    answer = _call(["sbatch", "--parsable"], cwd, text, env=env)
    return answer.strip().split(";")[0]


def _for_sbatch(text: str) -> dict[str, str]:
    """Return the environment for sbatch, which hands it on to the job.

    To sbatch a variable such as SBATCH_PARTITION counts more than the script. Variables of a job around this process,
    such as SLURM_NTASKS_PER_NODE, would mislead the commands of the new job.
    """
    names = set(re.findall(r"^#SBATCH '?--([\w-]+)", text, re.MULTILINE))
    names |= {variable for option, variable in _SBATCH_NAMES.items() if option in names}
    stated = {f"SBATCH_{name.replace('-', '_').upper()}" for name in names}
    env = {name: value for name, value in environment().items() if name not in stated}
    if "SLURM_JOB_ID" in env:
        env = {name: value for name, value in env.items() if name in _KEPT or not _OF_A_JOB.match(name)}
    return env


def _are_all_nodes_available(text: str) -> bool:
    found = re.search(r"^#SBATCH (?:--partition=|-p *)(\S+)", text, re.MULTILINE)
    lines = [line.split() for line in _call(["sinfo", "-h", "-N", "-o", "%P %T"]).splitlines()]
    asked = found[1].split(",") if found else []
    states = [state for name, state in lines if (name.rstrip("*") in asked if asked else name.endswith("*"))]
    return bool(states) and all(state in _AVAILABLE for state in states)


def living(name: str) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id.

    Raises:
        SlurmError: Slurm does not answer.
    """
    lines = _call(["squeue", "--all", "--noheader", f"--name={name}", "--format=%i %T"]).splitlines()
    return {words[0]: words[1] for words in map(str.split, lines) if words[1] not in ENDED}


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started; jobs that run are left alone.

    Raises:
        SlurmError: Slurm does not answer.
    """
    if jobs:
        _cancel("--state=PENDING", *jobs)


def cancel(job: str) -> None:
    """Cancel a job, or one task of an array, even if it runs. A job that has ended is left as it is."""
    _cancel(job)


def _cancel(*words: str) -> None:
    try:
        _call(["scancel", *words])
    except SlurmError as error:
        if not _is_unknown(error):  # others are cancelled
            raise


def end(job: str) -> None:
    """Cancel a job that waits. The program of one that runs gets SIGHUP, and may end in order.

    Raises:
        SlurmError: Slurm does not answer.
    """
    cancel_waiting([job])
    _cancel("--batch", "--signal=HUP", "--state=RUNNING", job)


def _is_unknown(error: SlurmError) -> bool:
    """Whether this is Slurm's word for a job that has ended."""
    return any(words in str(error).lower() for words in UNKNOWN)


def cluster() -> str:
    """Return the name of the cluster.

    Raises:
        SlurmError: Slurm does not answer.
    """
    found = re.search(r"^ClusterName\s*=\s*(\S+)", _call(["scontrol", "show", "config"]), re.MULTILINE)
    return found[1] if found else ""


def statuses(job: str) -> list[Status]:
    """Return the status of a job, or of each task of an array.

    Raises:
        SlurmError: Slurm does not know the job, or does not answer.
    """
    try:
        lines = _call(["scontrol", "show", "job", "-o", job]).splitlines()
    except SlurmError as error:
        return _from_accounting(job, error)
    return [_status(facts_of(line)) for line in lines]


def _status(facts: dict[str, str]) -> Status:
    job = facts["JobId"]
    if task := facts.get("ArrayTaskId"):
        job = f"{facts['ArrayJobId']}_{task if task.isdecimal() else f'[{task}]'}"
    code, _, number = facts.get("ExitCode", "0:0").partition(":")
    state = facts["JobState"].split()[0]  # the accounting has "CANCELLED by 1000"
    reason = "" if facts.get("Reason", "None") == "None" else facts["Reason"]
    exit_code = _exit_code(code, number) if state in ENDED else None
    return Status(
        job=job,
        state=state,
        reason=reason,
        exit_code=exit_code,
        nodes=_known(facts.get("NodeList")),
        name=facts.get("JobName", ""),
        start=_known(facts.get("StartTime")),
        end=_known(facts.get("EndTime")),
        time_used=facts.get("RunTime", ""),
        time_limit=facts.get("TimeLimit", ""),
        output=facts.get("StdOut"),
        program_exit_code=exit_file.read(Path(facts.get("WorkDir", ""), f"{facts.get('JobName', '')}-{job}.exit")),
        advice=_advice(state, reason, exit_code),
    )


def _advice(state: str, reason: str, code: int | None) -> str:
    if state in ENDED:
        if reason != "JobLaunchFailure":  # also if a signal has ended the script
            return ""
        number = (code or 0) - 128
        return f"signal {number} ended its batch script" if 0 < number < 32 else _NOT_STARTED
    return "" if state == "RUNNING" else _ADVICE.get(reason, "")


def facts_of(text: str) -> dict[str, str]:
    """Return the facts of the first job in the answer of `scontrol show job -o`, by name."""
    line = text.splitlines()[0]
    # Values may contain blanks: a value ends before the next NAME=.
    return {found[1]: found[2].strip() for found in re.finditer(r"([\w:/]+)=(.*?)(?= [\w:/]+=|$)", line)}


def _from_accounting(job: str, error: SlurmError) -> list[Status]:
    """Return the status of a job that the controller has forgotten, from Slurm's accounting.

    Raises:
        SlurmError: `error`, the controller's, if there is no accounting or it does not know the job.
    """
    try:
        rows = _call(["sacct", "-n", "-P", "-X", "-j", job, "-o", ",".join(_SACCT)]).splitlines()
    except SlurmError:
        raise error from None
    if not rows:
        raise error
    return [_status(dict(zip(_SACCT.values(), row.split("|"), strict=True))) for row in rows]


def _exit_code(code: str, number: str) -> int:
    return int(code) or (128 + int(number) if number.isdecimal() and int(number) else 0)


def _known(text: str | None) -> str:
    return "" if text in (None, "(null)", "Unknown", "None assigned", "None") else str(text)


def granted(job: str | int) -> dict[str, Granted]:
    """Return the resources of a running job on each of its nodes, by name.

    Raises:
        SlurmError: Slurm does not know the job, or does not answer.
    """
    found: dict[str, Granted] = {}
    for line in _call(["scontrol", "--detail", "show", "job", str(job)]).splitlines():
        if one := re.search(r"\bNodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)", line):
            ids = re.search(r"gpu[^,]*?\(IDX:([\d,-]*)\)", one[4])
            own = Granted(len(_numbers(one[2])), int(one[3]) << 20, _numbers(ids[1]) if ids else ())
            found.update(dict.fromkeys(nodelist.expand(one[1]), own))
    return found


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as 0-2,5."""
    return tuple(int(name) for name in nodelist.expand(f"[{text}]")) if text else ()


def largest_node(partition: str | None) -> float:
    """Return the most CPUs of a node; infinite if Slurm does not answer."""
    words = ["sinfo", "-h", "-N", "-o", "%c", *(["-p", partition] if partition else [])]
    try:
        counts = re.findall(r"^\s*(\d+)", _call(words, limit_s=_LOOK_LIMIT_S), re.MULTILINE)
    except SlurmError:
        return math.inf
    return max(map(int, counts), default=math.inf)


def allow_requeue(own: Allocation) -> bool:
    """Let a running job be requeued. Return False if a preemption has requeued it.

    Raises:
        SlurmError: it was cancelled.
    """
    facts = facts_of(_call(["scontrol", "show", "job", "-o", own.job]))
    if int(facts.get("Restarts", 0)) > own.restarts:
        return False  # at a preemption Slurm queues the job again before it ends the processes
    # While its processes end, a job is COMPLETING: without a reason if it was cancelled, with one if its time is over.
    # A preemption may cancel it too (PreemptMode=CANCEL).
    state, reason = facts.get("JobState"), facts.get("Reason")
    is_ended = state == "CANCELLED" or (state == "COMPLETING" and reason == "None")
    if is_ended and facts.get("PreemptTime", "None") == "None":
        raise SlurmError(f"job {own.job} was cancelled: it is not queued once more against the will of its owner")
    if facts.get("Requeue") == "0":  # no automatic requeue; but the program asks for it now
        _call(["scontrol", "update", f"JobId={own.job}", "Requeue=1"])
    return True


def requeue(own: Allocation) -> None:
    """Queue the job of this process again. Slurm ends the process."""
    _call(["scontrol", "requeue", own.job], ends_us=True)
