"""Saved states of actors, event by event: which calls they contain, who begins with them, and when none is of use."""

from __future__ import annotations

from typing import Any

import pytest

from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Discard, Fresh, Recall, Record, SaveRequested
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Call,
    Done,
    EndAnnounced,
    Kept,
    MethodSpec,
    Returned,
    Saved,
    StateLost,
    Stored,
    Value,
)
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, ExecutorStarted, Recalled
from tests.builders import spec_of
from tests.checks import executors as invariants
from tests.unit.scheduler.test_journaling import ARGS, CODE, DRIVER, Job, id_of

ACTOR_ID = 50
FIRST, SECOND = (bytes([number]) * 16 for number in (1, 2))
SMALL = Kept(b"state")


class Keeper(Job):
    """An actor that saves its state, and may be restarted, in executor 1."""

    def __init__(self, recalls: bool = False) -> None:
        self.messages: list[tuple[int, Any]] = []
        self.notes: list[str] = []
        super().__init__(recalls)
        self.tell(
            DRIVER,
            spec_of(6, ActorSpec, "Keeper", b"code", 10_000, code=CODE, max_restarts=3),
            spec_of(7, MethodSpec, "Keeper.add", b"", max_retries=3),
            spec_of(8, MethodSpec, "Keeper.look", b"", keeps_state=True),
            Call(id_of(ACTOR_ID), 6, b"p", digest=ARGS),
        )

    def decide(self) -> None:
        effects = self.scheduler.decide(self.now)
        invariants.check(self.scheduler.state)
        self.journal += effects.journal
        self.notes += [note.text for note in effects.notes]
        self.messages += [(to, one) for to, messages in effects.clients.items() for one in messages]

    def created(self, executor: int = 1) -> Keeper:
        self.tell_rank(ExecutorStarted(executor, 4000 + executor))
        self.tell(executor, Done(id_of(ACTOR_ID), b"", 100))
        return self

    def add(self, number: int, spec: int = 7, client: int = DRIVER) -> None:
        digest = b"" if spec == 8 else b"%16d" % number
        self.tell(client, Call(id_of(number), spec, b"p", actor=id_of(ACTOR_ID), digest=digest))

    def added(self, number: int, *values: Value, executor: int = 1, raised: bool = False) -> None:
        self.tell(executor, Returned(id_of(number), list(values) or [Value(b"value")], 100, raised))

    def sent(self) -> list[int]:
        """Which calls executors were given."""
        return [int.from_bytes(one.id, "big") for to, one in self.messages if type(one) is Call and to != DRIVER]

    def effects(self, kind: type) -> list[Any]:
        return [one for one in self.journal if type(one) is kind]

    def is_saved(self) -> bool:
        """Whether a state that the actor saves now is taken."""
        before = len(self.effects(Checkpoint))
        self.tell(1, Saved(SECOND, Kept(b"", "large", 1 << 20)))
        is_taken = len(self.effects(Checkpoint)) > before
        assert [one.file for one in self.effects(Discard)] == ["large"] * (not is_taken)
        return is_taken


def test_a_state_contains_the_calls_that_were_recorded_before_it() -> None:
    job = Keeper().created()
    for number in (1, 2):
        job.add(number)
        job.added(number)
    job.tell(1, Saved(FIRST, SMALL))
    job.add(3)
    job.added(3)
    job.tell(1, Saved(SECOND, SMALL))
    records, states = job.effects(Record), job.effects(Checkpoint)
    assert [(one.name, one.values) for one in records] == [("Keeper.add", [Kept(b"value")])] * 3
    assert [(one.calls, one.base, one.number, one.state) for one in states] == [
        (2, b"", FIRST, SMALL),
        (3, b"", SECOND, SMALL),
    ]
    assert {one.life for one in [*records, *states]} == {states[0].life}
    assert job.scheduler.state.totals.recorded == 2


def test_a_life_after_a_crash_begins_with_the_last_state_and_is_another_one() -> None:
    job = Keeper().created()
    job.add(1)
    job.added(1)
    job.tell(1, Saved(FIRST, SMALL))
    job.tell_rank(ExecutorDied(1, b"", "was killed"))
    job.created(2)
    assert [one.kept for to, one in job.messages if type(one) is Call and to == 2] == [(SMALL,)]
    job.add(2)
    job.added(2, executor=2)
    job.tell(2, Saved(SECOND, SMALL))
    first, second = job.effects(Checkpoint)
    assert (second.base, second.calls, second.key) == (FIRST, 1, first.key)
    assert second.life != first.life
    assert [one.life for one in job.effects(Record)] == [first.life, second.life]


