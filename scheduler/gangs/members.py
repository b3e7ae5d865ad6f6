"""Members of gangs: the ends that they report, their deaths, and the end of gangs.

A call ends once, and only through its leader, the executor of rank 0:
1. When all members have reported an end, the call ends with the values that count, or with the first error.
2. When one has raised, the others have `grace_us` to raise or return: they may be inside a collective call that never
   ends. Then the call ends with the first error, and the gang is killed.
3. When a member dies, all others are killed. The death of the leader retries the call or fails it, with that cause.
4. A cancelled call is interrupted on all members. After `grace_us` the gang is killed.
A gang whose call raised, died or was cancelled runs no other: messages may be on their way between its members.
"""

from __future__ import annotations

from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.calls import copies, tasks
from mpi_runtime.scheduler.calls.refusals import check_unknown_end
from mpi_runtime.scheduler.dispatch.blocked import let_continue
from mpi_runtime.scheduler.gangs import nested_calls
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.nodes import groups
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.effects import CRASH, Cancel
from mpi_runtime.scheduler.protocol.events import Done, RefusedError, Returned, Value
from mpi_runtime.scheduler.protocol.limits import GANG_IDLE_US, IDLE_US_MAX, UNIT
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records.grant_sources import NOTHING
from mpi_runtime.scheduler.records.lifecycle import ALIVE, BLOCKED, FAIL, FINISH, SEND, SENT, STAGING, Move, advance
from mpi_runtime.scheduler.records.records import Bundle, Executor, Gang, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.values import call_ends, objects
from mpi_runtime.scheduler.values.message_checks import check_values

# Ends of calls


def ended(state: State, executor: Executor, event: Done | Returned, now: int) -> None:
    """Note that a member has ended its part of the call. The last one ends the call."""
    gang = executor.gang
    assert gang is not None
    part = executor.assigned.get(event.id)
    if part is None or gang.task is None:
        check_unknown_end(executor)
        if isinstance(event, Returned):
            check_values(state, event.values)
            objects.discard(state, *event.values)
        return
    spec = part.function.spec
    has_one = executor.gang_rank > 0 or spec.by_rank
    is_short = isinstance(event, Done) and spec.num_returns > 1 and not has_one
    if part.state != SENT or executor.gang_rank in gang.ended or is_short:
        raise RefusedError(f"a call of {spec.name} ends as it cannot")
    if isinstance(event, Done):
        event = Returned(event.id, [Value(event.data)], event.duration_us, start_us=event.start_us)
    check_values(state, event.values)
    if len(event.values) != 1 and has_one:
        raise RefusedError(f"a member of a gang returns {len(event.values)} values")
    for value in event.values:
        value.holds = [id for id in value.holds if objects.hold(state, id)]
    gang.ended[executor.gang_rank] = event
    if len(gang.ended) == len(gang.members):
        finish(state, gang, now)
    elif event.raised and raised(gang) == [executor.gang_rank]:
        set_due(state, gang, now + grace_us(gang.task))


def set_due(state: State, gang: Gang, at_us: int) -> None:
    """Look after a gang then, and not earlier: it may have an alarm of the time when it idled last."""
    gang.due_us = at_us
    state.alarms.set(gang, at_us)


def grace_us(task: Task) -> int:
    """How long the other members have; of a method as its class says."""
    gang = (task if task.actor is None else task.actor.creation).function.spec.gang
    assert gang is not None
    return gang.grace_us


def raised(gang: Gang) -> list[int]:
    """The ranks that have raised, in the order of their reports."""
    return [rank for rank, event in gang.ended.items() if event.raised]


def finish(state: State, gang: Gang, now: int) -> None:
    """End the call: all members have reported, or one has raised and the time of the others is over."""
    task, ends = gang.task, gang.ended
    assert task is not None
    wrong, spec, leader = raised(gang), task.function.spec, gang.members[0]
    is_spent = any(end.ends_gang for end in ends.values())
    may_reuse = spec.gang is not None and spec.gang.reuse and not (wrong or is_spent or task.is_cancelled or gang.cause)
    for part in [part for executor in gang.members[1:] for part in executor.drop_all()]:
        end_part(state, part, FINISH if part.state in (SENT, BLOCKED) else FAIL)
    used = wrong[:1] or (range(len(ends)) if spec.by_rank else [0])
    event = ends[used[0]]
    if len(used) > 1:
        whole = [ends[rank] for rank in used]
        has_errors = any(one.has_errors for one in whole)
        values = [one.values[0] for one in whole]
        event = Returned(task.id, values, event.duration_us, start_us=event.start_us, has_errors=has_errors)
    event.id = task.id
    held = [id for end in ends.values() for id in holds_of(end)]
    for rank, end in ends.items():
        if rank not in used:
            objects.discard(state, *end.values)
    gang.task, gang.ended = None, {}
    if wrong and not task.is_cancelled:
        report_errors(state, gang, task, wrong, len(ends))
    if task.state == BLOCKED:
        let_continue(state, leader, now)
    elif task.state == STAGING:
        copies.unwanted(state, task, leader)
        advance(state.stories, task, SEND, "another rank of its gang has raised")
    tasks.returned(state, state.clients[leader.id], event, now)
    for id in held:
        objects.release(state, id)
    if gang.for_actor and len(ends) == len(gang.members):
        keep(state, gang, task)
    elif may_reuse and not gang.for_actor:
        rest(state, gang, now)
    else:
        why = f"rank {wrong[0]} raised an error" if wrong else "its call is not to be followed by another"
        state.stop_gang(gang, f"was killed with its gang: {why}")


