"""Actors: an executor that keeps state, calls in order for each caller, and an end when the last handle goes.

The handles of an actor are counted as references to an object whose id is the actor's; each call holds one, so an actor
whose count is zero has no calls either. Calls of one caller start in the order they were submitted; a caller whose next
call waits for an argument does not hold up other callers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from mpi_runtime.scheduler import endings, names
from mpi_runtime.scheduler.effects import StopExecutor
from mpi_runtime.scheduler.events import ACTOR, Value
from mpi_runtime.scheduler.limits import ACTOR_CALLS_MAX
from mpi_runtime.scheduler.nodes import STOPPING, Executor
from mpi_runtime.scheduler.placement import stage
from mpi_runtime.scheduler.queues import withdraw
from mpi_runtime.scheduler.tasks import ENDED, FAIL, READY, SEND, WAITING, Task

if TYPE_CHECKING:
    from mpi_runtime.scheduler.state import State

CREATING, ALIVE, ENDING, DEAD = range(4)
STATE_NAMES = ("creating", "alive", "ending", "dead")

CREATED = {CREATING: ALIVE}
"""Its constructor has returned."""
END = {CREATING: ENDING, ALIVE: ENDING}
"""It has been told to stop: the last handle is gone, or it was killed."""
DIE = {CREATING: DEAD, ALIVE: DEAD, ENDING: DEAD}
"""It will not run again."""

TABLES = {"created": CREATED, "told to end": END, "died": DIE}
"""For diagrams and tests."""


class Actor(Struct, eq=False, gc=False):
    """One actor."""

    id: bytes
    creation: Task
    state: int = CREATING
    executor: Executor | None = None
    callers: dict[int, deque[Task]] = {}
    """For each caller its calls that have not been sent, in order."""
    cause: str = ""
    """Why it died, in words."""
    created: bool = False
    """Whether its grant has been reduced to what it keeps."""
    name: tuple[str, str] | None = None
    """Namespace and name, while it has them."""
    error: Value | None = None
    """If its constructor raised: that error, which every call gets."""


def submit(state: State, task: Task) -> None:
    """A creation or a method call was submitted."""
    if task.function.spec.kind == ACTOR:
        actor = Actor(task.id, task)
        state.actors[task.id] = actor
        state.objects[task.id].actor = actor
        task.actor = actor
        names.created(state, actor)
        return
    actor_found = state.actors.get(task.call.actor)
    task.actor = actor_found
    if actor_found is not None and actor_found.state != DEAD:
        actor_found.callers.setdefault(task.client, deque()).append(task)


def ready(state: State, task: Task) -> None:
    """A method call has its arguments."""
    actor = task.actor
    if actor is None:
        endings.fail(state, task, "ActorDiedError", f"the actor of {task.function.spec.name} no longer exists")
    elif actor.state in (ENDING, DEAD):
        fail_call(state, actor, task)
    else:
        pump(state, actor)


def fail_call(state: State, actor: Actor, task: Task) -> None:
    """A call gets the reason for its actor's death as its result."""
    queue = actor.callers.get(task.client)
    if queue is not None and task in queue:
        queue.remove(task)
        if not queue:
            del actor.callers[task.client]
    if actor.error is not None:
        endings.conclude(state, task, [actor.error], FAIL)
    else:
        endings.fail(state, task, "ActorDiedError", died_message(actor, task))


def died_message(actor: Actor, task: Task) -> str:
    """What the caller of a dead actor is told."""
    started = "It may have been running." if task.executor is not None else "It was not started."
    return f"{task.function.spec.name} was called, but {describe(actor)} {actor.cause or 'is ending'}. {started}"


def describe(actor: Actor) -> str:
    """The actor in words."""
    where = f" (pid {actor.executor.pid}, {actor.executor.rank.node.hostname})" if actor.executor is not None else ""
    return f"actor {actor.creation.function.spec.name} {actor.id.hex()}{where}"


def pump(state: State, actor: Actor) -> None:
    """Send what may be sent: from each caller in turn its next calls, as long as their arguments are there."""
    executor = actor.executor
    if actor.state != ALIVE or executor is None:
        return
    for client in list(actor.callers):
        if len(executor.in_hand) >= ACTOR_CALLS_MAX:
            return
        queue = actor.callers.pop(client)
        while queue and queue[0].state == READY and len(executor.in_hand) < ACTOR_CALLS_MAX:
            if send(state, executor, queue[0]):
                queue.popleft()
        if queue:
            actor.callers[client] = queue  # at the end: next time others come first


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


def staged(state: State, actor: Actor, task: Task) -> None:
    """A method call whose arguments had to be brought was sent, or has failed: its caller's next ones may follow."""
    queue = actor.callers.get(task.client)
    if queue and queue[0] is task:
        queue.popleft()
        if not queue:
            del actor.callers[task.client]
    pump(state, actor)


def ended(state: State, task: Task) -> None:
    """A creation or a method call has ended."""
    actor = task.actor
    if actor is None:
        return
    if task is not actor.creation:
        if actor.callers:
            pump(state, actor)
        return
    if actor.state == CREATING and actor.error is None and actor.executor is not None:
        actor.state = CREATED[actor.state]
        reduce_grant(state, actor.executor, task.function.spec.held_cpu)
        pump(state, actor)


def reduce_grant(state: State, executor: Executor, held_cpu: int) -> None:
    """Once placed, an actor keeps only part of its CPU."""
    grant = executor.grant
    assert grant is not None
    node = executor.rank.node
    if not executor.blocked:
        node.free.cpu += grant.cpu - held_cpu
    grant.cpu = held_cpu
    assert executor.actor is not None
    executor.actor.created = True
    node.actor_cpu += held_cpu
    state.index.update(node)
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


def die(state: State, actor: Actor) -> None:
    """The actor will not run again."""
    actor.state = DIE[actor.state]
    names.ended(state, actor)
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


def executor_died(state: State, actor: Actor, executor: Executor, in_hand: list[Task], cause: str) -> None:
    """The actor's process is gone, and with it the calls in hand."""
    actor.cause = actor.cause or executor.expected_death or f"died: {cause}"
    creation = actor.creation
    for task in in_hand:
        if task is not creation:
            fail_call(state, actor, task)
    fail_pending(state, actor)
    if actor.state != DEAD:
        die(state, actor)
    if creation.state not in ENDED:
        endings.fail(state, creation, "ActorDiedError", f"{describe(actor)} {actor.cause}")
