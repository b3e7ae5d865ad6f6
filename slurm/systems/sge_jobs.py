"""Jobs of Grid Engine: submit them, ask for their status, cancel them.

qstat knows jobs that wait or run, qacct those that have ended, though up to 15 s later.
"""

import functools
import math
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

from mpi_runtime.slurm import commands, exit_file
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.status import Status, task_numbers
from mpi_runtime.slurm.systems import devices, lives

CURES = (
    ("unknown resource", "The resources there are: qconf -sc"),
    ("is not a valid queue", "The queues there are: qconf -sql"),
    ("does not exist", "Queues: qconf -sql; parallel environments: qconf -spl; projects: qconf -sprjl"),
    ("no suitable queues", "What the nodes have: qhost; the limits of a queue: qconf -sq QUEUE"),
    ("unable to contact qmaster", "The master does not answer: qstat shows when it is back."),
)
ACCOUNT_LIMIT_S = 20.0
"""Seconds until the accounting has a job that has ended: it is written every 15 s by default."""
_PAUSE_S = 1.0
_LOOK_LIMIT_S = 10.0
_OF_A_JOB = re.compile(
    r"(JOB_ID|JOB_NAME|JOB_SCRIPT|PE|PE_HOSTFILE|NSLOTS|NHOSTS|NQUEUES|QUEUE|REQUEST|REQNAME|RESTARTED|ENVIRONMENT|TMPDIR"
    r"|TMP|ARC|SGE_(?!ROOT|CELL|QMASTER_PORT|EXECD_PORT|CLUSTER_NAME).*|PMIX?_.*|OMPI_COMM_WORLD_.*|"
    + "|".join(devices.OF_JOB)
    + ")"
)
"""Variables that Grid Engine and launchers set in jobs."""
_RESCHEDULED, _TIMEOUT, _DELETED = 25, 37, 100
"""Numbers of `failed` in the accounting."""
_TERMINATED = 143
"""The exit code of a batch script that was deleted, or at the end of its time, and has ended in order."""
_places: dict[str, tuple[str, str]] = {}
"""Names and directories of jobs that qstat knew: qacct does not state the directory, and no jobs that never began."""
_call = functools.partial(commands.call, cures=CURES, whose="Grid Engine")


def submit(text: str, cwd: str | None) -> str:
    """Submit a batch script and return the id of its job.

    Raises:
        SlurmError: Grid Engine refused, or no queue can ever run it. The message says why.
    """
    env = environment()
    if "JOB_ID" in env and "SGE_O_HOST" in env:
        env = {name: value for name, value in env.items() if not _OF_A_JOB.fullmatch(name)}
    answer = _call(["qsub", "-terse", "-w", "e"], cwd, text, env=env)
    job = answer.strip().splitlines()[-1].split(".")[0]
    name = re.search(r"^#\$ -N (\S+)", text, re.MULTILINE)
    _places[job] = (name[1] if name else "", str(Path(cwd or ".").resolve()))
    return job


def statuses(job: str) -> list[Status]:
    """Return the status of a job, or of each task of an array. Tasks that wait together are one entry.

    Raises:
        SlurmError: Grid Engine does not know the job, or does not answer.
    """
    number, _, task = job.partition("_")
    end_s = time.monotonic() + ACCOUNT_LIMIT_S
    while True:
        found = present(number, int(task) if task else None)
        known = {index for one in found for index in task_numbers(one)}
        if not found or known:
            found += [one for one in _ended(number, task) if not known.intersection(task_numbers(one))]
        if found:
            return found
        if time.monotonic() > end_s and number in _places:
            return [_status(job, _places[number][0], "CANCELLED", "never begun", None)]
        if time.monotonic() > end_s:
            raise SlurmError(f"Grid Engine does not know the job {job}: neither qstat nor qacct, where ended jobs are")
        time.sleep(_PAUSE_S)


