"""The mark of calls that bring their own scheduler, in the environment of executors. See `calls/own_scheduler.py`.

The name of the entry has a '=', so it cannot be a variable. Executors with the mark run no other calls, since executors
have one environment for life. Inside such a call all executors have the mark with another value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpi_runtime import config as configuration
from mpi_runtime.scheduler.protocol.events import BRINGS, OWN_SCHEDULER

CALL_OF = "_MPI_RUNTIME_CALL_OF"
"""A variable of all processes inside such a call: the process id of its executor. By it they are found."""


def brings_one(environment: Mapping[str, str]) -> bool:
    """Whether executors with this environment run calls that bring their own scheduler."""
    return environment.get(OWN_SCHEDULER) == BRINGS


def is_inside(environment: Mapping[str, str]) -> bool:
    """Whether processes with this environment are inside such a call."""
    return OWN_SCHEDULER in environment and not brings_one(environment)


def inside(environment: Mapping[str, str], gpu_ids: Sequence[int]) -> dict[str, str]:
    """Return the environment for executors inside a call that holds these GPUs, from that of its executor.

    Archives are left out: they are objects of the outer job, and the processes inside find them unpacked. The texts are
    those of this process, so that references to variables in them are not replaced twice.
    """
    here = configuration.environment()
    variables = {name: here.get(name, text) for name, text in environment.items() if "=" not in name}
    return {**variables, OWN_SCHEDULER: ",".join(map(str, gpu_ids))}


def numbers(environment: Mapping[str, str], gpu_ids: list[int]) -> list[int]:
    """Return the ids that GPUs of an executor have outside of the call around it; outside of such calls, the same."""
    if not gpu_ids or not is_inside(environment):
        return gpu_ids
    outer = environment[OWN_SCHEDULER].split(",")
    return [int(outer[id]) for id in gpu_ids]
