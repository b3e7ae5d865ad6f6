"""Calls that ignore a cancel, and calls that run longer than their time limit.

An enforced time limit counts from the report that user code began (`Began`). The executor has an alarm for it, each
second: if that is late, the job was stopped, and the time does not count.

1. At the limit the call is interrupted as by `cancel()`, with the calls that it has submitted. If it still returns a
   value, that counts; any error that it raises becomes `TaskTimeoutError`.
2. INTERRUPT_GRACE_US later its process is killed: of a task as with `cancel(force=True)`, of an actor by the rules of
   its restarts. A method that is not a coroutine cannot be interrupted: the process of its actor is killed at once.
3. It is retried only if `retry_exceptions` names such errors and it has retries left.

A call that ignores a cancel for as long is left alone within its time limit. A warning is logged.
"""

from __future__ import annotations

from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.losses import cancel
from mpi_runtime.scheduler.protocol.effects import IGNORED, Cancel, StopExecutor
from mpi_runtime.scheduler.protocol.events import Began, MethodSpec
from mpi_runtime.scheduler.protocol.limits import INTERRUPT_GRACE_US, LOOK_US, STOPPED_US
from mpi_runtime.scheduler.records.lifecycle import STAGING, STARTING
from mpi_runtime.scheduler.records.parts import Watch
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Client, State

GRACE = f"{INTERRUPT_GRACE_US / 1e6:g} s"


def began(state: State, client: Client, event: Began, now: int) -> None:
    """Note that user code of a call with a time limit has begun."""
    executor = client.as_executor()
    task = executor.assigned.get(event.id)
    time = task.function.spec.time if task is not None else None
    if task is not None and task.state != STAGING and time is not None and time.is_enforced:
        watch = executor.watch(task)
        watch.began_us = watch.looked_us = now
        state.alarms.set(executor, next_look_us(now + time.limit_us, now))


def look(state: State, executor: Executor, now: int) -> None:
    """Handle the alarm of an executor: interrupt or kill calls after their time limits, and set the next alarm."""
    if executor.id not in state.executors or executor.refusal is not None:
        return
    for id, watch in list(executor.watched.items()):
        task = executor.assigned[id]
        stopped_us = now - watch.looked_us - LOOK_US
        if watch.began_us >= 0 and stopped_us > STOPPED_US:
            watch.began_us += stopped_us
            watch.interrupted_us += stopped_us if watch.interrupted_us >= 0 else 0
        watch.looked_us = now
        at_us = due_us(task, watch)
        if at_us is not None and at_us <= now:
            over_us = limit_us(task, watch)
            if watch.interrupted_us < 0:
                interrupt(state, executor, task, watch, now)
            elif over_us is not None and over_us <= now:
                kill(state, executor, task, watch)
            else:
                log_ignored(state, executor, task, watch, now)
            at_us = due_us(task, watch)
        if at_us is not None:
            state.alarms.set(executor, next_look_us(at_us, now))


def next_look_us(at_us: int, now: int) -> int:
    """Return when to look at an executor again: at the latest with the others, in the next second."""
    return min(max(at_us, now + 1), now - now % LOOK_US + LOOK_US)


def due_us(task: Task, watch: Watch) -> int | None:
    """Return when to look at a call again; None: never."""
    over_us = limit_us(task, watch)
    if watch.interrupted_us < 0:
        return over_us
    patient_us = watch.interrupted_us + INTERRUPT_GRACE_US
    if task.is_cancelled and not watch.is_logged:
        return patient_us
    return None if over_us is None else max(over_us, patient_us)


def limit_us(task: Task, watch: Watch) -> int | None:
    """Return the end of a call's time limit; None: it has none, or has not begun."""
    return watch.began_us + task.function.limit_us if watch.began_us >= 0 else None


def interrupt(state: State, executor: Executor, task: Task, watch: Watch, now: int) -> None:
    """Step 1."""
    spec = task.function.spec
    task.overdue = (
        f"{spec.name} had run for {(now - watch.began_us) / 1e6:.3g} s in {executor} when it was ended: its time_limit "
        f"is {task.function.limit_us / 1e6:g} s, and enforce_time_limit=True."
    )
    watch.interrupted_us = now
    cancel.cancel_children(state, task, False, now)
    if isinstance(spec.kind, MethodSpec) and executor.actor is not None and not executor.actor.spec.is_async:
        kill(state, executor, task, watch)
    else:
        state.to_rank(executor.rank.number, Cancel(executor.id, task.id, False, task.call.attempt))


def kill(state: State, executor: Executor, task: Task, watch: Watch) -> None:
    """Step 2."""
    watch.began_us, watch.is_logged = -1, True
    name = task.function.spec.name
    if executor.actor is None:
        why = f" It had ignored the interrupt for {GRACE}, so its process was killed."
        state.to_rank(executor.rank.number, Cancel(executor.id, task.id, True, task.call.attempt))
    else:
        why = " It could not be interrupted, so the process of its actor was killed."
        if not executor.killed_for:
            executor.killed_for = f"was killed because {name} ran longer than its time_limit"
            state.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))
    task.overdue = task.overdue and task.overdue + why


def log_ignored(state: State, executor: Executor, task: Task, watch: Watch, now: int) -> None:
    """Log that a call still runs some time after it was cancelled."""
    actor = executor.actor
    waits = actor is not None and not actor.spec.concurrency and executor.running() is not task
    if waits or executor.state == STARTING:
        watch.interrupted_us = now  # it has not begun, and will not run
        return
    watch.is_logged = True
    name = task.function.spec.name
    if actor is None:
        why = "it catches KeyboardInterrupt, or is in code that does not return to Python"
        how = "cancel(ref, force=True) ends its process"
    elif actor.spec.is_async:
        why, how = "its coroutine catches CancelledError, or holds up the loop", "kill(actor) ends the actor"
    else:
        why, how = "only methods that are coroutines are interrupted", "kill(actor) ends the actor"
    text = f"{name} was cancelled {GRACE} ago and has not ended in {executor}: {why}. {how}."
    notes.log_often(state, notes.WARNING, IGNORED, name, text, executor.rank)
