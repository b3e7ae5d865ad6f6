"""Hosts with nearly no memory left: nothing new starts, then calls are ended one by one.

An agent reports this about four times a second while it lasts.

1. At the first report no further call starts on the node, and calls that were sent ahead are taken back. Running calls
   continue. If no task runs, one is started all the same: else a host that other users have filled would stay idle.
2. At each further report one call is ended: the one that started last among those that may be retried, else among all
   tasks; else an actor, first one that may restart. The next one is ended only when the last process is known to be
   gone. Processes with less than a hundredth of the memory stay: their end would not help.
3. A call that is ended while others run is retried at no cost: it may fit alone. The oldest call is ended last, so
   there is always progress. A call that runs alone, and is too large, costs a retry each time, and then fails with
   `OutOfMemoryError`.
"""

from __future__ import annotations

from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.dispatch.stealing import ask_all_for_the_rest
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.protocol.amounts import gib
from mpi_runtime.scheduler.protocol.effects import MEMORY, Cancel, StopExecutor
from mpi_runtime.scheduler.protocol.limits import LARGEST_OBJECTS
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, SENT, STOPPING
from mpi_runtime.scheduler.records.records import Executor, Node, Task
from mpi_runtime.scheduler.records.state import Object, State


def reported(state: State, event: MemoryReported, now: int) -> None:
    """Handle a report of a rank about the memory of its host."""
    node = state.ranks[event.rank].node
    if not event.is_tight:
        if node.pressure.pop(event.rank, None) is not None and not node.pressure:
            state.freed = True
        return
    was_tight = bool(node.pressure)
    node.pressure[event.rank] = event
    if was_tight:
        end_one(state, node, event)
        return
    text = f"host {node.hostname}: {words(event)}. No more calls are started there until there is room."
    notes.log_often(state, notes.WARNING, MEMORY, node.hostname, text, node.ranks[0])
    ask_all_for_the_rest(state, node)


def end_one(state: State, node: Node, event: MemoryReported) -> None:
    """Step 2."""
    if node.ending is not None:
        executor = state.executors.get(node.ending[0])
        if executor is not None and (not node.ending[1] or node.ending[1] in executor.assigned):
            return
        node.ending = None
    sizes = {number: size for report in node.pressure.values() for number, size in report.executors}
    if any(executor.id not in sizes and running(executor) is not None for executor in node.executors()):
        return  # it has just started, and its use is not known yet
    executors = [one for one in node.executors() if sizes.get(one.id, 0) >= event.limit // 100]
    tasks = [(executor, task) for executor in executors if (task := running(executor)) is not None]
    story = f"was ended because the memory of {node.hostname} is nearly used up: {full_words(state, node, event)}"
    if tasks:
        executor, task = max(tasks, key=lambda one: (one[1].retries != 0, one[0].progress_us, one[1].order))
        watch = executor.watch(task)
        watch.killed_for = story
        watch.spares_retry = len(tasks) > 1
        node.ending = executor.id, task.id
        state.to_rank(executor.rank.number, Cancel(executor.id, task.id, True, task.call.attempt))
        return
    actors = [(one, one.actor) for one in executors if one.actor is not None and one.state != STOPPING]
    if actors:
        executor, _ = max(actors, key=lambda one: (lifetimes.may_restart(one[1]), one[1].creation.order))
        executor.killed_for = story
        executor.is_out_of_memory = True
        node.ending = executor.id, b""
        state.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))


def running(executor: Executor) -> Task | None:
    """Return the running task of an executor; None: none, or it is an actor."""
    task = executor.running() if executor.actor is None and executor.refusal is None else None
    return task if task is not None and task.state in (SENT, BLOCKED) else None


def words(event: MemoryReported) -> str:
    """Describe the use of the memory."""
    used, limit = gib(event.used), gib(event.limit)
    share = 100 * event.used / event.limit if event.limit else 100.0
    return (
        f"{used} of {limit} of memory are used ({event.where}, {share:.0f} %; memory_usage_threshold is "
        f"{event.threshold:g})"
    )


def full_words(state: State, node: Node, event: MemoryReported) -> str:
    """Describe the use of the memory, with the largest processes and values."""
    by_pid = {executor.pid: executor for executor in node.executors()}
    processes = [f"{gib(size)} {named(by_pid.get(pid), pid, name)}" for pid, name, size in event.largest]
    copies = [((found.copies or {}).get(node.number), found) for found in state.objects.values()]
    here = [(copy.size, found) for copy, found in copies if copy is not None]
    largest = sorted(here, key=lambda one: (-one[0], one[1].id))[:LARGEST_OBJECTS]
    values = [f"{gib(size)} {found}{_made_by(found)}" for size, found in largest]
    said = [f" Largest processes: {', '.join(processes)}."] if processes else []
    said += [f" Largest values in shared memory: {', '.join(values)}."] if values else []
    return f"{words(event)}.{''.join(said)}".removesuffix(".")


def _made_by(found: Object) -> str:
    return f" (made by {found.made_by})" if found.made_by else ""


def named(executor: Executor | None, pid: int, name: str) -> str:
    """Describe a process."""
    if executor is None:
        return f"{name} (pid {pid})"
    task = executor.running()
    what = executor.process.name or (task.function.spec.name if task is not None else "idle")
    return f"{what} (pid {pid})"
