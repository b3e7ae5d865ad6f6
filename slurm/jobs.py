"""Slurm jobs: submit them, and ask for their status."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi_runtime.slurm import exit_file, nodelist, profiles, script
from mpi_runtime.slurm.commands import SlurmError, call
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.script import Request

ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
_HINTS = {
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
_FULL = "its node could write nothing into its directory: the file system is full, or your quota is used up"
_AVAILABLE = ("idle", "allocated", "mixed", "completing", "planned", "reserved")
"""States of nodes that can run jobs, now or later."""
_NEVER = "requested node configuration is not available"
_ID = re.compile(r"\d+(_\d+|\+\d+)?")
"""A job, a task of an array, or a part of a heterogeneous job."""
_SBATCH_NAMES = {
    "array": "array-inx",
    "mem": "mem-per-node",
    "time": "timelimit",
    "no-requeue": "requeue",
    "requeue": "no-requeue",
}
"""Options whose variables for sbatch have other names."""
_OF_A_JOB = re.compile("SLURM|PMI|PMIX_|OMPI_COMM_WORLD_|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL")
"""Variables that Slurm and launchers set in jobs."""
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")
_SACCT = {
    "JobID": "JobId", "State": "JobState", "ExitCode": "ExitCode", "NodeList": "NodeList", "Start": "StartTime",
    "End": "EndTime", "Elapsed": "RunTime", "Timelimit": "TimeLimit", "JobName": "JobName", "WorkDir": "WorkDir",
}  # fmt: skip
"""The columns to ask the accounting for, and the names that the controller has for the same facts."""


@dataclass(frozen=True)
class Status:
    """The status of a job, as Slurm reports it. `str(status)` is a line for people."""

    job: str
    """The id; 12_3 for a task of an array, 12_[4-9] for tasks that wait together."""
    state: str
    """The state, in Slurm's words: PENDING, RUNNING, COMPLETED ..."""
    reason: str
    """Why the job waits or has failed, in Slurm's words; empty if there is no reason."""
    exit_code: int | None
    """The exit code of the batch script, once it has ended; 128 plus the number for a signal."""
    nodes: str
    """Names of the nodes, in Slurm's short form; empty before the start."""
    name: str
    """The name of the job."""
    start: str
    """When it started, or is expected to start."""
    end: str
    """When it ended, or will end."""
    time_used: str
    """How long it has run."""
    time_limit: str
    """How long it may run."""
    output: str | None
    """The path of the output file; None if Slurm no longer knows it."""
    program_exit_code: int | None
    """The exit code of the program, if `submit` started it and it ran to its end; else None."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended. A requeued job waits again."""
        return self.state in ENDED

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        parts = [f"job {self.job} {self.name}: {self.state}{why}"]
        if self.nodes:
            parts.append(f"on {self.nodes}")
        if self.has_ended:
            own = self.program_exit_code
            end = "the program did not run to its end" if own is None else f"the program has ended with {own}"
            parts.append(f"exit code {self.exit_code}; {end}")
            if self.reason == "JobLaunchFailure":  # also if a signal has ended the script
                number = (self.exit_code or 0) - 128
                parts.append(f"signal {number} ended its batch script" if 0 < number < 32 else _NOT_STARTED)
            elif own is None and self.exit_code == script.CANNOT_WRITE:
                parts.append(_FULL)
        elif self.state == "RUNNING":
            parts.append(f"{self.time_used} of {self.time_limit}, until {self.end}")
        elif self.reason in _HINTS:
            parts.append(_HINTS[self.reason])
        elif self.state == "PENDING" and self.start:
            parts.append(f"expected to start {self.start}")
        return ", ".join(parts) + (f"\n  output: {self.output}" if self.output else "")


@dataclass(frozen=True)
class Granted:
    """The resources of a job on one node."""

    cpus: int
    memory: int
    """Bytes; 0: Slurm does not count memory."""
    gpus: tuple[int, ...]
    """Numbers of devices, as the node counts them."""


