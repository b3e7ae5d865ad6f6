"""GPUs that fail: who is blamed, and what becomes of a device that does it again.

A process whose CUDA context is dead ends, and its death is a crash like any other. A mistake in a kernel kills a
context as a broken device does, so the two are told apart by what comes next:

1. A process in which calls had ended well shows that its devices had worked: nothing is concluded.
2. One that failed before any call had ended well makes its devices suspects. Others are given first from then on, so
   that the next attempt shows whether the call or the device is at fault. A process that uses the device and ends its
   calls clears it.
3. When the next process on a suspect fails at once too, the device is quarantined: nobody is given it any more. Only if
   a program can cause both errors, and it was the same function both times, is it the function that is blamed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mpi_runtime.scheduler import calls, devices, groups
from mpi_runtime.scheduler.queues import Queue, mark_dirty
from mpi_runtime.scheduler.reservations import stop_idle

if TYPE_CHECKING:
    from mpi_runtime.scheduler.events import Faulted
    from mpi_runtime.scheduler.nodes import Executor, Node
    from mpi_runtime.scheduler.state import State


def cause(executor: Executor, fault: Faulted) -> str:
    """Why an executor has ended, in words: one line, and the traceback."""
    gpus = ", ".join(named(executor.rank.node, id) for id in executor.key.devices)
    return (
        f"ended because CUDA answered {fault.fault} in {fault.name} on {gpus}: its context was dead for good"
        f"\n{fault.text}"
    )


def named(node: Node, id: int) -> str:
    """A device in words."""
    return f"GPU {id} ({devices.uuids(node, [id])[0]})"


def blame(state: State, executor: Executor, fault: Faulted) -> None:
    """The process of an executor with a dead context is gone. The steps are at the head of this file."""
    node = executor.rank.node
    inventory = node.total.inventory
    assert inventory is not None
    reason = fault.name if fault.by_program else ""
    for id in executor.key.devices:
        if id in inventory.out:
            continue
        known = inventory.suspects.pop(id, None)
        if not fault.is_fresh:
            continue
        if known is None or known == reason != "":
            inventory.suspects[id] = reason
        else:
            quarantine(state, node, id, f"{fault.fault} in {fault.name}")


def quarantine(state: State, node: Node, id: int, last: str) -> None:
    """Give a device to nobody any more."""
    inventory = node.total.inventory
    assert inventory is not None
    inventory.out[id] = f"two fresh executors failed, the last with {last}"
    count = len(inventory.devices)
    text = f"{named(node, id)} quarantined: {inventory.out[id]}; {count - len(inventory.out)} of {count} remain"
    node.gpu_problems.append(text)
    state.effects.notes.append(f"host {node.hostname}: {text}.")
    for executor in [one for group in node.idle.values() for one in group.values()]:
        if id in executor.key.devices:
            stop_idle(state, executor)
    for group in state.waiting_groups.values():
        groups.look_at_nodes(state, group)
    find_hopeless(state)


def find_hopeless(state: State) -> None:
    """Learn which functions need more GPUs than there are now: their calls fail as they come to be served."""
    for function in state.functions.values():
        if function.request.needs_device and not function.infeasible and not function.is_method:
            function.infeasible = calls.why_infeasible(state, function)
    for queue in state.queues.values():
        if queue.ready and queue.ready[0].function.infeasible:
            mark_dirty(state, queue)


def fail_all(state: State, queue: Queue) -> None:
    """No node can serve the calls of a queue any more: what was queued before fails as if it were made now."""
    tasks, queue.ready = queue.ready, deque()
    for task in tasks:
        calls.fail(state, task, "InfeasibleResourceError", task.function.infeasible)
