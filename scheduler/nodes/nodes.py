"""Ranks that join add their resources to the pool of their node. With the last one the job begins."""

from __future__ import annotations

from mpi_runtime.gpu.ledger import Inventory
from mpi_runtime.scheduler.dispatch import fair_shares
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.nodes import groups
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.effects import GPU, MEMORY
from mpi_runtime.scheduler.protocol.events import DRIVER, HOSTNAME, NODE_ID
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.rank_events import JobBegan, RankJoined
from mpi_runtime.scheduler.protocol.resources import Pool
from mpi_runtime.scheduler.records.records import Node, Rank
from mpi_runtime.scheduler.records.state import Client, State


def join(state: State, event: RankJoined, now: int) -> None:
    """Add the resources of a rank to its node. The driver belongs to the node of rank 0."""
    node = state.hosts.get(event.host)
    if node is None:
        gpus = Inventory()
        total, free = Pool(0, 0, {}, [], [], gpus), Pool(0, 0, {}, [], [], gpus)
        node = Node(number=len(state.hosts), hostname=event.hostname, total=total, free=free, address=event.address)
        node.labels = {NODE_ID: node.id, HOSTNAME: event.hostname}
        state.hosts[event.host] = state.nodes[node.number] = node
    node.labels.update(event.labels)
    state.able.clear()
    rank = Rank(event.rank, node, bool(event.cpus or event.cpu > 0), cpus=event.cpus)
    state.ranks[event.rank] = rank
    node.ranks.append(rank)
    node.arena = max(node.arena, event.arena)
    before = node.total.cpu
    node.cpus = sorted({*node.cpus, *event.cpus})
    node.cpu_limit = node.cpu_limit or event.cpu_limit
    if event.cpu >= 0:
        node.explicit_cpu = max(node.explicit_cpu, 0) + event.cpu
    node.total.cpu = node.explicit_cpu if node.explicit_cpu >= 0 else len(node.cpus) * UNIT
    node.free.cpu += node.total.cpu - before
    for pool in (node.total, node.free):
        pool.memory += event.memory
        for name, units in event.custom.items():
            pool.custom[name] = pool.custom.get(name, 0) + units
    gpu_pool.join(state, node, rank, event)
    if event.spill_problem:
        notes.log(state, notes.WARNING, MEMORY, f"host {node.hostname}: {event.spill_problem}.", rank)
    if node.hosts_executors:
        state.index.update(node)
    if event.rank == 0:
        state.wall_us = event.wall_us
        state.end_us = event.end_us or None
        state.clients[DRIVER] = Client(DRIVER, node, None)
    fair_shares.measure(state)
    for group in state.waiting_groups.values():
        groups.look_at_nodes(state, group)
    state.freed = True


def begin(state: State, event: JobBegan, now: int) -> None:
    """Begin the job, since all ranks have joined. It is refused if a node lacks stated GPUs."""
    state.has_journal, state.recalls, state.survives_losses = event.has_journal, event.recalls, event.survives_losses
    state.effects.refusal = gpu_pool.limit(state, event.num_gpus)
    if not state.effects.refusal:
        for node in state.nodes.values():
            for trouble in node.gpu_problems:
                notes.log(state, notes.WARNING, GPU, f"host {node.hostname}: {trouble}.", node.ranks[0])
