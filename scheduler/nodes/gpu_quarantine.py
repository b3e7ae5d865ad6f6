"""GPUs that fail: whether the call or the device is to blame, and when a device is quarantined.

A process with a dead CUDA context ends; its death is a crash like any other. An error in a kernel kills a context just
as a broken device does. These rules tell them apart:

1. If calls had ended well in the process, its devices had worked. Nothing is concluded.
2. If the process failed before any call had ended well, its devices become suspects. Other devices are granted first
   from then on, so the next attempt shows whether the call or the device is at fault. A process that uses the device
   and ends a call clears it.
3. If the next process on a suspect fails at once too, the device is quarantined: it is not granted any more. The
   function is blamed instead if a program can cause both errors and the function was the same both times.

Two kinds of failure are not the fault of one device. A device that other users have filled is granted last, but never
quarantined for that. If CUDA does not start on a node at all, all its GPUs are quarantined: each call would fail there
at once, and the next call would follow it. No retry is used for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpi_runtime.gpu.device import BUSY, NOBODY, NODE, PROGRAM
from mpi_runtime.scheduler.calls import tasks
from mpi_runtime.scheduler.dispatch.queues import clear, mark_dirty
from mpi_runtime.scheduler.dispatch.reservations import stop_idle
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.nodes import groups
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.effects import QUARANTINE
from mpi_runtime.scheduler.protocol.events import Faulted
from mpi_runtime.scheduler.records.records import Executor, Function, Node, Queue
from mpi_runtime.scheduler.records.state import Client, State

USED_UP = "\0"
"""The reason for a suspect that other users have filled. No function has this name."""
_WHY = {BUSY: "others use it up", NODE: "CUDA does not start there"}


def cause(executor: Executor, fault: Faulted) -> str:
    """The cause of an executor's end: one line, and the traceback."""
    gpus = ", ".join(named(executor.rank.node, id) for id in executor.key.gpu_ids)
    why = _WHY.get(fault.blame, "its context was dead for good")
    return f"ended because CUDA answered {fault.fault} in {fault.name} on {gpus}: {why}\n{fault.text}"


def named(node: Node, id: int) -> str:
    """A device with its number and UUID, for messages."""
    return f"GPU {id} ({gpu_pool.uuids(node, [id])[0]})"


def faulted(state: State, client: Client, event: Faulted, now: int) -> None:
    """Note the GPU error that ends an executor."""
    client.as_executor().fault = event


def blame(state: State, executor: Executor, fault: Faulted) -> None:
    """Blame the GPUs or the function of a dead process. The rules are at the head of this file."""
    node = executor.rank.node
    inventory = node.inventory
    if fault.blame == NODE:
        lose_all(state, node, fault)
    if fault.blame in (NODE, NOBODY):
        return
    reason = fault.name if fault.blame == PROGRAM else ""
    for id in executor.key.gpu_ids:
        if id in inventory.out:
            continue
        if fault.blame == BUSY:
            inventory.suspects.setdefault(id, USED_UP)
            continue
        known = inventory.suspects.pop(id, None)
        if not fault.is_fresh:
            continue
        if known in (None, USED_UP) or known == reason != "":
            inventory.suspects[id] = reason
        else:
            why = f"two fresh executors failed, the last with {fault.fault} in {fault.name}"
            count = len(inventory.devices)
            rest = f"{count - len(inventory.out) - 1} of {count} remain"
            quarantine(state, node, [id], why, f"{named(node, id)} quarantined: {why}; {rest}")


def lose_all(state: State, node: Node, fault: Faulted) -> None:
    """Quarantine all devices of a node on which CUDA does not start."""
    left = [id for id in range(len(node.inventory.devices)) if id not in node.inventory.out]
    why = f"CUDA does not start on this node: {fault.fault}"
    if left:
        node.gpu_error = f"CUDA does not start: {fault.fault}"
        quarantine(state, node, left, why, f"{why}. None of its {len(left)} GPU(s) is used any more")


def quarantine(state: State, node: Node, ids: Sequence[int], why: str, text: str) -> None:
    """Grant these devices no more, and log that."""
    node.inventory.out.update(dict.fromkeys(ids, why))
    node.gpu_problems.append(text)
    notes.log(state, notes.WARNING, QUARANTINE, f"host {node.hostname}: {text}.", node.ranks[0])
    for executor in node.all_idle():
        if set(ids).intersection(executor.key.gpu_ids):
            stop_idle(state, executor)
    for group in state.waiting_groups.values():
        groups.look_at_nodes(state, group)
    find_hopeless(state, lambda function: function.spec.asks.needs_gpu)


def find_hopeless(state: State, may_be: Callable[[Function], bool]) -> None:
    """Find the functions that need more than there is now. Their calls fail when their queue is served."""
    for function in state.functions.values():
        if not function.infeasible and not function.is_method and may_be(function):
            function.infeasible = tasks.why_infeasible(state, function)
    for queue in state.queues.values():
        if queue.ready and queue.ready[0].function.infeasible:
            mark_dirty(state, queue)


def fail_all(state: State, queue: Queue) -> None:
    """Fail the calls of a queue that no node can serve any more."""
    for task in clear(queue):
        tasks.fail(state, task, "InfeasibleResourceError", task.function.infeasible)
