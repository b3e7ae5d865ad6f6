"""Calls of actors. They start in the order of each caller, and are sent ahead while an actor has room.

A call that waits for an argument, or is too late to start (`deadline.py`), does not delay other callers. One whose
arguments are made by calls of the same actor need not wait for them: see `follows`.
"""

from __future__ import annotations

from itertools import takewhile

from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.dispatch import deadline
from mpi_runtime.scheduler.dispatch.dependencies import assign, come_back, send_call, wait_again
from mpi_runtime.scheduler.dispatch.following import leader_of, send_behind
from mpi_runtime.scheduler.dispatch.stealing import ask_back
from mpi_runtime.scheduler.protocol.events import DRIVER, EndAnnounced
from mpi_runtime.scheduler.protocol.limits import ACTOR_CALLS_MAX, FOLLOWERS_MAX
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import READY, SENT, STAGING, WAITING, advance, so_far
from mpi_runtime.scheduler.records.parts import Line
from mpi_runtime.scheduler.records.records import Actor, Executor, Function, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import call_ends, objects, retries
from mpi_runtime.scheduler.values.message_checks import require

_ENDS = "the job is about to end"


def line_up(actor: Actor, task: Task, function: int) -> None:
    """Add a call to the line of its caller."""
    key = (task.client, task.function.spec.group, function)
    line = actor.callers.get(key)
    if line is None:
        line = actor.callers[key] = Line()
    line.append(task)


def line_of(actor: Actor, task: Task) -> tuple[int, str, int]:
    """The key of the line in which a call waits: caller, concurrency group and function."""
    return task.client, task.function.spec.group, task.function.spec.id if out_of_order(actor) else 0


def out_of_order(actor: Actor) -> bool:
    """Whether calls line up when they have their arguments, not when they are submitted."""
    return actor.spec.out_of_order


def ready(state: State, task: Task) -> None:
    """Handle a method call that has its arguments."""
    actor = task.actor
    if actor is None:
        call_ends.fail(state, task, "ActorDiedError", f"the actor of {task.function.spec.name} no longer exists")
    elif actor.state in (lifecycle.ENDING, lifecycle.DEAD):
        fail_call(state, actor, task)
    else:
        if actor.spec.out_of_order:
            line_up(actor, task, task.function.spec.id)
        state.called[actor] = None
        if actor.saves is not None:
            checkpoints.ask(state, actor, task)


def fail_call(state: State, actor: Actor, task: Task) -> None:
    """Give a call the cause of its actor's death as its result."""
    if call_ends.has_lost_owner(task):
        call_ends.cancelled(state, task)  # whichever of the two ends first
    elif actor.error is not None:
        found = state.objects.get(actor.id)
        failure = objects.pass_on(found) if found is not None else None
        call_ends.conclude(state, task, [actor.error], lifecycle.FAIL, failure)
    else:
        call_ends.fail(state, task, "ActorDiedError", died_message(state, actor, task))
    leave_queue(actor, task)


def died_message(state: State, actor: Actor, task: Task) -> str:
    """The message for callers of a dead actor."""
    started = "This call may have been running." if task.executor is not None else "This call was not started."
    cause, line, traceback = (actor.cause or "is ending").partition("\n")
    before = so_far(state.stories.of(actor.id, "actor", besides=actor.cause))
    return f"{task.function.spec.name} was called, but {actor} {cause}. {started}{before}{line}{traceback}"


