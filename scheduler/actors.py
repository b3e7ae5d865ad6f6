"""Actors: an executor that keeps state, calls in order for each caller, and an end when the last handle goes.

The handles of an actor are counted as references to an object whose id is the actor's; each call holds one, so an actor
whose count is zero has no calls either. Calls of one caller start in the order they were submitted; a caller whose next
call waits for an argument, or is not started any more (`walltime.py`), does not hold up other callers.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct

from mpi_runtime.scheduler import endings, names, objects, walltime
from mpi_runtime.scheduler.effects import StopExecutor
from mpi_runtime.scheduler.events import ACTOR, ExecutorDied, Value
from mpi_runtime.scheduler.limits import ACTOR_CALLS_MAX
from mpi_runtime.scheduler.nodes import STOPPING, Executor
from mpi_runtime.scheduler.objects import PENDING
from mpi_runtime.scheduler.queues import enqueue, requeue, withdraw
from mpi_runtime.scheduler.staging import stage
from mpi_runtime.scheduler.tasks import (
    CREATE_AGAIN,
    ENDED,
    FAIL,
    FINISHED,
    LOSE,
    READY,
    RETRY,
    SEND,
    STAGING,
    TAKE_BACK,
    WAITING,
    Function,
    Task,
    advance,
)

if TYPE_CHECKING:
    from mpi_runtime.scheduler.state import State

CREATING, ALIVE, RESTARTING, ENDING, DEAD = range(5)
STATE_NAMES = ("creating", "alive", "restarting", "ending", "dead")

CREATED = {CREATING: ALIVE}
"""Its constructor has returned."""
RESTART = {CREATING: RESTARTING, ALIVE: RESTARTING, RESTARTING: RESTARTING}
"""Its process is gone, or was killed, and it is to have another one."""
CREATE = {RESTARTING: CREATING, CREATING: CREATING}
"""Its process is gone: its creation is queued again."""
END = {CREATING: ENDING, ALIVE: ENDING, RESTARTING: ENDING}
"""It has been told to stop: the last handle is gone, or it was killed."""
DIE = {CREATING: DEAD, ALIVE: DEAD, RESTARTING: DEAD, ENDING: DEAD}
"""It will not run again."""

TABLES = {"created": CREATED, "to start again": RESTART, "creating": CREATE, "told to end": END, "died": DIE}
"""For diagrams and tests."""


class Actor(Struct, eq=False, gc=False):
    """One actor."""

    id: bytes
    creation: Task
    state: int = CREATING
    executor: Executor | None = None
    callers: dict[tuple[int, str, int], deque[Task]] = {}
    """For each caller and concurrency group the calls that have not been sent, in order. Where there is no order, for
    each function too; else that is 0."""
    cause: str = ""
    """Why it died, in words."""
    restarts: int = 0
    """How often it was created again."""
    kept: list[bytes] = []
    """What its creation needs, as long as it may be created again."""
    name: tuple[str, str] | None = None
    """Namespace and name, while it has them."""
    error: Value | None = None
    """If its constructor raised: that error, which every call gets."""
    title: str = ""
    """What it calls itself, if its class says how."""


def submit(state: State, task: Task) -> None:
    """A creation or a method call was submitted."""
    if task.function.spec.kind == ACTOR:
        actor = Actor(task.id, task)
        if task.function.spec.max_restarts:
            actor.kept = [id for id in (*task.call.arguments, *task.call.holds) if objects.hold(state, id)]
        state.actors[task.id] = actor
        state.objects[task.id].actor = actor
        task.actor = actor
        return
    actor_found = state.actors.get(task.call.actor)
    task.actor = actor_found
    if actor_found is not None and actor_found.state != DEAD and not out_of_order(actor_found):
        line_up(actor_found, task, 0)


def line_up(actor: Actor, task: Task, function: int) -> None:
    """A call waits for its turn, after those before it."""
    actor.callers.setdefault((task.client, task.function.spec.group, function), deque()).append(task)


def line_of(actor: Actor, task: Task) -> tuple[int, str, int]:
    """Where among the callers a call waits for its turn."""
    spec = task.function.spec
    return task.client, spec.group, spec.id if out_of_order(actor) else 0


def out_of_order(actor: Actor) -> bool:
    """Whether its calls line up when they have their arguments, not when they are submitted."""
    return actor.creation.function.spec.out_of_order


def ready(state: State, task: Task) -> None:
    """A method call has its arguments."""
    actor = task.actor
    if actor is None:
        endings.fail(state, task, "ActorDiedError", f"the actor of {task.function.spec.name} no longer exists")
    elif actor.state in (ENDING, DEAD):
        fail_call(state, actor, task)
    else:
        if out_of_order(actor):
            line_up(actor, task, task.function.spec.id)
        state.called[actor] = None


def fail_call(state: State, actor: Actor, task: Task) -> None:
    """A call gets the reason for its actor's death as its result."""
    leave_queue(actor, task)
    if actor.error is not None:
        endings.conclude(state, task, [actor.error], FAIL)
    else:
        endings.fail(state, task, "ActorDiedError", died_message(actor, task))


