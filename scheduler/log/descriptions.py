"""What lists say of actors, executors and placement groups, also of those that have ended and have no record."""

from __future__ import annotations

import msgspec

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.entries import ActorEntry, Amounts, GroupEntry, WorkerEntry
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.resources import Grant
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.records import Actor, Executor
from mpi_runtime.scheduler.records.state import Group

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


def group_entry(group: Group, state: str, scheduling: str, why: str) -> GroupEntry:
    """A placement group as users get it. `state` and `scheduling` are words of Ray's."""
    return GroupEntry(
        placement_group_id=group.id.hex(),
        name=group.name[1] if group.name is not None else "",
        bundles=[required(request) for request in group.requests],
        nodes=[group.bundles[i].node.id if i in group.bundles else "" for i in range(len(group.requests))],
        strategy=group.strategy,
        state=state,
        scheduling=scheduling,
        why=why,
    )


def worker_entry(executor: Executor) -> WorkerEntry:
    """An executor as users get it."""
    running = executor.running()
    return WorkerEntry(
        worker_id=f"{executor.id:032x}",
        pid=executor.pid or None,
        state=lifecycle.EXECUTOR_STATE_NAMES[executor.state],
        rank=executor.rank.number,
        node_id=executor.rank.node.id,
        actor_id=executor.actor.id.hex() if executor.actor is not None else None,
        task_id=running.id.hex() if running is not None else None,
        gpu_ids=list(executor.key.gpu_ids),
        assigned_resources=_held(executor.grant) if executor.grant is not None else {},
    )


def _held(grant: Grant) -> Amounts:
    gpu = sum(units for _, units, _ in grant.gpus)
    gpu_memory = sum(memory for _, _, memory in grant.gpus)
    return required(Request(grant.cpu, gpu, grant.memory, grant.custom, gpu_memory))


def ended_worker(executor: Executor, cause: str, time_ms: int) -> WorkerEntry:
    """An executor whose process is gone, as users get it. `cause` is the signal or the exit code, in words."""
    if executor.is_out_of_memory:
        kind = "NODE_OUT_OF_MEMORY"
    elif executor.actor is not None and executor.actor.cause.startswith(lifecycle.LEFT):
        kind = "INTENDED_USER_EXIT"
    elif executor.state == lifecycle.STOPPING:
        kind = "INTENDED_SYSTEM_EXIT"
    else:  # code 0: after `max_calls`, or by sys.exit()
        kind = "INTENDED_USER_EXIT" if cause.startswith("exited with code 0") else "SYSTEM_ERROR"
    return msgspec.structs.replace(
        worker_entry(executor), state="DEAD", is_alive=False, exit_type=kind, end_time_ms=time_ms
    )
