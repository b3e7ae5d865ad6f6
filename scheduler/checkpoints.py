"""Saved states of actors: what they have had, which calls that stands for, and who begins with it.

An actor whose class has `save_state` and `load_state` saves its state now and then, between calls. The calls of one
life of it, from a creation to the next, are recorded as they end; a state stands for those that were recorded before
it, and for those of the state with which the life had begun. Executors tell of ends and of states in one order, so both
sides mean the same calls.

In the next run the creation is known by its class and arguments, and begins with the last state. When it is up each of
its calls is asked for: one that the state has had ends at once with what it returned then, and every other one is run.
So each call counts once in the state, whatever the order. Of the two there is a third kind, which is not recorded and
always run: calls of methods that do not change the state (`journal=False`).

A state may only be taken up if its calls stand for all that they did. One that has called another actor, or has left
calls behind, or whose values or arguments no later run can read, makes it useless: from then on none is saved.

An actor that is created again in the same run begins with the last state too.
"""

from __future__ import annotations

from mpi_runtime.scheduler import journaling, notes
from mpi_runtime.scheduler.effects import JOURNAL, Checkpoint, Discard, Recall, Record, SaveRequested
from mpi_runtime.scheduler.events import Done, Kept, Returned, Saved, StateLost, Value
from mpi_runtime.scheduler.ids import digest
from mpi_runtime.scheduler.lifecycle import ALIVE, CREATING, READY
from mpi_runtime.scheduler.queues import mark_dirty
from mpi_runtime.scheduler.rank_events import Recalled
from mpi_runtime.scheduler.records import Actor, Executor, Task
from mpi_runtime.scheduler.state import State

LIFE_BYTES = 16


def creation_ready(state: State, task: Task) -> bool:
    """The creation of an actor whose class saves states has its arguments. Whether the journal is asked for one."""
    actor = task.actor
    assert actor is not None
    if actor.key or actor.unsaved_why:
        return False
    task.key = actor.key = journaling.key_of(state, task)
    if not actor.key:
        task.call.digest = b""  # so its executor saves nothing
        give_up(state, actor, "its constructor was given references, or handles of actors")
        return False
    if not state.recalls:
        return False
    spec = task.function.spec
    state.effects.journal.append(Recall(task.id, actor.key, spec.code, spec.name, is_actor=True))
    task.recalling = True
    return True


def creation_recalled(task: Task, event: Recalled) -> None:
    """The journal has answered: the creation goes on, with a state or without."""
    actor = task.actor
    assert actor is not None
    if event.values:
        task.call.kept = tuple(event.values)
        actor.saved, actor.recalls = event.values[0], True
        actor.number = actor.base = event.number


def created(state: State, actor: Actor) -> None:
    """The actor is up: now calls that wait for it are asked for, if its state has had some."""
    creation = actor.creation
    if actor.key and (creation.is_partial or creation.open_children):
        give_up(state, actor, "its constructor has called or created actors, or has left calls behind")
    if actor.recalls:
        for line in actor.callers.values():
            for task in line:
                ask(state, actor, task)


def ask(state: State, actor: Actor, task: Task) -> None:
    """Ask whether the state has had this call, if it can run now."""
    if not actor.recalls or actor.state != ALIVE or task.state != READY or task.key or not task.call.digest:
        return
    task.key = journaling.key_of(state, task)
    if task.key:
        spec = task.function.spec
        state.effects.journal.append(Recall(task.id, task.key, spec.code, spec.name, actor.id))
        task.recalling = True


def values_of(task: Task, event: Recalled) -> list[Value]:
    """What a call that the state has had returned then, if it is small; if not, the actor loads it. None: run it."""
    if any(value.file for value in event.values):
        task.call.kept = tuple(event.values)
        return []
    return [Value(value.data, is_error=value.is_error) for value in event.values]


def method_ended(state: State, task: Task, event: Done | Returned) -> None:
    """A call has ended that the state is to stand for."""
    actor = task.actor
    if actor is None or not actor.key or task.call.kept:
        return
    actor.is_changed = True
    if actor.unsaved_why:
        return
    spec = task.function.spec
    values = [Value(event.data)] if type(event) is Done else event.values  # type: ignore[union-attr]
    key = task.key or journaling.key_of(state, task)
    if not key:
        give_up(state, actor, f"{spec.name} was given references, or handles of actors")
    elif task.is_partial or task.open_children:
        give_up(state, actor, f"{spec.name} has called or created actors, or has left calls behind")
    elif not all(map(_can_be_kept, values)):
        give_up(state, actor, f"{spec.name} has returned references, or a large error")
    else:
        kept = [_kept(value) for value in values]
        record = Record(task.id, key, spec.code, spec.name, event.duration_us, kept, _life(actor))
        state.effects.journal.append(record)
        actor.recorded += 1