def pump(state: State, actor: Actor, now: int) -> None:
    """Send the next calls of each caller in turn, as far as there is room and their arguments exist.

    A timed call is not sent ahead, because it would begin later than now. Until it can begin, or while its arguments
    are fetched, no other call of its group is sent; otherwise there would always be a call before it.
    """
    executor = actor.executor
    if actor.state != lifecycle.ALIVE or executor is None or checkpoints.holds_back(state, actor):
        return
    if executor.asked_back:
        return  # what comes back goes before
    waiting_groups = being_brought(actor, executor) if state.end_us is not None else set()
    in_order = not out_of_order(actor)
    behind: dict[tuple[int, str, int], Task] = {}  # the last follower of each line
    if executor.followers:
        behind = {line_of(actor, task): task for task in executor.followers.values()}
    for (_, group), lines in turns(actor).items():
        room = 0 if group in waiting_groups else room_for(actor, executor, group)
        sent: dict[tuple[int, str, int], None] = {}
        is_free = in_order and room > 0 and not (behind and lines[0] in behind)
        if is_free and (count := send_first(state, executor, actor.callers[lines[0]], room)):
            room -= count
            sent[lines[0]] = None
            if not actor.callers[lines[0]]:
                lines.clear()
        while lines:
            key = lines[0] if len(lines) == 1 else min(lines, key=lambda key: actor.callers[key][0].order)
            queue = actor.callers[key]
            task = queue[0]
            if task.state == WAITING or key in behind:
                if room > 0 and follows(state, executor, task, behind.get(key)):
                    room -= 1
                    sent[key] = None
                    send_behind(state, executor, task)
                    behind[key] = task
                    queue.popleft()
                    queue.tidy()
                    if queue:
                        continue
                lines.remove(key)
                continue
            timed = task.function.is_timed and task.state == READY and is_timed(actor, task.function)
            if timed:
                if deadline.is_late(state, task.function, now):
                    lines.remove(key)
                    continue
                if not begins_at_once(actor, executor, group):
                    waiting_groups.add(group)
                    room = 0
            if task.state == READY and room > 0:
                room -= 1
                sent[key] = None
                was_sent = assign(state, executor, task)  # if not, it stays the first: no other overtakes it
                if was_sent or out_of_order(actor):
                    queue.popleft()
                    queue.tidy()
                if timed and not was_sent:
                    waiting_groups.add(group)
                    room = 0
                if queue and queue[0].state in (READY, WAITING):
                    continue
            lines.remove(key)
        for key in sent:  # next time other lines are first
            queue = actor.callers.pop(key)
            if queue:
                actor.callers[key] = queue


def send_first(state: State, executor: Executor, line: Line[Task], room: int) -> int:
    """Send the first calls of a line that are of the frequent kind: ready, without arguments, not timed.

    Returns how many were sent.
    """
    count = 0
    while line and count < room:
        task = line[0]
        if task.state != READY or task.call.arguments or task.function.is_timed:
            if task.state not in lifecycle.ENDED:
                break
            line.tidy()
            continue
        line.popleft()
        executor.take(task, 0)
        send_call(state, executor, task)
        count += 1
    line.tidy()
    return count


def follows(state: State, executor: Executor, task: Task, last: Task | None) -> bool:
    """Whether the first call of a line may be sent behind calls of its actor that make its arguments.

    `last`: the last such call of the line that has not ended. If it comes back, what was sent behind it in its line
    would overtake it. So there only calls that need its value are sent: these come back too.
    """
    actor = executor.actor
    assert actor is not None
    return (
        leader_of(state, task) is executor
        and (last is None or last.id in task.call.arguments)
        and len(executor.followers) < FOLLOWERS_MAX
        and not actor.spec.concurrency
        and actor.saves is None
        and executor.gang is None
    )


def being_brought(actor: Actor, executor: Executor) -> set[str]:
    """Groups with a timed next call that waits for the transfer of its arguments. Only for membership."""
    return {
        task.function.spec.group
        for task in executor.assigned.values()
        if task.state == STAGING and is_timed(actor, task.function)
    }


def turns(actor: Actor) -> dict[tuple[int, str], list[tuple[int, str, int]]]:
    """The lines of each caller and group.

    There are several only without an order of calls. Then ready calls start in the order of submission.
    """
    lines: dict[tuple[int, str], list[tuple[int, str, int]]] = {}
    for key in actor.callers:
        lines.setdefault(key[:2], []).append(key)
    return lines