def make_request(profile: str | None = None, **options: Any) -> Request:
    """Return the request of a profile and these options. Options that are None count as not given.

    Raises:
        ValueError, TypeError: the profile or an option does not exist, or a value is not allowed.
    """
    given = {name: value for name, value in options.items() if value is not None}
    profiles.check_names(given, "submit()")
    return Request(**profiles.merged(profiles.read(profiles.path(environment()), profile), given))


def submit(program: str | Sequence[str], *, profile: str | None = None, cwd: str | None = None, **options: Any) -> str:
    """Submit a program to Slurm and return the id of its job.

    Args:
        program: the program, "app.py", or a list with its arguments: ["app.py", "argument"], ["-m", "package.module"].
        profile: a name in the file of profiles; None: its `[default]`.
        cwd: the directory in which the job runs and writes its output; None: the present one. All nodes must see it.
        **options: the fields of `Request`, such as nodes=2, gpus_per_node=4, time="1:00:00". They come before a
            profile.

    Raises:
        SlurmError: Slurm refused, or no nodes can ever run the job. The message says why.
        ValueError, TypeError: an option is not allowed, or the program is not a file.
    """
    words = (program,) if isinstance(program, str) else tuple(program)
    request = make_request(profile, **options)
    check_program(request, words, cwd)
    return submit_script(script.text(request, words), cwd)


def check_program(request: Request, program: tuple[str, ...], cwd: str | None = None) -> None:
    """Raise ValueError if the program is not a file of the job's directory, as far as this host can tell."""
    word = program[0] if program else ""
    if not word or word in ("-m", "-c") or Path(cwd or ".", word).exists():
        return
    if (parts := word.split())[1:] and Path(cwd or ".", parts[0]).exists():
        raise ValueError(f"there is no file {word!r}: a program with arguments is a list, {parts}")
    moves = any(re.search(r"\bcd\b|\bpushd\b", line) for line in request.setup)
    moves = moves or any(re.match(r"--chdir|-D", option) for option in request.sbatch)
    if not moves and not (request.array is not None and script.TASK in word):
        raise ValueError(f"there is no file {word!r} in {Path(cwd or '.').resolve()}, where the job would look for it")