def other_ended(state: State, task: Task) -> None:
    """A call of an actor has ended that is not recorded."""
    actor = task.actor
    if actor is None or not actor.key or task.call.digest or task.function.spec.keeps_state:
        return
    name = task.function.spec.name
    give_up(
        state, actor,
        f"no later run can know what {name} has done: it yields values, or runs any function. If it does not change "
        "the state, say so with @method(journal=False)",
    )  # fmt: skip


def give_up(state: State, actor: Actor, why: str) -> None:
    """The actor's state is not saved any more."""
    if actor.unsaved_why:
        return
    actor.unsaved_why = why
    name = actor.creation.function.spec.name
    if (told := f"{name}: {why}") not in state.told:
        state.told.add(told)
        text = (
            f"the state of {name} is not saved from now on: {why}. The next run begins with what was saved before, or "
            "makes it anew, and runs the other calls again."
        )
        notes.tell(state, notes.WARNING, JOURNAL, text)


def saved(state: State, executor: Executor, event: Saved) -> None:
    """An actor has saved its state."""
    actor = executor.actor
    if actor is None or not actor.key or actor.unsaved_why or actor.executor is not executor:
        if event.state.file:
            state.effects.journal.append(Discard(event.state.file))
        return
    name = actor.creation.function.spec.name
    state.totals.recorded += 1
    state.effects.journal.append(
        Checkpoint(actor.id, actor.key, name, event.id, _life(actor), actor.base, actor.recorded, event.state)
    )
    actor.saved, actor.number, actor.is_changed = event.state, event.id, False


def lost(state: State, executor: Executor, event: StateLost) -> None:
    """An actor has begun without the state with which it was to begin."""
    actor = executor.actor
    if actor is None or actor.state != CREATING:
        return
    actor.saved, actor.number, actor.base, actor.recalls = None, b"", b"", False
    actor.creation.call.kept = ()
    text = (
        f"the saved state of {actor.creation.function.spec.name} cannot be read: {event.problem}. It is made anew, and "
        "its calls are run again."
    )
    notes.tell(state, notes.WARNING, JOURNAL, text, executor.rank)


def lives_again(actor: Actor) -> None:
    """The actor will be created once more: with the last state that there is."""
    if actor.key:
        actor.life += 1
        actor.recorded = 0
        actor.base, actor.unsaved_why, actor.is_changed = actor.number, "", False
        actor.creation.call.kept = (actor.saved,) if actor.saved is not None else ()


def announce_end(state: State, now: int) -> None:
    """Have all states saved that have changed. Calls that were not sent yet are not, or there would be no end."""
    state.is_ending = True
    state.end_us = now if state.end_us is None else min(now, state.end_us)
    for queue in state.queues.values():
        if queue.timed is not None:
            mark_dirty(state, queue)  # what cannot finish by then is not started any more
    for actor in state.actors.values():
        if actor.executor is not None and _may_save(actor):
            state.to_client(actor.executor.id, SaveRequested())


def unsaved(state: State) -> int:
    """How many actors have a state that can be saved and has changed since it was, or may be about to."""
    return sum(
        actor.executor is not None and _may_save(actor) and (actor.is_changed or bool(actor.executor.in_hand))
        for actor in state.actors.values()
    )


def holds_back(state: State, actor: Actor) -> bool:
    """Whether no calls are sent: before the job ends the actor is to save its state; or the journal is yet to answer.

    What it is asked now it answers before the next decision. Till then no call is to overtake another.
    """
    if not actor.key:
        return False
    asked = state.effects.journal if actor.recalls else ()
    is_asked = any(type(effect) is Recall and effect.actor == actor.id for effect in asked)
    return is_asked or (state.is_ending and not actor.unsaved_why)


def _may_save(actor: Actor) -> bool:
    return actor.state in (CREATING, ALIVE) and bool(actor.key) and not actor.unsaved_why


def _life(actor: Actor) -> bytes:
    return digest(actor.id + actor.life.to_bytes(8, "little"), LIFE_BYTES)


def _can_be_kept(value: Value) -> bool:
    return not value.holds and (value.stored is None or bool(value.file))


def _kept(value: Value) -> Kept:
    if value.stored is None:
        return Kept(value.data, is_error=value.is_error)
    return Kept(b"", value.file, value.stored.size, value.digest)