@pytest.mark.parametrize("is_partial", [False, True])
def test_after_a_call_that_has_created_an_actor_no_state_is_saved(is_partial: bool) -> None:
    job = Keeper().created()
    job.add(1)
    if is_partial:
        job.tell(1, Call(id_of(60), 4, b"p"))
    job.added(1)
    assert len(job.effects(Record)) == (not is_partial)
    assert job.is_saved() is not is_partial


def test_an_actor_whose_constructor_has_created_another_one_is_not_saved() -> None:
    job = Keeper()
    job.tell_rank(ExecutorStarted(1, 4001))
    job.tell(1, Call(id_of(60), 4, b"p"), Done(id_of(ACTOR_ID), b"", 100))
    assert len(job.notes) == 1
    assert "its constructor has called or created actors, or has left calls behind" in job.notes[0]
    assert not job.is_saved()


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        (Value(b"", Stored(0, 64, 1 << 20), file="large"), True),
        (Value(b"", Stored(0, 64, 1 << 20)), False),
        (Value(b"value", holds=[id_of(ACTOR_ID)]), False),
    ],
)
def test_after_a_value_that_no_later_run_can_read_no_state_is_saved(value: Value, is_kept: bool) -> None:
    job = Keeper().created()
    job.add(1)
    job.added(1, value)
    assert job.is_saved() is is_kept
    assert [one.values[0].file for one in job.effects(Record)] == ["large"] * is_kept


def test_an_error_is_recorded_as_one() -> None:
    job = Keeper().created()
    job.add(1)
    job.added(1, Value(b"error", is_error=True), raised=True)
    assert [one.values for one in job.effects(Record)] == [[Kept(b"error", is_error=True)]]


def test_a_method_without_a_record_ends_saving_unless_it_keeps_the_state() -> None:
    job = Keeper().created()
    job.add(1, spec=8)
    job.added(1)
    assert job.is_saved()
    job.tell(DRIVER, Call(id_of(2), 7, b"p", actor=id_of(ACTOR_ID)))  # it yields, or runs any function
    job.added(2)
    job.tell(1, Saved(FIRST, SMALL))
    assert len(job.effects(Checkpoint)) == 1
    assert len(job.notes) == 1
    assert (
        "the state of Keeper is not saved from now on: no later run can know the effect of Keeper.add" in job.notes[0]
    )


def test_it_is_said_once_for_a_class_that_no_state_is_saved_any_more() -> None:
    job = Keeper().created()
    for number in (1, 2):
        job.add(number)
        job.added(number, Value(b"", Stored(0, 64 * number, 1 << 20)))
    job.tell(DRIVER, Call(id_of(3), 7, b"p", actor=id_of(ACTOR_ID)))
    job.added(3)
    assert len(job.notes) == 1, "neither for the same reason nor for another one"
    assert "has returned references, or a large error" in job.notes[0]
    assert job.effects(Record) == []


def test_a_life_that_begins_anew_may_save_again() -> None:
    job = Keeper().created()
    job.add(1)
    job.added(1, Value(b"", Stored(0, 64, 1 << 20)))
    job.tell_rank(ExecutorDied(1, b"", "was killed"))
    job.created(2)
    job.tell(2, Saved(FIRST, SMALL))
    assert len(job.effects(Checkpoint)) == 1


def test_the_creation_is_recalled_and_calls_that_its_state_contains_end_at_once() -> None:
    job = Keeper(recalls=True)
    creation = job.asked()
    assert (creation.id, creation.is_actor) == (id_of(ACTOR_ID), True)
    job.add(1)
    job.tell_rank(Recalled(id_of(ACTOR_ID), [SMALL], FIRST))
    job.tell_rank(ExecutorStarted(1, 4001))
    assert [one.kept for to, one in job.messages if type(one) is Call and to == 1] == [(SMALL,)]
    job.tell(1, Done(id_of(ACTOR_ID), b"", 100))
    first = job.asked()
    assert (first.id, first.actor, first.is_actor) == (id_of(1), id_of(ACTOR_ID), False)
    job.tell_rank(Recalled(id_of(1), [Kept(b"before")]))
    job.add(2)
    assert job.asked().id == id_of(2)
    job.tell_rank(Recalled(id_of(2)))
    assert job.sent() == [ACTOR_ID, 2], "the first was not run"
    job.added(2)
    job.tell(1, Saved(SECOND, SMALL))
    [state] = job.effects(Checkpoint)
    assert (state.base, state.calls) == (FIRST, 1)


