"""Hosts with nearly no memory left: nothing new starts, then calls are ended one by one.

An agent says so about four times a second while it lasts.

1. At the first report nothing is started on the node any more, and what was sent ahead is taken back. What runs goes
   on. Where no task runs one is started all the same: else a host that others have filled would do nothing for ever.
2. At each further one the call is ended that was started last: of those that may be run again, else of all tasks, and
   else an actor, first one that may be started again. The next only when the process of the last is known to be gone.
   What has less than a hundredth of the memory stays: its end would not help.
3. A call that is ended while others run is run again at no cost: it may fit where it is alone. What runs for longest is
   never ended as long as there is anything else, so something always comes to its end. A call that runs alone, and is
   too large, costs a retry each time, and then fails with `OutOfMemoryError`.
"""

from __future__ import annotations

from mpi_runtime.scheduler.actors import lives as actor_lives
from mpi_runtime.scheduler.dispatch.stealing import ask_for_the_rest
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.protocol.effects import MEMORY, Cancel, StopExecutor
from mpi_runtime.scheduler.protocol.events import Stored
from mpi_runtime.scheduler.protocol.limits import LARGEST_OBJECTS
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, SENT, STOPPING
from mpi_runtime.scheduler.records.records import Executor, Node, Task
from mpi_runtime.scheduler.records.state import State


def reported(state: State, event: MemoryReported, now: int) -> None:
    """Take a report of a rank about the memory of its host."""
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
    for rank in node.ranks:
        for executor in rank.executors.values():
            if executor.actor is None and len(executor.assigned) > 1 and executor.running() is not None:
                ask_for_the_rest(state, executor)


def end_one(state: State, node: Node, event: MemoryReported) -> None:
    """Step 2."""
    if node.ending is not None:
        executor = state.executors.get(node.ending[0])
        if executor is not None and (not node.ending[1] or node.ending[1] in executor.assigned):
            return
        node.ending = None
    sizes = {number: size for report in node.pressure.values() for number, size in report.executors}
    everybody = [executor for rank in node.ranks for executor in rank.executors.values()]
    if any(executor.id not in sizes and running(executor) is not None for executor in everybody):
        return  # it has just been started, and its use is not known yet
    executors = [executor for executor in everybody if sizes.get(executor.id, 0) >= event.limit // 100]
    tasks = [(executor, task) for executor in executors if (task := running(executor)) is not None]
    story = f"was ended because the memory of {node.hostname} is nearly used up: {full_words(state, node, event)}"
    if tasks:
        executor, task = max(tasks, key=started_last)
        watch = executor.watch(task)
        watch.killed_for = story
        watch.spares_retry = len(tasks) > 1
        node.ending = executor.id, task.id
        state.to_rank(executor.rank.number, Cancel(executor.id, task.id, True, task.call.attempt))
        return
    actors = [executor for executor in executors if executor.actor is not None and executor.state != STOPPING]
    if actors:
        executor = max(actors, key=created_last)
        executor.killed_for = story
        executor.is_out_of_memory = True
        node.ending = executor.id, b""
        state.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))


def running(executor: Executor) -> Task | None:
    """Return the task that an executor runs; None: none, or it is an actor."""
    task = executor.running() if executor.actor is None and not executor.refusal else None
    return task if task is not None and task.state in (SENT, BLOCKED) else None


def started_last(candidate: tuple[Executor, Task]) -> tuple[bool, int, int]:
    """Return a sort key of calls. The one with the largest key is ended first: it may be retried, and began last."""
    executor, task = candidate
    return task.retries != 0, executor.progress_us, task.order


def created_last(executor: Executor) -> tuple[bool, int]:
    """Return a sort key of actors. The one with the largest key is ended first: it may restart, and is the newest."""
    assert executor.actor is not None
    return actor_lives.may_restart(executor.actor), executor.actor.creation.order


def words(event: MemoryReported) -> str:
    """Describe the use of the memory."""
    used, limit = notes.gib(event.used), notes.gib(event.limit)
    share = 100 * event.used / event.limit if event.limit else 100.0
    return (
        f"{used} of {limit} of memory are used ({event.where}, {share:.0f} %; memory_usage_threshold is "
        f"{event.threshold:g})"
    )


def full_words(state: State, node: Node, event: MemoryReported) -> str:
    """Describe the use of the memory, with the largest processes and values."""
    by_pid = {executor.pid: executor for rank in node.ranks for executor in rank.executors.values()}
    processes = [f"{notes.gib(size)} {named(by_pid.get(pid), pid, name)}" for pid, name, size in event.largest]
    objects = [(copy.size, found) for found in state.objects.values() for copy in copies_on(found.copies, node)]
    largest = sorted(objects, key=lambda one: (-one[0], one[1].id))[:LARGEST_OBJECTS]
    values = [f"{notes.gib(size)} {found}" for size, found in largest]
    said = [f" Largest processes: {', '.join(processes)}."] if processes else []
    said += [f" Largest values in shared memory: {', '.join(values)}."] if values else []
    return f"{words(event)}.{''.join(said)}".removesuffix(".")


def copies_on(copies: dict[int, Stored] | None, node: Node) -> list[Stored]:
    """Return the copies of a value on a node: one or none."""
    return [copies[node.number]] if copies is not None and node.number in copies else []


def named(executor: Executor | None, pid: int, name: str) -> str:
    """Describe a process."""
    if executor is None:
        return f"{name} (pid {pid})"
    task = executor.running()
    what = executor.process.name or (task.function.spec.name if task is not None else "idle")
    return f"{what} (pid {pid})"
