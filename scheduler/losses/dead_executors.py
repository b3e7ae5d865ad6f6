"""The death of an executor.

Each of these steps closes a race:
1. Its agent has read all its messages before the death is reported, so results that had been sent have been handled.
2. Calls that it had not started return to the front of their queues; this is not a retry.
3. The running call is retried while it has retries left, else it fails with the cause of death. Calls that had ended
   before it without a report run again at no cost, if they may run twice: otherwise calls before one that kills its
   process would be lost with it. Repeated quick deaths delay the retries (`backoff.py`).
4. If it was an actor that is not created again, its assigned and pending calls get the cause. Otherwise calls that it
   had not started, and calls with retries left, run again before the pending ones.
5. Its arena extents without an object are freed, by an effect that names the executor: a `Free` may be on its way, and
   its agent may have given the memory to another process by then.
6. All references of its process are released. Calls that wait until it consumes their items do not wait any more. Calls
   that the dead attempts had submitted are cancelled, unless something else needs them (`cancel.py`).
7. Its grant returns to its node or bundle: only now its process is known to be gone.
8. If it had not begun a call, nor had those before it, the calls for which it was forked fail (`backoff.py`).
9. If its CUDA context was dead, its GPUs or its function are blamed (`gpu_quarantine.py`).
"""

from __future__ import annotations

from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.calls import refusals, tasks
from mpi_runtime.scheduler.dispatch import alternatives, backoff
from mpi_runtime.scheduler.dispatch.dependencies import not_sent
from mpi_runtime.scheduler.dispatch.queues import clear, mark_dirty
from mpi_runtime.scheduler.dispatch.stealing import give_elsewhere
from mpi_runtime.scheduler.gangs import members
from mpi_runtime.scheduler.log import descriptions, errors, history, notes
from mpi_runtime.scheduler.losses import cancel
from mpi_runtime.scheduler.nodes import gpu_quarantine, groups
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.amounts import times
from mpi_runtime.scheduler.protocol.effects import CRASH, Free
from mpi_runtime.scheduler.protocol.events import Dying
from mpi_runtime.scheduler.protocol.limits import ENDED_CAUSE_MAX
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, LEAVE, LOSE, STOPPING, advance, first_line, so_far
from mpi_runtime.scheduler.records.records import Bundle, Executor, Queue, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import call_ends, items, objects, retries


def dying(state: State, client: Client, event: Dying, now: int) -> None:
    """Note why an executor is about to end."""
    client.as_executor().killed_for = event.cause


