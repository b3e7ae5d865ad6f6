"""Grid Engine: qsub, qstat, qdel, qconf and qacct; the variables of a job; its part of the batch script.

Tried with Son of Grid Engine 8.1.9. What was seen there, and decides much below:

- `-notify` sends SIGUSR2 at the end of the time and at qdel, and SIGKILL `notify` seconds of the queue later. Signals
  go to the whole process group of the batch script.
- With `s_rt` a job does not end at its `h_rt`, or ends at `s_rt` if it has slots on several hosts. So the batch script
  has a clock of its own for the signal before the end.
- A script that ends with 99 is queued again under the same id, also with `-r n`; one that ends with 100 is held.
- A job with slots on several hosts that is queued again may wait for ever ("cannot run on host until clean up of a
  previous run has finished": 7 of 10 jobs), whatever `-r`, and with qmod -rj too. So it is not queued again.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import replace

from mpi_runtime.slurm import commands, exit_file
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.request import Request, seconds
from mpi_runtime.slurm.status import Granted
from mpi_runtime.slurm.systems import lives, sge_jobs, variables
from mpi_runtime.slurm.systems.system import Allocation, Question

NAME: str = "sge"
COMMAND: str = "qconf"  # PBS has a qsub too
LAUNCHER: Mapping[str, str] = {}
CANCEL: str = "qdel"
JOB: str = "$JOB_ID"
ARRAY_JOB: str = "${JOB_ID}_$SGE_TASK_ID"
TASK: str = "SGE_TASK_ID"
ARRAY_MAX: int = 1000
NODE_COUNT: str = "NHOSTS"
MISTAKES: str = "Grid Engine then calls the job done"
SIGNALS: str = """\
trap 'hand_on USR1' USR1 URG
trap 'ended=1; kill -TERM $launcher 2>/dev/null' USR2  # the end of the time, or qdel: SIGKILL follows
for signal in INT HUP; do trap "hand_on $signal" $signal; done
# SIGKILL reaches this script alone. The program must not outlive it.
setsid sh -c 'tail --pid=$0 -f /dev/null; kill -TERM -- -$1 && sleep 5 && kill -KILL -- -$1' $$ $launcher 2>/dev/null &
"""
LAUNCH: str = """\
# Grid Engine sends its signals to the process group of this script, so the program has another.
setsid {launch} &"""
REQUEUE: str = """\
exit() {  # 99 and 100 have a meaning of their own to Grid Engine; those of the program are in the file
    [ -z "$ended" ] || [[ $state = [0-9]* ]] || builtin exit 143  # whatever code the launcher has after SIGTERM
    case $1 in 99 | 100) builtin exit 98 ;; *) builtin exit "$1" ;; esac
}
requeue() {
    builtin exit 99
}
"""
PASSING: tuple[str, ...] = ("unable to send message to qmaster", "unable to contact qmaster", "got no connection")
FULL: tuple[str, ...] = ("jobs are allowed per user", "jobs are allowed per cluster")
UNKNOWN: tuple[str, ...] = ("grid engine does not know the job",)
_call = functools.partial(commands.call, cures=sge_jobs.CURES, whose="Grid Engine")
submit, statuses, living = sge_jobs.submit, sge_jobs.statuses, sge_jobs.living
cancel_waiting = sge_jobs.cancel_waiting
end = cancel = sge_jobs.cancel
largest_node = sge_jobs.largest_node


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of Grid Engine."""
    return bool(env.get("PE_HOSTFILE") or (env.get("JOB_ID") and env.get("SGE_O_HOST")))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job. A line of its file of hosts has name, slots, queue and processors.

    A job without a parallel environment has no such file, and one slot.
    """
    hosts = variables.read(env, ["PE_HOSTFILE"], variables.hosts_in)
    if not env.get("PE_HOSTFILE") and env.get("HOSTNAME"):
        hosts = [[env["HOSTNAME"], "1"]]
    slots = tuple(variables.number(words[1]) or 0 for words in hosts)
    return Allocation(
        system=NAME,
        job=env.get("JOB_ID", ""),
        nodes=tuple(words[0] for words in hosts),
        tasks=slots,
        cpus=slots,
        restarts=variables.number(env.get("RESTARTED")) or 0,
        array_task=variables.number(env.get("SGE_TASK_ID")),  # "undefined" if there is no array
    )


def question(own: Allocation) -> Question:
    """Ask qstat for the start and for `h_rt`. A limit that only the queue has is not stated."""

    def end(text: str, now: float) -> float | None:
        limit_s, starts = sge_jobs.limit_of(text), sge_jobs.starts_of(text)
        start_s = starts.get(1 if own.array_task is None else own.array_task)
        return None if limit_s is None or start_s is None else start_s + limit_s

    return ["qstat", "-j", own.job, "-xml"], end


def complete(request: Request) -> Request:
    """Choose the parallel environment that gives each node the slots of a request, unless it has one.

    Raises:
        ValueError: there is no such environment.
        SlurmError: Grid Engine does not answer.
    """
    slots = request.cpus_per_node or request.ranks_per_node
    if request.pe is None and request.nodes_max == 1 and (slots or 1) == 1:
        return request
    names = [request.pe] if request.pe is not None else _call(["qconf", "-spl"]).split()
    rules = {name: _rule(_call(["qconf", "-sp", name])) for name in names}
    fixed = {name: int(rule) for name, rule in rules.items() if rule.isdecimal()}
    if request.nodes_max == 1 and slots and (own := [name for name, rule in rules.items() if rule == "$pe_slots"]):
        return replace(request, pe=own[0], cpus_per_node=slots)
    if fitting := [name for name, each in fixed.items() if slots in (None, each)]:
        best = max(fitting, key=lambda name: fixed[name])
        return replace(request, pe=best, cpus_per_node=fixed[best])
    if request.pe is not None and slots:
        return request  # its user knows better
    wanted = f"{slots} slots" if slots else "the same number of slots"
    there = ", ".join(f"{name} ({rule})" for name, rule in rules.items()) or "none"
    raise ValueError(
        f"no parallel environment gives {wanted} on each of {request.nodes_max} nodes; there are: {there}. State "
        "cpus_per_node (--cpus-per-node) to fit one whose rule is a number, or pe (--pe) for another"
    )


def _rule(text: str) -> str:
    found = re.search(r"^allocation_rule\s+(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def check(request: Request) -> None:
    """Raise ValueError for what Grid Engine does not have, or what differs from site to site."""
    for is_wrong, what in (
        (isinstance(request.nodes, str), "ranges of nodes: state their number"),
        (request.qos is not None, "qualities of service (qos); its projects are account, its queues partition"),
        (bool(request.sbatch), "options of sbatch: state those of qsub, as --qsub=-l --qsub=gpu=1"),
        (request.gpus_per_node is not None, "one name for GPUs on all sites: state yours, as --qsub=-l --qsub=gpu=1"),
        (request.launcher != "mpirun", "srun: leave launcher at mpirun"),
        (request.warn_s is not None and not seconds(request.time) < 1e9, "signal before an unknown end: state time"),
    ):
        if is_wrong:
            raise ValueError(f"Grid Engine has no {what}")
    if request.array is not None and not re.fullmatch(r"[1-9]\d*(-\d+(:\d+)?)?(%\d+)?", request.array):
        raise ValueError(f"array must be like '1-9', '1-9:2' or '1-9%3' for Grid Engine, not {request.array!r}")


def header(request: Request, name: str) -> list[str]:
    """Return the lines of the batch script with the options of a job of this name."""
    if name[0].isdigit():
        raise ValueError(f"Grid Engine takes no name that begins with a digit: {name!r}; state another (--name)")
    slots = request.nodes_max * (request.cpus_per_node or request.ranks_per_node or 1)
    limit_s = seconds(request.time)
    indices, _, at_a_time = (request.array or "").partition("%")
    options = [
        f"-N {name}",
        "-S /bin/bash",
        "-cwd",
        "-V",
        "-j y",
        f"-o {output(request, name)}",
        "-notify",
        f"-r {'y' if request.requeue else 'n'}",
    ]
    for is_wanted, option in (
        (request.pe, f"-pe {request.pe} {slots}"),
        (limit_s < 1e9, f"-l h_rt={limit_s:.0f}"),
        (request.memory, f"-l mem_free={request.memory}"),
        (request.partition, f"-q {request.partition}"),
        (request.account, f"-P {request.account}"),
        (indices, f"-t {indices}"),
        (request.after, f"-hold_jid {request.after}"),
        (at_a_time, f"-tc {at_a_time}"),
        (request.qsub, " ".join(request.qsub)),
    ):
        if is_wanted:
            options.append(option)
    return [f"#$ {option}" for option in options]


def output(request: Request, name: str) -> str:
    """Return the name of the output file, with Grid Engine's variables."""
    return f"{name}-{'$JOB_ID_$TASK_ID' if request.array else '$JOB_ID'}.out"