def present(job: str, task: int | None) -> list[Status]:
    """Return the status of a job that waits or runs, or of its tasks; empty if qstat does not know it."""
    listed = ElementTree.fromstring(_call(["qstat", "-xml", "-u", "*"]))
    rows = [row for row in listed.iter("job_list") if row.findtext("JB_job_number") == job]
    if not rows:
        return []
    try:
        detail = _call(["qstat", "-j", job, "-xml"])
    except SlurmError:
        return []  # it has ended meanwhile
    found = [_waits_or_runs(job, row, detail) for row in rows]
    return [one for one in found if task is None or task in task_numbers(one)]


def limit_of(detail: str) -> float | None:
    """Return the seconds of `h_rt` in an answer of `qstat -j JOB -xml`; None: it is not stated."""
    found = re.search(r"<CE_name>h_rt</CE_name>.*?<CE_doubleval>(\d+)", detail, re.DOTALL)
    return float(found[1]) if found else None


def starts_of(detail: str) -> dict[int, float]:
    """Return when each task that runs has started; the task of a job without an array has the number 1."""
    tasks = r"<JAT_task_number>(\d+)</JAT_task_number>(?:(?!<JAT_task_number>).)*?<JAT_start_time>([1-9]\d+)<"
    return {int(found[1]): float(found[2]) for found in re.finditer(tasks, detail, re.DOTALL)}


def _waits_or_runs(job: str, row: ElementTree.Element, detail: str) -> Status:
    letters, tasks = row.findtext("state") or "", row.findtext("tasks")
    if tasks:
        job += f"_{tasks if tasks.isdecimal() else f'[{tasks}]'}"
    state, reason, advice = _state(letters, detail)
    number = row.findtext("JB_job_number") or ""
    place = re.search(r"<JB_cwd>(.*?)</JB_cwd>", detail)
    _places[number] = (row.findtext("JB_name") or "", place[1] if place else "")
    start_s = None
    if state == "RUNNING" and (text := row.findtext("JAT_start_time")):
        start_s = datetime.fromisoformat(text).timestamp()
    limit_s = limit_of(detail)
    return _status(
        job, row.findtext("JB_name") or "", state, reason, None,
        nodes=(row.findtext("queue_name") or "").rpartition("@")[2],
        start_s=start_s,
        end_s=start_s + limit_s if start_s is not None and limit_s is not None else None,
        used_s=time.time() - start_s if start_s is not None else None,
        limit_s=limit_s,
        advice=advice,
    )  # fmt: skip


def _state(letters: str, detail: str) -> tuple[str, str, str]:
    """Return the state in Slurm's words, the reason and advice for letters of qstat."""
    if "E" in letters:
        return "PENDING", "error", "it could not be started: qstat -j JOB shows why, qmod -cj JOB tries again"
    if "d" in letters:
        return "RUNNING", "deleted", ""
    if "h" in letters:
        return "PENDING", "hold", "it waits for another job, or is held: qrls JOB"
    if set("sST") & set(letters):
        return "SUSPENDED", "", ""
    if set("rt") & set(letters):
        return "RUNNING", "", ""
    return "PENDING", _why(detail), ""


def _why(detail: str) -> str:
    """Return the last reason why a job waits; the scheduler lists one for each queue, and general ones last."""
    texts = re.findall(r"<MES_message>(.*?)</MES_message>", detail, re.DOTALL)
    own = [text.replace("&apos;", "'").replace("&quot;", '"').strip() for text in texts if "max_aj_inst" not in text]
    return own[-1] if own else ""


def _ended(job: str, task: str) -> list[Status]:
    try:
        text = _call(["qacct", "-j", job])
    except SlurmError:
        return []  # not known, or the accounting is on another host
    last: dict[str, dict[str, str]] = {}
    for record in re.split(r"^=+$", text, flags=re.MULTILINE)[1:]:
        facts = {found[1]: found[2].strip() for found in re.finditer(r"^(\w+) +(.*)$", record, re.MULTILINE)}
        last[facts.get("taskid", "undefined")] = facts
    found = [_has_ended(job, index, facts) for index, facts in last.items() if _number(facts, "failed") != _RESCHEDULED]
    return [one for one in found if not task or int(task) in task_numbers(one)]