def died_message(actor: Actor, task: Task) -> str:
    """What the caller of a dead actor is told."""
    started = "It may have been running." if task.executor is not None else "It was not started."
    cause, line, traceback = (actor.cause or "is ending").partition("\n")
    return f"{task.function.spec.name} was called, but {describe(actor)} {cause}. {started}{line}{traceback}"


def describe(actor: Actor) -> str:
    """The actor in words."""
    where = f" (pid {actor.executor.pid}, {actor.executor.rank.node.hostname})" if actor.executor is not None else ""
    return f"actor {actor.title or actor.creation.function.spec.name} {actor.id.hex()}{where}"


def pump(state: State, actor: Actor, now: int) -> None:
    """Send what may be sent: from each caller in turn its next calls, as long as their arguments are there.

    A call that is compared with the end of the job's time is not sent ahead, since it would begin later than now. Until
    it can begin no other call of its group is sent, or there would always be some before it.
    """
    executor = actor.executor
    if actor.state != ALIVE or executor is None:
        return
    waited_for: tuple[str, ...] = ()
    for key in list(actor.callers):
        group, queue, sent = key[1], actor.callers[key], 0
        room = 0 if group in waited_for else room_for(actor, executor, group)
        while queue and queue[0].state == READY:
            if queue[0].function.is_timed and is_timed(actor, queue[0].function):
                if walltime.is_late(state, queue[0].function, now):
                    break
                if not begins_at_once(actor, executor, group):
                    waited_for += (group,)
                    break
            if sent >= room:
                break
            sent += 1
            if send(state, executor, queue[0]):
                queue.popleft()
        if not queue:
            del actor.callers[key]
        elif sent:
            actor.callers[key] = actor.callers.pop(key)  # at the end: next time others come first


def room_for(actor: Actor, executor: Executor, group: str) -> int:
    """How many more calls of a concurrency group may be sent: a group that is busy holds up no other."""
    limits = actor.creation.function.spec.concurrency
    return max(ACTOR_CALLS_MAX, limits.get(group, 0)) - in_group(actor, executor, group)


def is_timed(actor: Actor, function: Function) -> bool:
    """Whether calls of a method are compared with the end of the job's time in this actor.

    Where it takes several calls at a time what was measured says little: they may have waited for each other.
    """
    return function.is_timed and (function.spec.time_limit_us > 0 or not actor.creation.function.spec.concurrency)


def begins_at_once(actor: Actor, executor: Executor, group: str) -> bool:
    """Whether a call of a concurrency group that is sent now waits for none before it."""
    limits = actor.creation.function.spec.concurrency
    return in_group(actor, executor, group) < limits.get(group, 1)


def in_group(actor: Actor, executor: Executor, group: str) -> int:
    """How many calls of a concurrency group an actor has in hand."""
    if len(actor.creation.function.spec.concurrency) < 2:
        return len(executor.in_hand)
    return sum(task.function.spec.group == group for task in executor.in_hand.values())


def send(state: State, executor: Executor, task: Task) -> bool:
    """Give a method call to its actor. Whether it was sent: arguments that lie on another host are brought first.

    Meanwhile the call stays at the head of its caller's queue, so that none overtakes it.
    """
    task.executor = executor
    executor.in_hand[task.id] = task
    if task.call.arguments and not stage(state, executor, task):
        return False
    task.state = SEND[task.state]
    function = task.function
    if function.spec.id not in executor.known:
        executor.known.add(function.spec.id)
        state.to_client(executor.id, function.spec)
    state.to_client(executor.id, task.call)
    return True


