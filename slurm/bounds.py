"""Upper bounds for a job that is not submitted yet, from its request: what cannot run within them never can."""

import math
import re
from typing import NamedTuple

from mpi_runtime.slurm.commands import SlurmError, call
from mpi_runtime.slurm.script import Request

_UNITS = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}
"""Powers of two; Slurm counts memory in MB by default."""
_LIMIT_S = 10.0
_OTHER_GPUS = re.compile(r"--(gpus|gres|tres)")
"""Options of sbatch that may request GPUs, too."""


class Bounds(NamedTuple):
    """The most that a job has; infinite where its request does not say."""

    cpus: float
    """On each node, as `gpus` and `memory`."""
    gpus: float
    memory: float
    """Bytes."""
    seconds: float
    nodes: int = 1


def of(request: Request) -> Bounds:
    """Return the bounds of a job with this request. Asks Slurm for the CPUs of whole nodes."""
    return Bounds(
        request.cpus_per_node or _largest_node(request.partition),
        _gpus(request),
        _memory(request.memory),
        seconds(request.time),
        request.nodes_max,
    )


def _gpus(request: Request) -> float:
    if request.gpus_per_node is None:
        return math.inf if any(map(_OTHER_GPUS.match, request.sbatch)) else 0
    found = re.search(r"(?:^|:)(\d+)$", str(request.gpus_per_node))
    return int(found[1]) if found else 1  # a type without a number is one


def _memory(text: str | None) -> float:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text or "", re.IGNORECASE)
    return int(found[1]) << _UNITS[found[2].upper()] if found and int(found[1]) else math.inf  # "0" is all of it


def seconds(time: str | None) -> float:
    """Return a time limit as Slurm writes it, in seconds; infinite if it is not stated.

    The forms are minutes, minutes:seconds, hours:minutes:seconds, and after a number of days and a dash
    hours[:minutes[:seconds]].
    """
    days, dash, rest = (time or "").rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts):
        return math.inf  # none, UNLIMITED or INFINITE
    factors = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return int(days or 0) * 86400 + sum(int(part) * factor for part, factor in zip(parts, factors, strict=False))


def _largest_node(partition: str | None) -> float:
    """Return the most CPUs of a node; infinite if Slurm does not answer."""
    words = ["sinfo", "-h", "-N", "-o", "%c", *(["-p", partition] if partition else [])]
    try:
        counts = re.findall(r"^\s*(\d+)", call(words, limit_s=_LIMIT_S), re.MULTILINE)
    except SlurmError:
        return math.inf
    return max(map(int, counts), default=math.inf)