def _has_ended(job: str, index: str, facts: dict[str, str]) -> Status:
    failed, code = _number(facts, "failed"), _number(facts, "exit_status")
    start_s, end_s = (_time(facts.get(name, "")) for name in ("start_time", "end_time"))
    used_s = None if start_s is None or end_s is None else end_s - start_s
    limit = re.search(r"\bh_rt=(\d+)", facts.get("category", ""))
    if failed in (_TIMEOUT, _DELETED) or code == _TERMINATED:
        is_over = limit is not None and used_s is not None and used_s >= float(limit[1])
        state = "TIMEOUT" if failed == _TIMEOUT or is_over else "CANCELLED"
    else:
        state = "FAILED" if code or failed else "COMPLETED"
    return _status(
        job if index == "undefined" else f"{job}_{index}", facts.get("jobname", ""), state,
        facts.get("failed", "").partition(":")[2].strip(), code,
        nodes=facts.get("hostname", ""), start_s=start_s, end_s=end_s, used_s=used_s,
        limit_s=float(limit[1]) if limit else None,
    )  # fmt: skip


def _status(
    job: str, name: str, state: str, reason: str, code: int | None, *, nodes: str = "", start_s: float | None = None,
    end_s: float | None = None, used_s: float | None = None, limit_s: float | None = None, advice: str = "",
) -> Status:  # fmt: skip
    place = Path(_places.get(job.partition("_")[0], ("", ""))[1]).resolve()
    base = place / f"{name}-{job}"
    return Status(
        job=job, state=state, reason=reason, exit_code=code, nodes=nodes, name=name, start=lives.shown(start_s),
        end=lives.shown(end_s), time_used=lives.span(used_s), time_limit=lives.span(limit_s),
        output=f"{base}.out" if "[" not in job else None,
        program_exit_code=exit_file.read(Path(f"{base}.exit")), advice=advice,
    )  # fmt: skip


def living(name: str) -> dict[str, str]:
    """Return the state of each job of this name that has not ended, by id.

    Raises:
        SlurmError: Grid Engine does not answer.
    """
    rows = ElementTree.fromstring(_call(["qstat", "-xml"])).iter("job_list")  # those of this user
    own = [row for row in rows if row.findtext("JB_name") == name]
    return {row.findtext("JB_job_number") or "": _state(row.findtext("state") or "", "")[0] for row in own}


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started.

    Raises:
        SlurmError: Grid Engine does not answer.
    """
    for job in jobs:
        for one in present(job, None):
            if one.state == "PENDING":
                tasks = re.search(r"_\[?([\d:,-]+)", one.job)
                _call(["qdel", job, *(["-t", tasks[1]] if tasks else [])])


def cancel(job: str) -> None:
    """Cancel a job, or one task of an array, even if it runs. A job that has ended is left as it is.

    Raises:
        SlurmError: Grid Engine does not answer.
    """
    number, _, task = job.partition("_")
    if present(number, int(task) if task else None):
        _call(["qdel", number, *(["-t", task] if task else [])])


def largest_node(partition: str | None) -> float:
    """Return the most CPUs of a node; infinite if Grid Engine does not answer."""
    try:
        rows = [line.split() for line in _call(["qhost"], limit_s=_LOOK_LIMIT_S).splitlines()[3:]]
    except SlurmError:
        return math.inf
    return max((int(row[2]) for row in rows if row[2:] and row[2].isdecimal()), default=math.inf)


def _number(facts: dict[str, str], name: str) -> int:
    found = re.match(r"\d+", facts.get(name, ""))
    return int(found[0]) if found else 0


def _time(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").timestamp()
    except ValueError:
        return None
