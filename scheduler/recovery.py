"""When executors block, wake, give calls back, or die.

An executor's death, in steps, each closing a race:
1. Its agent has read everything that it sent before it died, so results that had been sent have been handled.
2. Calls that it had not started go back to the front of their queues; this is not a retry.
3. The call that it ran is run again while it has retries left, else it fails with the cause of death. Those that it
   had run before and not told the results of are run again at no cost, if they may be at all: the death is not theirs,
   and calls that are queued before one that kills its process would else be lost with it.
4. If it was an actor which is not created again, the calls in hand and those pending get the cause. If it is, calls
   that it had not started and those that have retries left are run again, before those pending.
5. Arena extents that it was given and that no object lies in are freed, by an effect that names the executor: a `Free`
   may be on its way, and its agent may have given the memory to somebody else by then.
6. All references that its process held are released, and calls that wait for it to take what they yield wait no more.
7. Its grant goes back to its node or bundle: only now, since only now its process is known to be gone.
8. If its CUDA context was dead, that is held against its GPUs, or against what it ran.
"""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler import actors, calls, devices, endings, groups, health, history, objects, streams, walltime
from mpi_runtime.scheduler.effects import Free
from mpi_runtime.scheduler.events import ExecutorDied, Fetched, TakenBack
from mpi_runtime.scheduler.limits import STUCK_US
from mpi_runtime.scheduler.nodes import Bundle, Executor
from mpi_runtime.scheduler.placement import ask_for_the_rest, leave, note_load, offer, settle
from mpi_runtime.scheduler.queues import mark_dirty, requeue
from mpi_runtime.scheduler.resources import give_back
from mpi_runtime.scheduler.staging import staged
from mpi_runtime.scheduler.state import State
from mpi_runtime.scheduler.tasks import BLOCK, LOSE, READY, STAGING, TAKE_BACK, UNBLOCK, Task, advance


def blocked(state: State, executor: Executor) -> None:
    """The executor's call waits for objects: its CPU is free meanwhile, and calls behind it go elsewhere."""
    if executor.blocked or not (executor.in_hand or executor.actor):
        return  # or a thread waits that was left behind by a call that has ended
    executor.blocked = True
    node = executor.rank.node
    if executor.grant is not None:
        executor.source.free.cpu += executor.grant.cpu
        state.index.update(node)
        state.freed = True
    if executor.actor is not None:
        return
    running = executor.running()
    if running is not None:
        advance(running, BLOCK)
    ask_for_the_rest(state, executor)
    if executor.queue is not None:
        leave(executor.queue, executor)


def unblocked(state: State, executor: Executor, now: int) -> None:
    """The call goes on. Its CPU may be overdrawn for a moment: nothing new starts until it is not."""
    if not executor.blocked:
        return
    executor.blocked = False
    node = executor.rank.node
    if executor.grant is not None:
        executor.source.free.cpu -= executor.grant.cpu
        state.index.update(node)
    if executor.actor is not None:
        return
    running = executor.running()
    if running is not None:
        advance(running, UNBLOCK)
    queue = executor.queue
    if queue is None:
        return
    if executor.stuck:
        note_load(queue, executor)
    else:
        queue.executors[executor.id] = executor
        offer(state, executor, now)
    if queue.loaded:  # calls stand behind it again that were being taken back
        state.alarms.set(queue, now + STUCK_US)


def taken_back(state: State, event: TakenBack, now: int) -> None:
    """Calls that an executor had not started are ours again."""
    executor = state.executors.get(event.executor)
    if executor is None:
        return
    executor.asked_back = False
    tasks = [task for id in event.ids if (task := executor.in_hand.pop(id, None)) is not None]
    for task in tasks:
        executor.load_us -= task.estimate_us
    give_elsewhere(state, tasks)
    queue = executor.queue
    if queue is None:
        return
    if executor.blocked or (executor.stuck and executor.in_hand):
        note_load(queue, executor)
        wants_rest = bool(tasks) or executor.blocked
    else:
        executor.stuck = False
        queue.executors[executor.id] = executor
        offer(state, executor, now)
        behind = islice(executor.in_hand.values(), 1, None)
        wants_rest = bool(tasks) and (queue.is_late or any(task.is_cancelled for task in behind))
    if wants_rest:  # what is in its hand became of use elsewhere while fewer were taken back, or more were on their way
        ask_for_the_rest(state, executor)


def give_elsewhere(state: State, tasks: list[Task]) -> None:
    """Calls that their executor had not started go back to the front of their queues, but for cancelled ones."""
    for task in tasks:
        if task.is_cancelled:
            endings.cancelled(state, task)
        else:
            advance(task, TAKE_BACK)
        task.executor = None
    requeue(state, [task for task in tasks if task.state == READY])


