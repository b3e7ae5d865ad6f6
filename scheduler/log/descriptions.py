"""What lists say of an actor, also of one that has ended: its record is gone by then."""

from __future__ import annotations

import msgspec

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.entries import ActorEntry, Amounts
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.records import Actor

LIVES = {
    lifecycle.CREATING: "PENDING_CREATION", lifecycle.ALIVE: "ALIVE", lifecycle.RESTARTING: "RESTARTING",
    lifecycle.ENDING: "DEAD", lifecycle.DEAD: "DEAD",
}  # fmt: skip


def required(request: Request) -> Amounts:
    """Amounts by name."""
    named = {"CPU": request.cpu, "GPU": request.gpu, **dict(request.custom)}
    needs = {name: units / UNIT for name, units in named.items() if units}
    bytes_needed = {"memory": request.memory, "gpu_memory": request.gpu_memory}
    return needs | {name: float(amount) for name, amount in bytes_needed.items() if amount}


def actor_entry(actor: Actor) -> ActorEntry:
    """An actor as users get it."""
    function, process, named = actor.creation.function, actor.process, actor.name
    needs = function.spec.asks if actor.spec.held_cpu else msgspec.structs.replace(function.spec.asks, cpu=0)
    return ActorEntry(
        actor_id=actor.id.hex(),
        class_name=function.spec.code_name or function.spec.name,
        state=LIVES[actor.state],
        name=named[1] if named is not None else "",
        repr_name=actor.title,
        ray_namespace=named[0] if named is not None else "",
        node_id=process.node.id if process is not None else None,
        pid=(process.pid or None) if process is not None else None,
        num_restarts=actor.restarts,
        death_cause=actor.cause or None,
        pending_calls=sum(line.waiting() for line in actor.callers.values()),
        driver=actor.driver,
        is_detached=actor.is_detached,
        required_resources=required(needs),
        placement_group_id=(function.where.group.hex() or None) if function.where is not None else None,
    )
