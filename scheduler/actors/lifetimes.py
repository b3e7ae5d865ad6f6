"""Actors are created, restarted when their process dies, and ended with their last handle.

The handles of an actor are counted as references to an object with the id of the actor. Each call holds one, so an
actor without handles has no calls either.

An actor has its name from the submission of its creation until it is ended. The request for a name contains the
creation. So if two clients request a name at the same time, exactly one creates the actor. The other gets that actor,
and its calls arrive after the creation.
"""

from __future__ import annotations

import msgspec

from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.actors.calls import fail_call, fail_pending, give_again, line_up
from mpi_runtime.scheduler.dispatch import backoff, deadline
from mpi_runtime.scheduler.dispatch.dependencies import not_sent
from mpi_runtime.scheduler.dispatch.queues import requeue, withdraw
from mpi_runtime.scheduler.log import descriptions, notes
from mpi_runtime.scheduler.protocol.amounts import times
from mpi_runtime.scheduler.protocol.effects import CRASH, RESTARTED, Answer, StopExecutor
from mpi_runtime.scheduler.protocol.events import ActorSpec, KillRequested, Left, NamedActorRequested, Titled, Value
from mpi_runtime.scheduler.protocol.limits import ENDED_CAUSE_MAX
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import DEAD, ENDED, advance, first_line
from mpi_runtime.scheduler.records.records import Actor, Driver, Executor, Task
from mpi_runtime.scheduler.records.state import Client, Name, State
from mpi_runtime.scheduler.values import call_ends, journaling, objects, retries


def submit(state: State, task: Task) -> None:
    """Note that a creation or a method call was submitted."""
    kind = task.function.spec.kind
    if isinstance(kind, ActorSpec):
        actor = Actor(task.id, task, kind)
        state.totals.actors += 1
        if kind.max_restarts:
            actor.kept = [id for id in (*task.call.arguments, *task.call.holds) if objects.hold(state, id)]
        state.actors[task.id] = actor
        state.objects[task.id].actor = actor
        task.actor = actor
        if task.function.driver is not None:
            actor.driver = task.driver
            (task.function.driver.actors if task.driver else task.function.driver.detached_actors)[task.id] = actor
        return
    found = task.actor = state.actors.get(task.call.actor)
    if found is not None and found.state != DEAD and not found.spec.out_of_order:
        line_up(found, task, 0)


def ended(state: State, task: Task) -> None:
    """Note that a creation or a method call has ended."""
    actor = task.actor
    if actor is None:
        return
    if task is not actor.creation:
        actor.creation.crashes = 0
        if actor.saves is not None:
            checkpoints.other_ended(state, task)
        if task.function.is_timed:
            deadline.note_duration(state, task.function)
        if actor.callers:
            state.called[actor] = None
        return
    if actor.state == lifecycle.CREATING and actor.error is None and actor.executor is not None:
        advance(state.stories, actor, lifecycle.CREATED)
        reduce_grant(state, actor.executor, actor.spec.held_cpu)
        state.called[actor] = None
        if actor.saves is not None:
            checkpoints.created(state, actor)


def reduce_grant(state: State, executor: Executor, held_cpu: int) -> None:
    """Reduce the grant of an actor, once it is created, to what it keeps."""
    grant = executor.grant
    assert grant is not None
    source = executor.source
    if not executor.blocked:
        source.free.cpu += grant.cpu - held_cpu
    grant.cpu = held_cpu
    executor.reduce_share(held_cpu)
    executor.is_reduced = True
    source.actor_cpu += held_cpu
    state.index.update(executor.rank.node)
    state.freed = True


def creation_failed(state: State, task: Task, error: Value | None, cause: str) -> None:
    """End an actor that was not created: every call gets the error, or else the cause."""
    actor = task.actor
    assert actor is not None
    actor.error = error
    end(state, actor, cause, force=False)


def unreferenced(state: State, actor: Actor) -> None:
    """End an actor without handles and calls. If it waits to be created, or created again, it is not created."""
    found = state.objects.get(actor.id)
    if found is None or found.references > 1:
        return
    if found.references:  # its creation holds it
        if found.task is not None and found.task.state not in (*lifecycle.ASSIGNED, *ENDED):
            end(state, actor, "was not created: its last handle was gone", force=False)
        return
    del state.objects[actor.id]
    objects.forget_failure(state, found)
    if actor.state == DEAD:
        forget(state, actor)
    else:
        end(state, actor, "ended because its last handle was gone", force=False)