def leave_queue(actor: Actor, task: Task) -> None:
    """A call does not wait for its turn any more."""
    key = line_of(actor, task)
    queue = actor.callers.get(key)
    if queue and queue[0] is task:
        queue.popleft()
    elif queue and task in queue:
        queue.remove(task)
    if queue is not None and not queue:
        del actor.callers[key]


def go_past(state: State, actor: Actor, task: Task) -> None:
    """A method call was sent now that its arguments were brought, or never will be: its caller's next may follow."""
    leave_queue(actor, task)
    state.called[actor] = None


def ended(state: State, task: Task) -> None:
    """A creation or a method call has ended."""
    actor = task.actor
    if actor is None:
        return
    if task is not actor.creation:
        if task.function.is_timed:
            walltime.note_duration(state, task.function)
        if actor.callers:
            state.called[actor] = None
        return
    if actor.state == CREATING and actor.error is None and actor.executor is not None:
        actor.state = CREATED[actor.state]
        reduce_grant(state, actor.executor, task.function.spec.held_cpu)
        state.called[actor] = None


def reduce_grant(state: State, executor: Executor, held_cpu: int) -> None:
    """Once placed, an actor keeps only part of its CPU."""
    grant = executor.grant
    assert grant is not None
    source = executor.source
    if not executor.blocked:
        source.free.cpu += grant.cpu - held_cpu
    grant.cpu = held_cpu
    executor.is_reduced = True
    source.actor_cpu += held_cpu
    state.index.update(executor.rank.node)
    state.freed = True


def creation_failed(state: State, task: Task, error: Value | None, cause: str) -> None:
    """There will be no actor: every call gets the error, if there is one, or else the cause; the process ends."""
    actor = task.actor
    assert actor is not None
    actor.error = error
    end(state, actor, cause, force=False)


def unreferenced(state: State, actor: Actor) -> None:
    """The last handle is gone, and so are all calls."""
    found = state.objects.get(actor.id)
    if found is None or found.references:
        return
    del state.objects[actor.id]
    if actor.state == DEAD:
        del state.actors[actor.id]
    else:
        end(state, actor, "ended because its last handle was gone", force=False)


def orphaned(state: State, id: bytes) -> None:
    """A process with a reference to this died. An actor to which nobody else has one is not created any more."""
    found = state.objects.get(id)
    if found is None or found.actor is None or found.references != 1:
        return
    if found.actor.creation.state in (WAITING, READY):  # this holds the one reference
        end(state, found.actor, "was not created: the last process that had a handle died", force=False)


def end(state: State, actor: Actor, cause: str, force: bool) -> None:
    """Stop an actor for good: its process when it has one, its creation when not; pending calls get the reason."""
    if actor.state in (ENDING, DEAD):
        if force and actor.executor is not None and actor.state == ENDING:
            state.to_rank(actor.executor.rank.number, StopExecutor(actor.executor.id, force=True))
        return
    actor.cause = actor.cause or cause
    actor.state = END[actor.state]
    names.ended(state, actor)
    executor = actor.executor
    fail_pending(state, actor)
    if executor is not None:
        executor.expected_death = cause
        executor.state = STOPPING
        state.to_rank(executor.rank.number, StopExecutor(executor.id, force))
        return
    die(state, actor)
    creation = actor.creation
    if creation.state == READY:
        withdraw(state, creation)
    if creation.state not in ENDED:
        endings.fail(state, creation, "ActorDiedError", f"{describe(actor)} {cause}")


def kill(state: State, actor: Actor, no_restart: bool) -> None:
    """A client wants the actor's process killed; for good, or only what it is now."""
    if no_restart or not may_restart(actor) or actor.state in (ENDING, DEAD):
        end(state, actor, "was killed by kill()", force=True)
        return
    executor = actor.executor
    if executor is not None:
        actor.state = RESTART[actor.state]
        executor.state = STOPPING
        state.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))


def may_restart(actor: Actor) -> bool:
    """Whether the actor may be created once more."""
    most = actor.creation.function.spec.max_restarts
    return most < 0 or actor.restarts < most


def die(state: State, actor: Actor) -> None:
    """The actor will not run again."""
    actor.state = DIE[actor.state]
    names.ended(state, actor)
    kept, actor.kept = actor.kept, []
    for id in kept:
        objects.release(state, id)
    found = state.objects.get(actor.id)
    if found is None:
        del state.actors[actor.id]


