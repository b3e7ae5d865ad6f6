"""The end of a job's time, read from the answer of its batch system. Pure.

Understands qstat of OpenPBS, PBS Pro and Torque, and bjobs since LSF 9.1.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime

from mpi_runtime.slurm.allocation import Allocation


def question(own: Allocation) -> tuple[Sequence[str], Callable[[str, float], float | None]] | None:
    """Return a command that asks the batch system, and a function that reads its answer; None: no such command.

    The function takes the answer and the time now, and returns the end of the job's time, or None if it is not stated.
    Both times are in seconds since 1970.
    """
    if own.system == "slurm":
        return ["scontrol", "show", "job", "-o", own.job], _slurm
    if own.system == "pbs":
        return ["qstat", "-f", own.job], _pbs
    if own.system == "lsf":
        job = own.job if own.array_task is None else f"{own.job}[{own.array_task}]"
        return ["bjobs", "-noheader", "-o", "time_left", job], _lsf
    return None


def _slurm(text: str, now: float) -> float | None:
    found = re.search(r"\bEndTime=(\S+)", text)
    return _time(found[1], "%Y-%m-%dT%H:%M:%S") if found else None


def _pbs(text: str, now: float) -> float | None:
    """Add the requested time to the job's start; if the start is not stated, subtract the used time."""
    facts = dict(re.findall(r"^\s+(\S+) = (.+?)\s*$", text, re.MULTILINE))
    limit = _seconds(facts.get("Resource_List.walltime", ""))
    used = _seconds(facts.get("resources_used.walltime", ""))
    began = _time(facts.get("stime") or facts.get("start_time", ""), "%a %b %d %H:%M:%S %Y")
    if limit is None:
        return None
    if began is not None:
        return began + limit
    return None if used is None else now + limit - used


def _lsf(text: str, now: float) -> float | None:
    """Read hours and minutes, `0:12 L`. Another letter marks an estimate, at which the job does not end."""
    found = re.fullmatch(r"(\d+):(\d+) L", text.strip())
    return now + int(found[1]) * 3600 + int(found[2]) * 60 if found else None


def _seconds(text: str) -> float | None:
    """Read 720:00:00, or a number of seconds."""
    parts = text.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3:
        return None
    total = 0
    for part in parts:
        total = 60 * total + int(part)
    return total


def _time(text: str, form: str) -> float | None:
    try:
        return datetime.strptime(text, form).timestamp()
    except ValueError:
        return None
