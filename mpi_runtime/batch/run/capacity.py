"""Finds the commands that no node of the job can ever run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import mpi_runtime
from mpi_runtime.batch.file.entries import Problem
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.memory.past import Capacity
from mpi_runtime.batch.show.overview import duration
from mpi_runtime.config import RESERVED_RESOURCES
from mpi_runtime.slurm.bounds import Bounds
from mpi_runtime.slurm.walltime import lead_s


def node_resources() -> list[dict[str, float]]:
    """The total resources of each node of the job."""
    return [dict(node["Resources"]) for node in mpi_runtime.nodes() if node["Alive"]]


def capacities() -> list[Capacity]:
    """The nodes of the job that run commands."""
    found = []
    for node in mpi_runtime.nodes():
        has = node["Resources"]
        if node["Alive"] and has.get("CPU", 0) + has.get("GPU", 0) > 0:
            cpus, gpus, memory = (has.get(name, 0.0) for name in ("CPU", "GPU", "memory"))
            custom = {name: has[name] for name in has if name not in RESERVED_RESOURCES}
            found.append(Capacity(node["NodeManagerHostname"], cpus, gpus, memory, custom))
    return found


def infeasible(groups: Sequence[Group], nodes: Sequence[Mapping[str, float]]) -> list[Problem]:
    """A problem for each group that no node can ever run. The commands of a group have the same request."""
    reasons = [(group, cannot_run(group.commands[0], nodes)) for group in groups if group.commands]
    return [Problem(*group.place, f"{group.name}: {reason}") for group, reason in reasons if reason]


def beyond(groups: Sequence[Group], bounds: Bounds, reserve_s: float) -> list[Problem]:
    """A problem for each group that a job within these bounds can never run; custom resources are not bounded.

    Args:
        groups: of a batch.
        bounds: of the job.
        reserve_s: how long before the end of the job's time commands must have ended.
    """
    custom = {name: math.inf for group in groups for command in group.commands for name in command.resources}
    node = {**custom, "CPU": bounds.cpus, "GPU": bounds.gpus, "memory": bounds.memory}
    found = infeasible(groups, [node] * bounds.nodes)
    limit_s = bounds.seconds - lead_s(reserve_s, time.time() + bounds.seconds)
    for group in groups:
        least_s = min((one.time_limit + one.grace for one in group.commands if one.time_limit is not None), default=0.0)
        if least_s > limit_s:
            found.append(
                Problem(
                    *group.place,
                    f"{group.name}: can never end: it may take {duration(least_s)} (time_limit and grace), and the job "
                    f"ends commands after {duration(limit_s)}",
                )
            )
    return found


def _ranks_that_fit(command: Command, request: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> int:
    """How many ranks of a command the nodes have room for at the most."""
    found = 0
    for node in nodes:
        fit = [node.get(name, 0) / amount + 1e-9 for name, amount in request.items() if amount]
        found += int(min([*fit, command.ranks_per_node or command.ranks]))
    return found


def cannot_run(command: Command, nodes: Sequence[Mapping[str, float]]) -> str:
    """Why no node can ever run a command; empty if one can. `nodes` are the total resources of each."""
    own = {"CPU": command.num_cpus, "GPU": command.num_gpus, "memory": float(command.memory)}
    request = {**own, **command.resources}
    if command.ranks > 1 and (room := _ranks_that_fit(command, request, nodes)) < command.ranks:
        asked = ", ".join(f"{name} {amount:g}" for name, amount in request.items() if amount)
        return f"can never run: the nodes have room for {room} of its {command.ranks} ranks, each with {asked}"
    if any(all(node.get(name, 0) >= amount for name, amount in request.items()) for node in nodes):
        return ""
    asked = ", ".join(f"{name} {amount:g}" for name, amount in request.items() if amount)
    for name, amount in request.items():
        most = max((node.get(name, 0) for node in nodes), default=0)
        if amount > most:
            return f"can never run: it needs {asked}, and no node has more than {name} {most:g}"
    return f"can never run: it needs {asked}, and no one node has all of it"