def fail_pending(state: State, actor: Actor) -> None:
    """All calls that were not sent get the reason; those that still wait for arguments get it when they are ready."""
    for queue in list(actor.callers.values()):
        for task in list(queue):
            if task.state in (READY, WAITING):
                fail_call(state, actor, task)
    actor.callers.clear()


def executor_died(state: State, actor: Actor, executor: Executor, in_hand: list[Task], event: ExecutorDied) -> None:
    """The actor's process is gone, and with it the calls in hand."""
    creation = actor.creation
    sent = [task.id for task in in_hand if task.state != STAGING]
    started = set(sent[: sent.index(event.running) + 1]) if event.running in sent else set()
    if creation.function.spec.concurrency and creation not in in_hand:
        started.update(sent)  # calls start in any order
    if actor.state in (CREATING, RESTARTING) and creation in in_hand and creation.id not in started:
        actor.state = CREATE[actor.state]
        advance(creation, TAKE_BACK)
        actor.executor = creation.executor = None
        requeue(state, [creation])
    elif actor.state in (CREATING, ALIVE, RESTARTING) and may_restart(actor):
        restart(state, actor, in_hand, started, event)
    else:
        died_for_good(state, actor, executor, in_hand, event.cause)


def died_for_good(state: State, actor: Actor, executor: Executor, in_hand: list[Task], cause: str) -> None:
    """The actor's process was its last: all calls get the reason."""
    again = f", after it had been started again {actor.restarts} time(s)" if actor.restarts else ""
    actor.cause = actor.cause or executor.expected_death or f"died{again}: {cause}"
    creation = actor.creation
    for task in in_hand:
        if task is not creation:
            fail_call(state, actor, task)
    fail_pending(state, actor)
    if actor.state != DEAD:
        die(state, actor)
    if creation.state not in ENDED:
        endings.fail(state, creation, "ActorDiedError", f"{describe(actor)} {actor.cause}")


def restart(state: State, actor: Actor, in_hand: list[Task], started: set[bytes], event: ExecutorDied) -> None:
    """The actor's process is gone, and it is created again.

    Of the calls in hand those that had not started go back to the front of their callers' queues, and so do those that
    have retries left, or had ended without telling. The others get an error: they may have run.
    """
    unavailable = f"{describe(actor)} died: {event.cause}. It is being started again."
    one_by_one = not actor.creation.function.spec.concurrency
    actor.state = RESTART[actor.state]
    actor.executor = None
    actor.restarts += 1
    state.restarted += 1
    for task in reversed(in_hand):
        if task is actor.creation:
            continue
        has_run = task.id in started
        had_ended = has_run and one_by_one and endings.had_ended(task, event.running)
        if task.is_cancelled:
            endings.cancelled(state, task)
        elif has_run and not (task.retries or had_ended):
            name = task.function.spec.name
            endings.fail(state, task, "ActorUnavailableError", f"{name} may have been running when {unavailable}")
        else:
            give_again(state, actor, task, has_run, had_ended)
    create_again(state, actor)


def give_again(state: State, actor: Actor, task: Task, has_run: bool, had_ended: bool = False) -> None:
    """A call goes back into its caller's queue, before later ones: after a restart, or because it raised."""
    queue = actor.callers.setdefault(line_of(actor, task), deque())
    if task.state != STAGING:
        before = sum(1 for _ in takewhile(lambda other: other.order < task.order, queue))
        queue.insert(before, task)  # else it is there still
    if has_run:
        advance(task, LOSE)
        endings.again(state, task, had_ended)
    else:
        advance(task, TAKE_BACK)
        task.executor = None


def create_again(state: State, actor: Actor) -> None:
    """Queue the creation, which has been run before."""
    creation = actor.creation
    actor.state = CREATE[actor.state]
    if creation.state == FINISHED:
        advance(creation, CREATE_AGAIN)
        state.finished -= 1
        handles = state.objects[actor.id]
        handles.state, handles.task = PENDING, creation
        handles.references += 1
        for id in actor.kept:
            objects.hold(state, id)
    else:
        advance(creation, LOSE)
        advance(creation, RETRY)
    creation.executor = None
    creation.call.attempt += 1
    enqueue(state, creation)