def room_for(actor: Actor, executor: Executor, group: str) -> int:
    """The number of calls of a concurrency group that may be sent. A busy group does not delay others."""
    if executor.gang is not None:  # each member has a part of the same call
        return 0 if executor.assigned or executor.gang.cause else 1
    limits = actor.spec.concurrency
    return max(ACTOR_CALLS_MAX, limits.get(group, 0)) - in_group(actor, executor, group)


def is_timed(actor: Actor, function: Function) -> bool:
    """Whether calls of a method are compared with the end of the job's time in this actor.

    With concurrent calls the measured durations are not used: calls may have waited for each other.
    """
    return function.is_timed and (function.limit_us > 0 or not actor.spec.concurrency)


def begins_at_once(actor: Actor, executor: Executor, group: str) -> bool:
    """Whether a call of a concurrency group that is sent now begins at once."""
    limits = actor.spec.concurrency
    return in_group(actor, executor, group) < limits.get(group, 1)


def in_group(actor: Actor, executor: Executor, group: str) -> int:
    """The number of assigned calls of a concurrency group."""
    if len(actor.spec.concurrency) < 2:
        return len(executor.assigned)
    return sum(task.function.spec.group == group for task in executor.assigned.values())


def leave_queue(actor: Actor, task: Task) -> None:
    """Remove a call that has ended, or was sent, from its line."""
    key = line_of(actor, task)
    line = actor.callers.get(key)
    if line is not None:
        line.leave(task)
        if not line:
            del actor.callers[key]


def go_past(state: State, actor: Actor, task: Task) -> None:
    """Continue a caller's line, after a first call was sent or has failed."""
    leave_queue(actor, task)
    state.called[actor] = None


def fail_pending(state: State, actor: Actor) -> None:
    """Fail all calls that were not sent. Calls that still wait for arguments fail when they are ready."""
    for queue in list(actor.callers.values()):
        for task in list(queue):
            if task.state in (READY, WAITING):
                fail_call(state, actor, task)
    actor.callers.clear()


def give_again(
    state: State, actor: Actor, task: Task, cause: str, has_run: bool = False, had_ended: bool = False
) -> None:
    """Put a call back into its line, before later ones: after a restart, or because it raised."""
    queue = actor.callers.setdefault(line_of(actor, task), Line())
    if task.state != STAGING or out_of_order(actor):
        before = sum(1 for _ in takewhile(lambda other: other.order < task.order, queue))
        queue.insert(before, task)  # else it is still there
    if has_run:
        advance(state.stories, task, lifecycle.LOSE, cause)
        advance(state.stories, task, lifecycle.RETRY)
        retries.spend(state, task, had_ended)
        task.call.attempt += 1
    elif task.has_followed and task.state == SENT:
        come_back(state, task, cause)
        return
    else:
        advance(state.stories, task, lifecycle.TAKE_BACK, cause)
    task.executor = None
    if wait_again(state, task) and out_of_order(actor):
        leave_queue(actor, task)  # it lines up when it has its arguments


def end_announced(state: State, client: Client, event: EndAnnounced, now: int) -> None:
    """Ask for all changed states. These actors begin no further call."""
    require(client.id == DRIVER, "a client sent an event that only the program of rank 0 may send")
    for actor in checkpoints.announce_end(state, now):
        take_back(state, actor)


def take_back(state: State, actor: Actor) -> None:
    """Put the calls that were sent ahead to an actor back into their lines."""
    executor = actor.executor
    if actor.state != lifecycle.ALIVE or executor is None or executor.gang is not None:
        return
    for task in [task for task in executor.assigned.values() if task.state == STAGING]:
        executor.drop(task.id)
        give_again(state, actor, task, _ENDS)
    ask_back(state, executor, len(executor.assigned))


def taken_back(state: State, executor: Executor, ids: list[bytes]) -> None:
    """Put calls that an actor will not begin back into their lines."""
    actor = executor.actor
    assert actor is not None
    state.called[actor] = None
    for task in [task for id in ids if (task := executor.drop(id)) is not None]:
        if task.is_cancelled:
            call_ends.cancelled(state, task)
            task.executor = None
        else:
            give_again(state, actor, task, _ENDS)