def end(state: State, actor: Actor, cause: str, force: bool) -> None:
    """Stop an actor for good: its process, or its creation. Pending calls get the cause."""
    if actor.state in (lifecycle.ENDING, DEAD):
        if force and actor.executor is not None and actor.state == lifecycle.ENDING:
            state.to_rank(actor.executor.rank.number, StopExecutor(actor.executor.id, force=True))
        return
    actor.cause = actor.cause or cause
    advance(state.stories, actor, lifecycle.END, actor.cause)
    free_name(state, actor)
    executor = actor.executor
    fail_pending(state, actor)
    if executor is not None:
        state.stop(executor, cause, force)
        return
    die(state, actor)
    creation = actor.creation
    was_queued = creation.state == lifecycle.READY
    if creation.state not in ENDED:
        call_ends.fail(state, creation, "ActorDiedError", f"{actor} {cause}")
    if was_queued:
        withdraw(state, creation)


def titled(state: State, client: Client, event: Titled, now: int) -> None:
    """Note the title of an actor, for its output."""
    executor = client.as_executor()
    if executor.actor is not None:
        executor.actor.title = executor.process.name = event.title


def left(state: State, client: Client, event: Left, now: int) -> None:
    """End an actor that has called `exit_actor()`."""
    actor = state.actors.get(event.actor)
    if actor is not None:
        end(state, actor, lifecycle.LEFT, force=False)


def kill(state: State, client: Client, event: KillRequested, now: int) -> None:
    """Kill the process of an actor for a client. With `no_restart` the actor ends for good."""
    actor = state.actors.get(event.actor)
    if actor is None:
        return
    journaling.touches_actor(client.executor)
    if event.no_restart or not may_restart(actor) or actor.state in (lifecycle.ENDING, DEAD):
        end(state, actor, "was killed by kill()", force=True)
        return
    executor = actor.executor
    if executor is not None:
        advance(state.stories, actor, lifecycle.RESTART, "it was killed by kill()")
        state.stop(executor, "its actor was killed by kill()", force=True)


def may_restart(actor: Actor) -> bool:
    """Whether the actor may be created once more."""
    most = actor.spec.max_restarts
    return most < 0 or actor.restarts < most


def is_forgotten(state: State, actor: Actor) -> bool:
    """Whether no handle is left. Its creation counts as one until it has ended."""
    return state.objects[actor.id].references == (actor.creation.state not in ENDED)


def die(state: State, actor: Actor) -> None:
    """Note that an actor will not run again."""
    advance(state.stories, actor, lifecycle.DIE, actor.cause)
    free_name(state, actor)
    driver = actor.creation.function.driver
    if driver is not None:
        driver.lose(actor)
        if driver.has_left:
            state.alarms.set(driver, state.stories.now)
    kept, actor.kept = actor.kept, []
    for id in kept:
        objects.release(state, id)
    if actor.id not in state.objects:
        forget(state, actor)


def forget(state: State, actor: Actor) -> None:
    """Forget a dead actor without handles."""
    del state.actors[actor.id]
    actor.cause = actor.cause[:ENDED_CAUSE_MAX]
    state.logs.ended_actors.append(descriptions.actor_entry(actor))
    actor.creation.actor = None  # it refers to the actor: records in a circle would stay in memory


def executor_died(
    state: State, actor: Actor, executor: Executor, assigned: list[Task], event: ExecutorDied, now: int
) -> None:
    """Handle the death of the process of an actor."""
    creation = actor.creation
    unsent = not_sent(state, executor, assigned)
    sent = [task.id for task in assigned if task.id not in unsent]
    started = set(sent[: sent.index(event.running) + 1]) if event.running in sent else set()
    if event.is_unwatched:
        started.update(sent)
    is_free = creation in assigned and call_ends.is_of_node(executor.fault)
    if actor.spec.concurrency and creation not in assigned:
        started.update(sent)  # calls start in any order
    if (
        actor.state in (lifecycle.CREATING, lifecycle.RESTARTING)
        and creation in assigned
        and creation.id not in started
    ):
        advance(state.stories, actor, lifecycle.CREATE)
        advance(state.stories, creation, lifecycle.TAKE_BACK, f"{executor} {event.cause}")
        actor.executor = creation.executor = None
        requeue(state, [creation])
    elif actor.state in lifecycle.LIVING and (is_free or (may_restart(actor) and not is_forgotten(state, actor))):
        actor.restarts += not is_free
        if is_free or actor.state == lifecycle.RESTARTING:
            creation.crashes = 0  # the cause is the node, or kill()
        else:
            backoff.note_crash(creation, executor, now)
        restart(state, actor, executor, assigned, started, event)
        create_again(state, actor, f"{executor} {event.cause}", now)
    else:
        died_for_good(state, actor, executor, assigned, event.cause)


