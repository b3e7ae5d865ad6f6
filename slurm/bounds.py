"""Upper bounds for a job that is not submitted yet, from its request: what cannot run within them never can."""

import math
import re
from typing import NamedTuple

from mpi_runtime.slurm import systems
from mpi_runtime.slurm.request import Request, seconds

__all__ = ["Bounds", "of", "seconds"]

_UNITS = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}
"""Powers of two; Slurm counts memory in MB by default."""
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
    """Return the bounds of a job with this request. Asks the batch system for the CPUs of whole nodes."""
    return Bounds(
        request.cpus_per_node or systems.queue(request.system).largest_node(request.partition),
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