before = lives.clock


def after(request: Request) -> list[str]:
    """Grid Engine notices by itself that a node has failed."""
    return []


def cluster() -> str:
    """Return the name of the cluster, that of its cell."""
    env = environment()
    return env.get("SGE_CLUSTER_NAME") or env.get("SGE_CELL") or "default"


def granted(job: str) -> dict[str, Granted]:
    """The slots of a job are in its environment; CPUs and memory are not counted."""
    return {}


def allow_requeue(own: Allocation) -> bool:
    """Raise SlurmError unless the job is on one host, its script can end with 99, and it was not deleted."""
    if exit_file.current is None:
        raise SlurmError(
            "Grid Engine queues a job again if its batch script ends with exit code 99. Scripts of mpi-runtime submit "
            "do that; let this one end with 99, and save first"
        )
    if len(own.nodes) > 1:
        raise SlurmError(
            f"job {own.job} has slots on {len(own.nodes)} hosts, and Grid Engine may never start such a job again. "
            "Submit it once more: a journal continues where this run ends. Jobs on one host are queued again"
        )
    if any("deleted" in one.reason for one in sge_jobs.present(own.job, own.array_task)):
        raise SlurmError(f"job {own.job} was cancelled: it is not queued once more against the will of its owner")
    return True


def requeue(own: Allocation) -> None:
    """Nothing: the batch script ends with 99 as soon as the program has ended."""
