"""Finds the commands that no node of the job can ever run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import mpi_runtime
from mpi_runtime.batch.elastic.records import pool_of
from mpi_runtime.batch.file.entries import Problem
from mpi_runtime.batch.file.model import Command, Demand
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import Capacity
from mpi_runtime.config import RESERVED_RESOURCES
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.resources import ANY_MEMORY, Pool, fits, room
from mpi_runtime.show.numbers import seconds
from mpi_runtime.slurm.bounds import Bounds
from mpi_runtime.slurm.walltime import lead_s

MANY, MANY_GPUS = 1e9, 256
"""What a node has at most of a resource without a bound: more than any, and few enough for a record of each device."""


def node_resources() -> list[dict[str, float]]:
    """The total resources of each node of the job."""
    return [dict(node["Resources"]) for node in mpi_runtime.nodes() if node["Alive"]]


def pools() -> tuple[Pool, ...]:
    """The same as the scheduler counts them."""
    return tuple(map(pool_of, node_resources()))


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


def infeasible_here(groups: Sequence[Group]) -> list[Problem]:
    """A problem for each group that no node of the job can ever run."""
    limits = [f"on {one['NodeName']} {one['cpu_limit']}" for one in mpi_runtime.nodes() if one["cpu_limit"]]
    return infeasible(groups, pools(), limits[0] if limits else "")


def infeasible(groups: Sequence[Group], nodes: Sequence[Pool], cpu_limit: str = "") -> list[Problem]:
    """A problem for each group that no node can ever run. The commands of a group have the same request.

    `cpu_limit`: why a node has fewer CPUs than its host.
    """
    reasons = [(group, cannot_run(group.commands[0], nodes, cpu_limit)) for group in groups if group.commands]
    return [Problem(*group.place, f"{group.name}: {reason}") for group, reason in reasons if reason]


def beyond(groups: Sequence[Group], bounds: Bounds, reserve_s: float) -> list[Problem]:
    """A problem for each group that a job within these bounds can never run; custom resources are not bounded.

    Commands must have ended `reserve_s` before the end of the job's time.
    """
    demands = [demand for group in groups for command in group.commands for demand in command.demands()]
    custom = {name: MANY for demand in demands for name in demand.resources}
    cpus, gpus, memory = min(bounds.cpus, MANY), min(bounds.gpus, MANY_GPUS), min(bounds.memory, ANY_MEMORY)
    node = pool_of({**custom, "CPU": cpus, "GPU": gpus, "memory": memory})
    found = infeasible(groups, [node] * bounds.nodes)
    limit_s = bounds.seconds - lead_s(reserve_s, time.time() + bounds.seconds)
    for group in groups:
        least_s, told_by = _claim_s(group.commands[0]) if group.commands else (0.0, "")
        if least_s > limit_s:
            found.append(
                Problem(
                    *group.place,
                    f"{group.name}: can never end: it may take {seconds(least_s)} ({told_by}), and the job "
                    f"ends commands after {seconds(limit_s)}",
                )
            )
    return found


def _claim_s(command: Command) -> tuple[float, str]:
    """How much time a command must have left to be started, and the option that claims it; 0: none does."""
    if command.expect is not None:
        return command.expect, "expect"
    limit_s = command.limit_s()
    return (limit_s, "time_limit and grace") if limit_s is not None else (0.0, "")


def cannot_run(command: Command, nodes: Sequence[Pool], cpu_limit: str = "") -> str:
    """Why no node can ever run a command; empty if one can. `nodes` are the total resources of each."""
    if command.ranks > 1:
        return _cannot_have_ranks(command, nodes, cpu_limit)
    reasons = [_cannot_have(demand, nodes, cpu_limit) for demand in command.demands()]
    return "; nor with another alternative: ".join(reasons) if all(reasons) else ""


def _cannot_have_ranks(command: Command, nodes: Sequence[Pool], cpu_limit: str) -> str:
    demand = command.demands()[0]
    there = sum(room(demand.request(), node, command.ranks_per_node or command.ranks) for node in nodes)
    if there >= command.ranks:
        return ""
    each = _in_words(demand.amounts()) + (f"; {cpu_limit}" if cpu_limit else "")
    return f"can never run: the nodes have room for {there} of its {command.ranks} ranks, each with {each}"


def _in_words(request: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in request.items() if amount)


def _cannot_have(demand: Demand, nodes: Sequence[Pool], cpu_limit: str) -> str:
    request, amounts = demand.request(), demand.amounts()
    if any(fits(request, node) for node in nodes):
        return ""
    for name, amount in amounts.items():
        most = max((_amount_in(node, name) for node in nodes), default=0)
        if amount > most:
            why = f"; {cpu_limit}" if cpu_limit and name == "CPU" else ""
            return f"can never run: it needs {_in_words(amounts)}, and no node has more than {name} {most:g}{why}"
    return f"can never run: it needs {_in_words(amounts)}, and no one node has all of it"


def _amount_in(node: Pool, name: str) -> float:
    """What a node has of a resource, in the numbers that people use."""
    if name == "memory":
        return float(node.memory)
    units = {"CPU": node.cpu, "GPU": sum(node.gpu_units)}
    return units.get(name, node.custom.get(name, 0)) / UNIT