def executor_died(state: State, event: ExecutorDied, now: int) -> None:
    """An executor's process is gone. The steps are at the head of this file."""
    executor = state.executors.pop(event.executor, None)
    if executor is None:
        return
    running = executor.in_hand.get(event.running)
    fault = executor.fault
    if fault is not None:
        event.cause = health.cause(executor, fault)
    if running is not None:
        history.record_death(state, executor, running, now)
    in_hand = list(executor.in_hand.values())
    executor.in_hand.clear()
    if executor.actor is not None:
        actors.executor_died(state, executor.actor, executor, in_hand, event)
    else:
        redo(state, executor, in_hand, event)
    if event.extents:
        rank = executor.rank.number
        free = [offset for offset in event.extents if (rank, offset) not in state.extents]
        state.send_frees(rank)  # strictly before
        state.to_rank(rank, Free(free, executor.id))
    streams.client_died(state, executor)
    client = state.clients.pop(executor.id)
    state.effects.clients.pop(executor.id, None)
    for id in executor.kept:
        objects.release(state, id)
    for id in client.held:
        objects.release(state, id)
        actors.orphaned(state, id)
    forget(state, executor)
    if fault is not None:
        health.blame(state, executor, fault)


def redo(state: State, executor: Executor, in_hand: list[Task], event: ExecutorDied) -> None:
    """Steps 2 and 3."""
    sent = [task for task in in_hand if task.state != STAGING]
    started = 1 + next((index for index, task in enumerate(sent) if task.id == event.running), -1)
    unstarted = sent[started:] + [task for task in in_hand if task.state == STAGING]
    give_elsewhere(state, unstarted)
    for task in sent[:started]:
        if task.is_cancelled:
            endings.cancelled(state, task)
            continue
        advance(task, LOSE)
        had_ended = endings.had_ended(task, event.running)
        if task.retries or had_ended:
            calls.retry(state, task, had_ended)
        else:
            code = "OutOfMemoryError" if event.out_of_memory else "WorkerCrashedError"
            code = "GpuExecutorDiedError" if executor.fault is not None else code
            endings.fail(state, task, code, crash_message(task, executor, event))


def crash_message(task: Task, executor: Executor, event: ExecutorDied) -> str:
    """What the caller of a call that took its executor down is told."""
    spec = task.function.spec
    cause, line, traceback = event.cause.partition("\n")
    return (
        f"{spec.name} did not end: its executor (pid {executor.pid}, rank {executor.rank.number}, "
        f"{executor.rank.node.hostname}) {cause}. It was run {task.call.attempt + 1} time(s); "
        f"max_retries is {spec.max_retries}.{line}{traceback}"
    )


def forget(state: State, executor: Executor) -> None:
    """Step 7: remove the executor from everything and return its grant."""
    rank = executor.rank
    node = rank.node
    del rank.executors[executor.id]
    queue = executor.queue
    if queue is not None:
        leave(queue, executor)
        if queue.ready:
            mark_dirty(state, queue)
        executor.queue = None
    group = node.idle.get(executor.key)
    if group is not None:
        group.pop(executor.id, None)
        if not group:
            del node.idle[executor.key]
    grant = executor.grant
    if grant is None:
        return
    source = executor.source
    if executor.blocked:
        source.free.cpu -= grant.cpu
    if executor.is_reduced:
        source.actor_cpu -= grant.cpu
        if executor.fault is None:
            devices.clear(node, executor.key.devices)
    give_back(grant, source.free)
    executor.grant = None
    state.index.update(node)
    state.freed = True
    if isinstance(source, Bundle):
        groups.drained(state, source)


def fetched(state: State, event: Fetched, now: int) -> None:
    """A copy of an argument has arrived, or could not be had: calls with all arguments on their host are sent."""
    for task, executor in objects.on_fetched(state, event):
        if task.executor is not executor or task.state != STAGING:
            continue  # it was given up or goes elsewhere
        if event.offset < 0:
            del executor.in_hand[task.id]
            executor.load_us -= task.estimate_us
            calls.fail(state, task, "ObjectStoreFullError", event.reason)
            settle(state, executor, now)
        elif task.actor is not None and task.function.is_method:
            if actors.is_timed(task.actor, task.function) and walltime.is_late(state, task.function, now):
                del executor.in_hand[task.id]
                actors.give_again(state, task.actor, task, has_run=False)
                state.called[task.actor] = None
            elif staged(state, task):
                actors.go_past(state, task.actor, task)
        else:
            staged(state, task)