def died_for_good(state: State, actor: Actor, executor: Executor, assigned: list[Task], cause: str) -> None:
    """Handle the death of the last process of an actor: all calls get the cause.

    Not logged if no handle is left, unless the actor was never created: the program asked for it.
    """
    again = f", after it had been started again {times(actor.restarts)}" if actor.restarts else ""
    creation = actor.creation
    if not actor.cause:
        actor.cause = f"died{again}: {cause}"
        if (not creation.call.attempt and creation.state not in ENDED) or not is_forgotten(state, actor):
            text = f"{actor} {first_line(cause)}{again}. It is not started again."
            notes.log_often(state, notes.WARNING, CRASH, creation.function.spec.name, text, executor.rank)
    for task in assigned:
        if task.overdue:
            call_ends.overdue(state, task)
        elif task is not creation:
            fail_call(state, actor, task)
    fail_pending(state, actor)
    if actor.state != DEAD:
        die(state, actor)
    if creation.state not in ENDED:
        call_ends.fail(state, creation, "ActorDiedError", f"{actor} {actor.cause}")


def restart(
    state: State, actor: Actor, executor: Executor, assigned: list[Task], started: set[bytes], event: ExecutorDied
) -> None:
    """Create an actor again after the death of its process.

    Assigned calls that had not started return to the front of their lines, and so do calls with retries left, and calls
    that had ended without a report. The others get an error: they may have run.
    """
    name, most = actor.creation.function.spec.name, actor.spec.max_restarts
    times = f"{actor.restarts}" + (f" of {most}" if most > 0 else "")
    text = f"{actor} {first_line(event.cause)}. It is started again (restart {times})."
    notes.log_often(state, notes.WARNING, RESTARTED, name, text, executor.rank)
    unavailable = f"{actor} died: {event.cause}. It is being started again."
    one_by_one = executor.refusal is None and not actor.spec.concurrency
    cause = f"{executor} {event.cause}"
    advance(state.stories, actor, lifecycle.RESTART, cause)
    actor.executor = None
    state.restarted += 1
    for task in reversed(assigned):
        if task is actor.creation:
            continue
        has_run = task.id in started
        had_ended = has_run and one_by_one and retries.had_ended(task, event.running)
        if task.is_cancelled:
            call_ends.cancelled(state, task)
        elif task.overdue and not retries.may_exceed_again(task):
            call_ends.overdue(state, task)
        elif has_run and not (task.retries or had_ended):
            name = task.function.spec.name
            call_ends.fail(state, task, "ActorUnavailableError", f"{name} may have been running when {unavailable}")
        else:
            give_again(state, actor, task, cause, has_run, had_ended)


def create_again(state: State, actor: Actor, cause: str, now: int) -> None:
    """Queue the creation of an actor for a further attempt."""
    creation = actor.creation
    checkpoints.lives_again(actor)
    advance(state.stories, actor, lifecycle.CREATE)
    if creation.state == lifecycle.FINISHED:
        advance(state.stories, creation, lifecycle.CREATE_AGAIN, cause)
        creation.function.done -= 1
        state.finished -= 1
        if creation.function.driver is not None:
            creation.function.driver.begin(creation, creation.driver)
        handles = state.objects[actor.id]
        advance(state.stories, handles, lifecycle.REBUILD)
        handles.task = creation
        handles.references += 1
        for id in actor.kept:
            objects.hold(state, id)
    else:
        advance(state.stories, creation, lifecycle.LOSE, cause)
    backoff.run_again(state, creation, now)


# Names


def give_name(state: State, event: NamedActorRequested) -> None:
    """Give the actor its name when its creation is submitted, and detach it, unless it could not be created."""
    actor = state.actors.get(event.creation.id)
    if actor is None or actor.creation.state in ENDED:
        return
    if event.name:
        actor.name = (event.namespace, event.name)
        state.names[actor.name] = Name(actor.id, event.handle)
    if event.detached:
        actor.is_detached = True
        objects.hold(state, actor.id)
        if actor.driver:
            detach(state.drivers[actor.driver], actor)


def detach(driver: Driver, actor: Actor) -> None:
    """Give an actor that was just submitted to driver 0."""
    actor.driver = actor.creation.driver = 0
    driver.detached_actors[actor.id] = driver.actors.pop(actor.id)
    if driver.tasks.pop(actor.id, None) is not None:
        driver.detached[actor.id] = actor.creation


def answer_name(state: State, client: Client, event: NamedActorRequested) -> None:
    """Send a client the actor with the requested name. One that could not be created has no name: its calls fail."""
    found = state.names.get((event.namespace, event.name))
    answer = (found.actor, found.handle) if found is not None else (event.creation.id, event.handle)
    state.to_client(client.id, Answer(event.request, msgspec.msgpack.encode(answer)))


def free_name(state: State, actor: Actor) -> None:
    """Free the name of an actor that takes no more calls, and let it go."""
    if actor.name is not None and actor.name in state.names and state.names[actor.name].actor == actor.id:
        del state.names[actor.name]  # another actor may have it by now
    if actor.is_detached:
        actor.is_detached = False
        objects.release(state, actor.id)