def executor_died(state: State, event: ExecutorDied, now: int) -> None:
    """Handle the death of an executor. The steps are at the head of this file."""
    executor = state.executors.pop(event.executor, None)
    if executor is None:  # its rank was lost before
        free_extents(state, event)
        return
    if executor.refusal is not None:
        refusals.as_after_a_crash(executor, executor.refusal, event)
    if executor.gang is not None:
        members.member_died(state, executor, event)
    running = executor.assigned.get(event.running)
    has_begun = event.running or not executor.assigned or executor.state == STOPPING
    queue = None if has_begun or event.with_forkserver else executor.forked_for
    entry = descriptions.ended_worker(executor, event.cause, (now + state.wall_us) // 1000)
    advance(state.stories, executor, LEAVE, event.cause)
    fault = executor.fault
    if fault is not None:
        event.cause = gpu_quarantine.cause(executor, fault)
    elif executor.killed_for:
        event.cause = executor.killed_for
        event.out_of_memory = event.out_of_memory or executor.is_out_of_memory
    if running is not None and running.leader is None:
        history.record_death(state, executor, running, now)
    watch = executor.watched.get(event.running)
    spares_retry = watch is not None and watch.spares_retry
    if watch is not None and watch.killed_for:
        event.cause, event.out_of_memory = watch.killed_for, True
    entry.exit_detail = event.cause[:ENDED_CAUSE_MAX]
    state.logs.ended_workers.append(entry)
    assigned = executor.drop_all()
    orphaned = cancel.submitted_by(executor, assigned, event.running)
    if executor.gang is not None:
        assigned = members.after_death(state, executor, assigned)
    if executor.actor is not None:
        lifetimes.executor_died(state, executor.actor, executor, assigned, event, now)
    else:
        redo(state, executor, assigned, event, now, spares_retry)
    free_extents(state, event)
    items.client_died(state, executor)
    client = state.clients.pop(executor.id)
    state.effects.clients.pop(executor.id, None)
    for id in executor.kept:
        objects.release(state, id)
    for id in client.held:
        objects.let_go(state, client, id)
    cancel.abandon(state, orphaned, now)
    forget(state, executor)
    if queue is not None:
        stillborn(state, queue, executor, event, now)
    if fault is not None:
        gpu_quarantine.blame(state, executor, fault)
    driver = executor.driver
    if driver is not None:
        del driver.executors[executor.id]
        if driver.has_left:
            state.alarms.set(driver, now)
    executor.actor = executor.gang = None  # they refer to it: records in a circle would stay in memory
    executor.children.clear()  # also calls of its own actor


def free_extents(state: State, event: ExecutorDied) -> None:
    """Step 5."""
    rank = event.keeper
    if event.extents and rank in state.ranks:
        free = [offset for offset in event.extents if (rank, offset) not in state.extents]
        state.send_frees(rank)  # strictly before
        state.to_rank(rank, Free(free, event.executor))


def redo(
    state: State, executor: Executor, assigned: list[Task], event: ExecutorDied, now: int, spares_retry: bool = False
) -> None:
    """Steps 2 and 3. `spares_retry`: the call that it ran is not to blame."""
    unsent = not_sent(state, executor, assigned)
    sent = [task for task in assigned if task.id not in unsent]
    has_run = [index for index, task in enumerate(sent) if task.id == event.running or task.state == BLOCKED]
    started = len(sent) if event.is_unwatched else 1 + max(has_run, default=-1)
    unstarted = sent[started:] + [task for task in assigned if task.id in unsent]
    cause = f"{executor} {event.cause}"
    give_elsewhere(state, unstarted, cause)
    for task in sent[:started]:
        if task.is_cancelled:
            call_ends.cancelled(state, task)
            continue
        if task.overdue:
            tasks.end_overdue(state, task)
            continue
        advance(state.stories, task, LOSE, cause)
        may_again = task.function.spec.max_retries != 0
        had_ended = retries.had_ended(task, event.running) and executor.refusal is None
        had_ended = had_ended or (may_again and (call_ends.is_of_node(executor.fault) or spares_retry))
        if task.retries or had_ended:
            if not had_ended:
                backoff.note_crash(task, executor, now)
            if task.id == event.running:
                errors.note(state, task, f"its process {first_line(event.cause)}", executor, again=True)
                log_crash(state, task, executor, event)
            tasks.retry(state, task, now, had_ended)
        else:
            code = "OutOfMemoryError" if event.out_of_memory else "WorkerCrashedError"
            code = "GpuExecutorDiedError" if executor.fault is not None else code
            before = so_far(state.stories.of(task.id, "call", besides=cause))
            call_ends.fail(state, task, code, crash_message(task, executor, event, before))


def stillborn(state: State, queue: Queue, executor: Executor, event: ExecutorDied, now: int) -> None:
    """Step 8: fail all calls of a queue when its executors die time after time, unless they have an alternative."""
    if not backoff.note_stillborn(state, queue, executor, now):
        return
    name = queue.ready[0].function.spec.name if queue.ready else "calls that were cancelled"
    text = f"before it began a call of {name}, {executor} {first_line(event.cause)}"
    notes.log_often(state, notes.WARNING, CRASH, name, text, executor.rank)
    if not backoff.is_hopeless(queue):
        return
    cause, line, traceback = event.cause.partition("\n")
    count = backoff.stillborn(queue)
    why = (
        f"{name} was not started: {count} executors were forked for it one after "
        f"another, and died before they began a call. The last, {executor}, {cause}{line}{traceback}"
    )
    function = queue.function
    if function.choice:
        function.infeasible = function.infeasible or why
    if not function.choice or alternatives.has_none(function):
        for task in clear(queue):
            tasks.fail(state, task, "WorkerCrashedError", why)
    backoff.begin_again(queue)
    mark_dirty(state, queue)


def log_crash(state: State, task: Task, executor: Executor, event: ExecutorDied) -> None:
    """Log that a call runs again, because its executor has died."""
    spec = task.function.spec
    left = "as often as need be" if task.retries < 0 else f"{task.retries} of {spec.max_retries} retries left"
    text = f"{spec.name} is run again ({left}): its executor {executor.place} {first_line(event.cause)}."
    notes.log_often(state, notes.WARNING, CRASH, spec.name, text, executor.rank)


def crash_message(task: Task, executor: Executor, event: ExecutorDied, before: str) -> str:
    """Return the error for a call during which its executor died."""
    spec = task.function.spec
    cause, line, traceback = event.cause.partition("\n")
    runs = task.call.attempt + 1
    # Without retries there is nothing to count here: libraries such as `train` make other calls for other attempts.
    tried = f" It was run {times(runs)}; max_retries is {spec.max_retries}." if spec.max_retries or runs > 1 else ""
    return f"{spec.name} did not end: its executor {executor.place} {cause}.{tried}{before}{line}{traceback}"


def forget(state: State, executor: Executor) -> None:
    """Step 7: remove the executor from everything and return its grant."""
    rank = executor.rank
    node = rank.node
    del rank.executors[executor.id]
    queue = executor.queue
    if queue is not None:
        queue.forget(executor)
        if queue.ready:
            mark_dirty(state, queue)
        executor.queue = None
    node.remove_idle(executor)
    grant = executor.grant
    if grant is None:
        return
    source = executor.source
    if executor.blocked:
        executor.reclaim_cpu()
    if executor.is_reduced:
        source.actor_cpu -= grant.cpu
        if executor.fault is None:
            gpu_pool.clear(node, executor.key.gpu_ids)
    state.return_grant(executor)
    if isinstance(source, Bundle):
        groups.drained(state, source)
