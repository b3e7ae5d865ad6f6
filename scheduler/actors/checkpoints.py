"""Saved states of actors: which calls a state contains, and which actors start from it.

An actor whose class has `save_state` and `load_state` saves its state now and then, between calls. A life of the actor
lasts from one creation to the next. The calls of a life are recorded as they end. A state contains the calls that were
recorded before it, and those in the state with which the life began. An executor reports ends and states in one order,
so the executor and the head mean the same calls.

In the next run the creation is recognised by its class and arguments, and begins with the last state. The journal
records actors that begin without one, so that none of several equal actors gets the state of another. Then the journal
is asked for each call of the actor. A call that the state contains ends at once, with the value that it returned then.
Every other call is run. So each call counts once in the state, in whatever order the calls come. When a state is of no
use, and why, is in docs/decisions/0502.
"""

from __future__ import annotations

from mpi_runtime.scheduler.dispatch import deadline
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.protocol.effects import JOURNAL, Checkpoint, Discard, Fresh, Recall, SaveRequested
from mpi_runtime.scheduler.protocol.events import Done, Returned, Saved, StateLost
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import Recalled
from mpi_runtime.scheduler.records.lifecycle import ALIVE, CREATING, READY
from mpi_runtime.scheduler.records.parts import Saves
from mpi_runtime.scheduler.records.records import Actor, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import journaling

LIFE_BYTES = 16


def creation_ready(state: State, task: Task) -> bool:
    """Find the key of an actor that saves its state. Returns whether the journal is asked."""
    actor = task.actor
    assert actor is not None
    if actor.saves is not None:
        return False
    key = journaling.key_of(state, task)
    if not key:
        task.call.digest = b""  # its executor saves nothing then
        log_unsaved(state, actor, "its constructor was given references, or handles of actors")
        return False
    actor.saves = Saves(key)
    journaling.journaled(task).key = key
    if not state.recalls:
        state.effects.journal.append(Fresh(actor.id, key))
    return state.recalls and journaling.ask(state, task)


def creation_recalled(state: State, task: Task, event: Recalled) -> None:
    """Take the answer of the journal: a saved state, or none."""
    actor = task.actor
    assert actor is not None
    saves = actor.saves
    if saves is None:
        return
    if not event.values:
        state.effects.journal.append(Fresh(actor.id, saves.key))
        return
    task.call.kept = tuple(event.values)
    saves.last, saves.recalls = event.values[0], True
    saves.number = saves.base = event.number


def created(state: State, actor: Actor) -> None:
    """Note that an actor is created. If it began with a state, ask the journal for the waiting calls."""
    if actor.saves is not None and not journaling.journaled(actor.creation).is_whole:
        give_up(state, actor, actor.saves, "its constructor has called or created actors, or has left calls behind")
    for task in [task for line in actor.callers.values() for task in line]:
        ask(state, actor, task)


def ask(state: State, actor: Actor, task: Task) -> None:
    """Ask the journal whether the state contains this call, if the call could run now."""
    recalls = actor.saves is not None and actor.saves.recalls
    if not recalls or actor.state != ALIVE or task.state != READY or not task.call.digest:
        return
    own = journaling.journaled(task)
    if own.key:
        return
    own.key = journaling.key_of(state, task)
    journaling.ask(state, task, actor.id)


def method_ended(state: State, task: Task, event: Done | Returned) -> None:
    """Record an ended call, which the next state will contain. If that is impossible, save no state any more."""
    actor = task.actor
    if actor is None or actor.saves is None or task.call.kept:
        return
    saves = actor.saves
    saves.is_changed = True
    if saves.unsaved_why:
        return
    found = journaling.record(state, task, event, _life(actor, saves))
    if isinstance(found, str):
        give_up(state, actor, saves, found)
    else:
        state.effects.journal.append(found)
        saves.recorded += 1


def other_ended(state: State, task: Task) -> None:
    """Save no state any more if an ended call, which is not recorded, may have changed it."""
    actor = task.actor
    if actor is None or actor.saves is None or task.call.digest or task.function.spec.keeps_state:
        return
    name = task.function.spec.name
    give_up(
        state, actor, actor.saves,
        f"no later run can know the effect of {name}: it yields values, or runs any function. If it does not change "
        "the state, declare it with @method(journal=False)",
    )  # fmt: skip