def submit_script(text: str, cwd: str | None = None) -> str:
    """Submit a batch script and return the id of its job.

    Raises:
        SlurmError: Slurm refused, or no nodes of the partition can ever run it. The message says why.
    """
    env = _for_sbatch(text)
    try:
        call(["sbatch", "--test-only"], cwd, text, env=env)
    except SlurmError as error:
        # By default Slurm accepts jobs that can never run. Its message is the same for jobs that wait for the repair
        # of a node. sbatch reports any other error again below.
        if _NEVER in str(error).lower() and _are_all_nodes_available(text):
            raise SlurmError(f"it could never start. {error}") from None
    answer = call(["sbatch", "--parsable"], cwd, text, env=env)
    return answer.strip().split(";")[0]


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started; jobs that run are left alone.

    Raises:
        SlurmError: Slurm does not answer.
    """
    if not jobs:
        return
    try:
        call(["scancel", "--state=PENDING", *jobs])
    except SlurmError as error:
        if "invalid job id" not in str(error).lower():  # Slurm's word for a job that has ended; others are cancelled
            raise


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
    lines = [line.split() for line in call(["sinfo", "-h", "-N", "-o", "%P %T"]).splitlines()]
    asked = found[1].split(",") if found else []
    states = [state for name, state in lines if (name.rstrip("*") in asked if asked else name.endswith("*"))]
    return bool(states) and all(state in _AVAILABLE for state in states)


def status(job: str | int) -> Status:
    """Return the status of a job, or of one task of an array ("12_3").

    Raises:
        SlurmError: Slurm does not know the job, or does not answer; or the job is an array: see `statuses`.
    """
    found = statuses(job)
    if len(found) > 1:
        raise SlurmError(f"job {job} is an array: ask for one of its tasks, as {found[0].job}, or for statuses({job})")
    return found[0]


def statuses(job: str | int) -> list[Status]:
    """Return the status of each task of an array, in order. Tasks that wait together are one entry.

    For other jobs the list has one entry.

    Raises:
        SlurmError: Slurm does not know the job, or does not answer.
    """
    if not _ID.fullmatch(str(job)):
        raise SlurmError(f"{str(job)!r} is not the id of a job: ids are like 4711, or 4711_3 for a task of an array")
    try:
        lines = call(["scontrol", "show", "job", "-o", str(job)]).splitlines()
    except SlurmError as error:
        return _from_accounting(str(job), error)
    return sorted((_status(facts_of(line)) for line in lines), key=task_number)


def task_number(status: Status) -> int:
    """Return the first index of the array tasks that this status is about; 0 if it is not about an array."""
    return next(iter(task_numbers(status)), 0)


def _status(facts: dict[str, str]) -> Status:
    job = facts["JobId"]
    if task := facts.get("ArrayTaskId"):
        job = f"{facts['ArrayJobId']}_{task if task.isdecimal() else f'[{task}]'}"
    code, _, number = facts.get("ExitCode", "0:0").partition(":")
    state = facts["JobState"].split()[0]  # the accounting has "CANCELLED by 1000"
    return Status(
        job=job,
        state=state,
        reason="" if facts.get("Reason", "None") == "None" else facts["Reason"],
        exit_code=_exit_code(code, number) if state in ENDED else None,
        nodes=_known(facts.get("NodeList")),
        name=facts.get("JobName", ""),
        start=_known(facts.get("StartTime")),
        end=_known(facts.get("EndTime")),
        time_used=facts.get("RunTime", ""),
        time_limit=facts.get("TimeLimit", ""),
        output=facts.get("StdOut"),
        program_exit_code=exit_file.read(Path(facts.get("WorkDir", ""), f"{facts.get('JobName', '')}-{job}.exit")),
    )


def granted(job: str | int) -> dict[str, Granted]:
    """Return the resources of a running job on each of its nodes, by name.

    Raises:
        SlurmError: Slurm does not know the job, or does not answer.
    """
    found: dict[str, Granted] = {}
    for line in call(["scontrol", "--detail", "show", "job", str(job)]).splitlines():
        if one := re.search(r"\bNodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)", line):
            ids = re.search(r"gpu[^,]*?\(IDX:([\d,-]*)\)", one[4])
            own = Granted(len(_numbers(one[2])), int(one[3]) << 20, _numbers(ids[1]) if ids else ())
            found.update(dict.fromkeys(nodelist.expand(one[1]), own))
    return found


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as 0-2,5."""
    return tuple(int(name) for name in nodelist.expand(f"[{text}]")) if text else ()


def table(tasks: Sequence[Status]) -> str:
    """Return a line for each task of an array, after a line of titles."""
    rows = [("task", "state", "exit code", "nodes", "time", "output")]
    for one in tasks:
        code = "none" if one.has_ended else ""
        code = code if one.program_exit_code is None else str(one.program_exit_code)
        output = Path(one.output).name if one.output else ""
        rows.append((one.job.partition("_")[2], one.state, code, one.nodes, one.time_used, output))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{word:{width}}" for word, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def task_numbers(status: Status) -> tuple[int, ...]:
    """Return the indices of the array tasks that this status is about; empty if it is not about an array."""
    found = re.search(r"_(?:(\d+)|\[([\d,:-]+))", status.job)
    if found is None:
        return ()
    numbers: list[int] = []
    for first, last, step in re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", found[1] or found[2]):  # 7, 4-9 or 0-20:2
        numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(numbers)


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
        rows = call(["sacct", "-n", "-P", "-X", "-j", job, "-o", ",".join(_SACCT)]).splitlines()
    except SlurmError:
        raise error from None
    if not rows:
        raise error
    return [_status(dict(zip(_SACCT.values(), row.split("|"), strict=True))) for row in rows]


def _exit_code(code: str, number: str) -> int:
    return int(code) or (128 + int(number) if number.isdecimal() and int(number) else 0)


def _known(text: str | None) -> str:
    return "" if text in (None, "(null)", "Unknown", "None assigned", "None") else str(text)