def test_no_call_overtakes_one_of_which_the_journal_is_asked() -> None:
    job = Keeper(recalls=True)
    job.asked()
    job.tell_rank(Recalled(id_of(ACTOR_ID), [SMALL], FIRST))
    job.created()
    job.add(1)
    job.add(2, spec=8)
    assert {one.id for one in job.effects(Recall)} == {id_of(1)}
    job.tell_rank(Recalled(id_of(1)))
    assert job.sent() == [ACTOR_ID, 1, 2]


def test_without_a_state_no_call_is_asked_for() -> None:
    job = Keeper(recalls=True)
    job.asked()
    job.tell_rank(Recalled(id_of(ACTOR_ID)))
    job.created()
    job.add(1)
    assert job.effects(Recall) == []
    assert job.sent() == [ACTOR_ID, 1]


def test_the_journal_is_told_of_actors_that_begin_without_a_state() -> None:
    first = Keeper().created()
    [fresh] = first.effects(Fresh)
    assert fresh.id == id_of(ACTOR_ID)
    first.tell_rank(ExecutorDied(1, b"", "was killed"))
    first.created(2)
    assert first.effects(Fresh) == [fresh], "a further life is not another actor"
    for answer, told in ((Recalled(id_of(ACTOR_ID)), [fresh]), (Recalled(id_of(ACTOR_ID), [SMALL], FIRST), [])):
        job = Keeper(recalls=True)
        job.asked()
        assert job.effects(Fresh) == []
        job.tell_rank(answer)
        assert job.effects(Fresh) == told


def test_an_actor_that_could_not_load_its_state_begins_anew_and_its_calls_are_run() -> None:
    job = Keeper(recalls=True)
    job.asked()
    job.tell_rank(Recalled(id_of(ACTOR_ID), [SMALL], FIRST))
    job.tell_rank(ExecutorStarted(1, 4001))
    job.tell(1, StateLost("it is damaged"), Done(id_of(ACTOR_ID), b"", 100))
    job.add(1)
    assert job.effects(Recall) == []
    job.added(1)
    job.tell(1, Saved(SECOND, SMALL))
    assert [one.base for one in job.effects(Checkpoint)] == [b""]
    assert len(job.notes) == 1
    assert "the saved state of Keeper cannot be read: it is damaged." in job.notes[0]


def test_before_the_end_changed_states_are_saved_and_no_call_is_sent_any_more() -> None:
    job = Keeper().created()
    state = job.scheduler.state
    assert checkpoints.unsaved(state) == 0
    job.add(1)
    assert checkpoints.unsaved(state) == 1, "a call is in hand"
    job.added(1)
    assert checkpoints.unsaved(state) == 1
    job.tell(DRIVER, EndAnnounced())
    assert [(to, type(one)) for to, one in job.messages if type(one) is SaveRequested] == [(1, SaveRequested)]
    job.add(2)
    assert job.sent() == [ACTOR_ID, 1]
    job.tell(1, Saved(FIRST, SMALL))
    assert checkpoints.unsaved(state) == 0
    assert job.sent() == [ACTOR_ID, 1]
    assert state.end_us is not None
    assert state.end_us <= job.now


def test_an_actor_whose_state_is_not_saved_goes_on_before_the_end() -> None:
    job = Keeper().created()
    job.add(1)
    job.added(1, Value(b"", Stored(0, 64, 1 << 20)))
    job.tell(DRIVER, EndAnnounced())
    job.add(2)
    assert job.sent() == [ACTOR_ID, 1, 2]
    assert checkpoints.unsaved(job.scheduler.state) == 0
    assert not [one for _, one in job.messages if type(one) is SaveRequested]