def give_up(state: State, actor: Actor, saves: Saves, why: str) -> None:
    """Save no state of this actor any more, and log why."""
    if not saves.unsaved_why:
        saves.unsaved_why = why
        log_unsaved(state, actor, why)


def log_unsaved(state: State, actor: Actor, why: str) -> None:
    """Log why the state of an actor is not saved."""
    name = actor.creation.function.spec.name
    if (subject := f"{name}: {why}") not in state.logs.once:
        state.logs.once.add(subject)
        text = (
            f"the state of {name} is not saved from now on: {why}. The next run begins with the last saved state, "
            "or from scratch, and runs the other calls again."
        )
        notes.log(state, notes.WARNING, JOURNAL, text)


def saved(state: State, client: Client, event: Saved, now: int) -> None:
    """Record the saved state of an actor."""
    executor = client.as_executor()
    actor = executor.actor
    saves = actor.saves if actor is not None else None
    if actor is None or saves is None or saves.unsaved_why or actor.executor is not executor:
        if event.state.file:
            state.effects.journal.append(Discard(event.state.file))
        return
    name = actor.creation.function.spec.name
    state.totals.recorded += 1
    state.effects.journal.append(
        Checkpoint(actor.id, saves.key, name, event.id, _life(actor, saves), saves.base, saves.recorded, event.state)
    )
    saves.last, saves.number, saves.is_changed = event.state, event.id, False


def lost(state: State, client: Client, event: StateLost, now: int) -> None:
    """Note that an actor could not load its saved state, and has begun without."""
    executor = client.as_executor()
    actor = executor.actor
    if actor is None or actor.state != CREATING:
        return
    if actor.saves is not None:
        actor.saves = Saves(actor.saves.key, life=actor.saves.life, recorded=actor.saves.recorded)
    actor.creation.call.kept = ()
    text = (
        f"the saved state of {actor.creation.function.spec.name} cannot be read: {event.problem}. It starts from "
        "scratch, and its calls are run again."
    )
    notes.log(state, notes.WARNING, JOURNAL, text, executor.rank)


def lives_again(actor: Actor) -> None:
    """Begin a further life of an actor, with its last state."""
    saves = actor.saves
    if saves is not None:
        saves.life += 1
        saves.recorded = 0
        saves.base, saves.unsaved_why, saves.is_changed = saves.number, "", False
        actor.creation.call.kept = (saves.last,) if saves.last is not None else ()


def announce_end(state: State, now: int) -> list[Actor]:
    """Ask for all changed states. Returns the actors that are asked.

    Calls that were not sent to these are not sent any more. The caller takes back those that were sent ahead.
    """
    state.is_ending = True
    deadline.end_early(state, now)
    asked = [(one, one.executor) for one in state.actors.values() if one.executor is not None and _may_save(one)]
    for _, executor in asked:
        state.to_client(executor.id, SaveRequested())
    return [actor for actor, _ in asked]


def unsaved(state: State) -> int:
    """The number of actors that have yet to save: their state has changed, or an assigned call may change it."""
    return sum(
        actor.executor is not None and _may_save(actor) and (actor.saves.is_changed or bool(actor.executor.assigned))
        for actor in state.actors.values()
        if actor.saves is not None
    )


def holds_back(state: State, actor: Actor) -> bool:
    """Whether no calls are sent to an actor: it saves its state before the job ends, or the journal has yet to answer.

    The journal answers before the next decision. Until then no call may overtake another. Answers about calls that were
    cancelled meanwhile do not count.
    """
    if actor.saves is None:
        return False
    asked = state.effects.journal if actor.saves.recalls else ()
    ids = [effect.id for effect in asked if type(effect) is Recall and effect.actor == actor.id]
    is_asked = any((found := state.objects.get(id)) is not None and found.task is not None for id in ids)
    return is_asked or (state.is_ending and not actor.saves.unsaved_why)


def _may_save(actor: Actor) -> bool:
    return actor.state in (CREATING, ALIVE) and actor.saves is not None and not actor.saves.unsaved_why


def _life(actor: Actor, saves: Saves) -> bytes:
    return digest(actor.id + saves.life.to_bytes(8, "little"), LIFE_BYTES)