def keep(state: State, gang: Gang, task: Task) -> None:
    """Let a gang that is an actor wait for its next call. After its creation it keeps what the actor holds."""
    actor = task.actor
    if actor is None or task is not actor.creation or actor.state != ALIVE:
        return
    for executor in gang.members[1:]:
        lifetimes.reduce_grant(state, executor, actor.spec.held_cpu)


def holds_of(event: Returned) -> list[bytes]:
    """The references in the values of a member."""
    return [id for value in event.values for id in value.holds]


def report_errors(state: State, gang: Gang, task: Task, wrong: list[int], reports: int) -> None:
    """Log which ranks have raised, if more than one has or some had to be killed."""
    killed = len(gang.members) - reports
    if len(wrong) == 1 and not killed:
        return
    name, ranks = task.function.spec.name, ", ".join(map(str, wrong))
    text = f"{name}: rank(s) {ranks} of its gang of {len(gang.members)} raised; the error is that of rank {wrong[0]}."
    text += f" {killed} other(s) did not end within the grace time, and were killed." * bool(killed)
    notes.log_often(state, notes.WARNING, CRASH, name, text, gang.members[0].rank)


def end_part(state: State, part: Task, move: Move) -> None:
    """End the part of a call of a member of rank 1 or higher."""
    advance(state.stories, part, move)
    call_ends.release_arguments(state, part)
    part.executor = None


def look(state: State, gang: Gang, now: int) -> None:
    """Handle the alarm of a gang: the time of its members is over, or it has been idle for long."""
    nested_calls.look(state, gang, now)
    if gang.cause or gang.due_us == NOTHING:
        return
    if now < gang.due_us:
        state.alarms.set(gang, gang.due_us)
        return
    task = gang.task
    if task is None:
        state.stop_gang(gang, "it had been idle")
    elif task.is_cancelled:
        state.stop_gang(gang, "was killed because its call was cancelled")
    elif raised(gang):
        finish(state, gang, now)


def interrupt_others(state: State, gang: Gang, now: int) -> None:
    """Interrupt the members of rank 1 and higher: the leader is being interrupted."""
    for executor in gang.members[1:]:
        for part in executor.assigned.values():
            if part.state in (SENT, BLOCKED):
                state.to_rank(executor.rank.number, Cancel(executor.id, part.id, False, part.call.attempt))
    if gang.task is not None:
        set_due(state, gang, min(gang.due_us, now + grace_us(gang.task)))


# Ends of gangs


def rest(state: State, gang: Gang, now: int) -> None:
    """Let a gang idle: its members return their grants, and keep their processes and their MPI world."""
    is_out = False
    for executor, source in zip(gang.members, gang.sources, strict=True):
        node = executor.rank.node
        if executor.blocked:
            executor.reclaim_cpu()
        state.return_grant(executor)
        executor.source = node
        node.add_idle(executor)
        executor.idle_since_us = now
        is_out = is_out or gpu_pool.is_out(source, executor.key.gpu_ids)
        if isinstance(source, Bundle):
            is_out = is_out or source.removed
            groups.drained(state, source)
        if len(node.all_idle()) * UNIT > node.total.cpu:
            state.alarms.set(node, now + IDLE_US_MAX)
    if is_out:
        state.stop_gang(gang, "its GPUs or its placement group are gone")
        return
    state.idle_gangs.setdefault(gang.key, {})[gang.number] = gang
    set_due(state, gang, now + GANG_IDLE_US)


def member_died(state: State, executor: Executor, event: ExecutorDied) -> None:
    """Note the death of a member, before its calls are looked at: it counts as running, and the others are killed."""
    gang = executor.gang
    assert gang is not None
    gang.living -= 1
    if not gang.living and gang.nodes > 1:
        state.effects.ended_gangs.append(gang.number)
    if gang.task is not None:
        event.running = next(iter(executor.assigned), b"")
    end = gang.ended.pop(executor.gang_rank, None)
    if end is not None:  # the memory of its values is freed with all that it had
        release_held(state, end)
    if gang.cause:
        return
    where = f"rank {executor.gang_rank} of its gang of {len(gang.members)}"
    if event.out_of_memory:
        gang.members[0].is_out_of_memory = True
    state.stop_gang(gang, f"was killed because {where} {executor.place} {event.cause}")
    executor.killed_for = ""  # it died by itself
    if not executor.gang_rank:
        event.cause = f"(rank 0 of its gang of {len(gang.members)}) {event.cause}"


def after_death(state: State, executor: Executor, assigned: list[Task]) -> list[Task]:
    """Forget the part of the call of a dead member, and the ends that members had reported. Returns the call itself."""
    gang = executor.gang
    assert gang is not None
    if executor.gang_rank:
        for part in assigned:
            end_part(state, part, FAIL)
        return []
    gang.task = None
    for end in gang.ended.values():  # these members are being killed, and the memory of their values is freed then
        release_held(state, end)
    gang.ended = {}
    return assigned


def release_held(state: State, end: Returned) -> None:
    """Release the references in the values of a member, which nobody gets."""
    for id in holds_of(end):
        objects.release(state, id)
