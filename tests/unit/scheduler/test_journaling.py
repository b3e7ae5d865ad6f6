"""Which calls are recorded and recalled, event by event."""

from typing import Any

import pytest

from mpi_runtime.core.transport import codec
from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import (
    Checkpoint,
    Ready,
    ReadyFailed,
    ReadyStored,
    Recall,
    Record,
    SaveRequested,
    TakeBack,
)
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Call,
    CancelRequested,
    Done,
    EndAnnounced,
    JournalFailed,
    Kept,
    MethodSpec,
    Put,
    Query,
    Released,
    Returned,
    Saved,
    Stored,
    TaskSpec,
    Value,
)
from mpi_runtime.scheduler.protocol.questions import Explain
from mpi_runtime.scheduler.protocol.rank_events import (
    ExecutorDied,
    ExecutorStarted,
    JobBegan,
    RankJoined,
    Recalled,
    TakenBack,
)
from mpi_runtime.scheduler.records.state import Effects
from tests.builders import spec_of
from tests.checks import executors as invariants

DRIVER = 0
ARGS = b"a" * 16
CODE = b"c" * 16


def id_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Job:
    """A node with one CPU, and a journal."""

    def __init__(self, recalls: bool = True) -> None:
        self.scheduler = Scheduler()
        self.now = 1_000_000
        self.journal: list[Any] = []
        self.to_driver: list[Any] = []
        self.calls: list[Call] = []
        """What executors were sent."""
        self.scheduler.handle_rank(RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30), self.now)
        self.scheduler.handle_rank(JobBegan(None, True, recalls), self.now)
        self.tell(
            DRIVER, spec_of(1, TaskSpec, "f", b"code", 10_000, code=CODE), spec_of(2, TaskSpec, "g", b"code", 10_000)
        )
        self.tell(DRIVER, spec_of(3, TaskSpec, "pair", b"code", 10_000, num_returns=2, code=CODE, max_retries=3))
        self.tell(DRIVER, spec_of(4, ActorSpec, "A", b"code", 10_000), spec_of(5, MethodSpec, "A.m", b""))

    def tell(self, client: int, *events: Any) -> None:
        self.now += 1000
        self.scheduler.handle(client, codec.from_client.decode(codec.encode(list(events))), self.now)
        self.decide()

    def tell_rank(self, event: Any) -> None:
        self.now += 1000
        self.scheduler.handle_rank(event, self.now)
        self.decide()

    def decide(self) -> None:
        effects = self.scheduler.decide(self.now)
        invariants.check(self.scheduler.state)
        self.journal += effects.journal
        for client, messages in effects.clients.items():
            self.calls += [one for one in messages if type(one) is Call and client != DRIVER]
            self.to_driver += messages if client == DRIVER else []

    def submit(self, number: int, *arguments: int, spec: int = 1, client: int = DRIVER, **more: Any) -> None:
        digest = ARGS if spec in (1, 3) else b""
        holds = [id_of(one) for one in more.pop("holds", ())]
        self.tell(client, Call(id_of(number), spec, b"p", tuple(map(id_of, arguments)), tuple(holds), digest=digest))

    def asked(self) -> Recall:
        [asked] = [one for one in self.journal if isinstance(one, Recall)]
        self.journal.remove(asked)
        return asked

    def recorded(self) -> list[Record]:
        return [one for one in self.journal if isinstance(one, Record)]

    def started(self) -> None:
        self.tell_rank(ExecutorStarted(1, 4001))

    def announce(self) -> Effects:
        """The job is about to end; what is asked for."""
        self.scheduler.handle(DRIVER, [EndAnnounced()], self.now)
        return self.scheduler.decide(self.now)

    def unsaved(self) -> int:
        """How many actors are yet to save their states."""
        return checkpoints.unsaved(self.scheduler.state)


def test_a_small_value_ends_the_call_at_once() -> None:
    job = Job()
    job.submit(1)
    asked = job.asked()
    assert (asked.id, asked.code, asked.name, len(asked.key)) == (id_of(1), CODE, "f", 16)
    assert job.calls == []
    job.tell_rank(Recalled(id_of(1), [Kept(b"value")]))
    assert job.to_driver == [Ready(id_of(1), b"value")]
    assert job.calls == []
    assert job.recorded() == []
    assert job.scheduler.state.finished == 1


@pytest.mark.parametrize("values", [[], [Kept(b"one"), Kept(b"too many")]])
def test_without_its_values_the_call_runs_and_is_recorded(values: list[Kept]) -> None:
    job = Job()
    job.submit(1)
    asked = job.asked()
    job.tell_rank(Recalled(id_of(1), values))
    assert [call.id for call in job.calls] == [id_of(1)]
    job.started()
    job.tell(1, Done(id_of(1), b"value", 500))
    assert job.recorded() == [Record(id_of(1), asked.key, CODE, "f", 500, [Kept(b"value")])]


def test_nobody_is_asked_if_there_are_no_earlier_runs() -> None:
    job = Job(recalls=False)
    job.submit(1)
    assert job.journal == []
    assert [call.id for call in job.calls] == [id_of(1)]


def test_large_values_are_loaded_by_an_executor_and_not_recorded_again() -> None:
    job = Job()
    kept = [Kept(b"small"), Kept(b"", "values/x", 5000, b"d" * 16)]
    job.submit(8, spec=3)
    job.asked()
    job.tell_rank(Recalled(id_of(8), kept))
    assert job.calls[0].kept == tuple(kept)
    job.started()
    loaded = [Value(b"small"), Value(b"", Stored(0, 64, 5000), digest=b"d" * 16)]
    job.tell(1, Returned(id_of(8), loaded, 10))
    assert job.recorded() == []
    assert ReadyStored(id_of(9), 0, 64, 5000) in job.to_driver


def test_a_call_whose_values_could_not_be_loaded_is_recorded() -> None:
    job = Job()
    job.submit(8, spec=3)
    key = job.asked().key
    job.tell_rank(Recalled(id_of(8), [Kept(b"small"), Kept(b"", "values/x", 5000, b"d" * 16)]))
    job.started()
    made = [Value(b"small"), Value(b"", Stored(0, 64, 5000), digest=b"e" * 16, file="values/y")]
    job.tell(1, Returned(id_of(8), made, 10))
    values = [Kept(b"small"), Kept(b"", "values/y", 5000, b"e" * 16)]
    assert job.recorded() == [Record(id_of(8), key, CODE, "pair", 10, values)]


def key_of(*puts: Put, holds: bool = False) -> bytes:
    job = Job()
    job.tell(DRIVER, *puts)
    numbers = [int.from_bytes(put.id, "big") for put in puts]
    if holds:
        job.submit(1, holds=numbers)
    else:
        job.submit(1, *numbers)
    return job.asked().key


@pytest.mark.parametrize("holds", [False, True])
def test_the_key_is_of_values_and_not_of_ids(holds: bool) -> None:
    def put(number: int, value: Value) -> Put:
        return Put(id_of(number), value)

    small, stored = Value(b"v"), Value(b"", Stored(0, 64, 5000), digest=b"d" * 16)
    known = key_of(put(10, small), put(11, stored), holds=holds)
    assert key_of(put(20, small), put(21, stored), holds=holds) == known
    assert key_of(put(20, stored), put(21, small), holds=holds) != known
    assert key_of(put(10, Value(b"w")), put(11, stored), holds=holds) != known
    other = Value(b"", Stored(0, 64, 5000), digest=b"e" * 16)
    assert key_of(put(10, small), put(11, other), holds=holds) != known


def test_a_call_of_an_unknown_value_has_no_key() -> None:
    for value in (Value(b"", Stored(0, 64, 5000)), Value(b"v", holds=[id_of(10)])):
        job = Job()
        job.tell(DRIVER, Put(id_of(10), Value(b"inner")), Put(id_of(11), value))
        job.submit(1, 11)
        assert job.journal == []
        job.started()
        job.tell(1, Done(id_of(1), b"value", 500))
        assert job.recorded() == []


@pytest.mark.parametrize(
    "end",
    [
        Returned(id_of(1), [Value(b"error", is_error=True)], 10, raised=True),
        Returned(id_of(1), [Value(b"v", holds=[id_of(10)])], 10),
        Returned(id_of(1), [Value(b"", Stored(0, 64, 5000), digest=b"d" * 16)], 10),
    ],
)
def test_errors_references_and_values_without_a_file_are_not_recorded(end: Returned) -> None:
    job = Job(recalls=False)
    job.tell(DRIVER, Put(id_of(10), Value(b"inner")))
    job.submit(1)
    job.started()
    job.tell(1, end)
    assert job.recorded() == []


def test_a_task_is_recorded_after_its_children_and_not_before_them() -> None:
    job = Job(recalls=False)
    job.submit(1)
    job.started()
    job.submit(50, spec=2, client=1)
    job.tell(1, Done(id_of(1), b"value", 10))
    assert job.recorded() == [], "the other has not ended"
    job.tell(1, Done(id_of(50), b"value", 10))
    job.submit(2)
    job.submit(51, spec=2, client=1)
    job.tell(DRIVER, CancelRequested(id_of(51), force=False, recursive=True))
    job.tell(1, Done(id_of(2), b"value", 10))
    assert [one.id for one in job.recorded()] == [id_of(2)]


@pytest.mark.parametrize("spec", [4, 5])
def test_a_task_that_changes_an_actor_is_not_recorded(spec: int) -> None:
    job = Job(recalls=False)
    job.submit(60, spec=4)
    job.submit(1)
    executor = next(iter(job.scheduler.state.executors))
    job.tell_rank(ExecutorStarted(executor, 4001))
    job.tell(executor, Done(id_of(60), b"", 10))
    runner = next(one.id for one in job.scheduler.state.executors.values() if id_of(1) in one.assigned)
    job.tell_rank(ExecutorStarted(runner, 4002))
    actor = id_of(60) if spec == 5 else b""
    job.tell(runner, Call(id_of(70), spec, b"", actor=actor))
    job.tell(runner, Done(id_of(1), b"value", 10))
    assert job.recorded() == []


def test_a_call_that_was_cancelled_while_the_journal_is_asked_stays_so() -> None:
    job = Job()
    job.submit(1)
    job.tell(DRIVER, Query(7, Explain(id_of(1))))
    assert "The journal is asked" in str(job.to_driver)
    job.tell(DRIVER, CancelRequested(id_of(1), force=False, recursive=True))
    job.tell_rank(Recalled(id_of(1), [Kept(b"value")]))
    assert job.scheduler.state.failed == 1
    assert job.scheduler.state.finished == 0
    job.tell(DRIVER, Released([id_of(1)]))
    assert job.scheduler.state.objects == {}


def test_a_call_that_loads_its_values_does_so_again_after_a_crash() -> None:
    job = Job()
    kept = [Kept(b"small"), Kept(b"", "values/x", 5000, b"d" * 16)]
    job.submit(8, spec=3)
    job.asked()
    job.tell_rank(Recalled(id_of(8), kept))
    job.started()
    job.tell_rank(ExecutorDied(1, id_of(8), "was killed by signal 9"))
    job.now += 10_000_000
    job.decide()
    assert [call.kept for call in job.calls] == [tuple(kept), tuple(kept)]


def test_an_executor_says_that_a_value_could_not_be_written() -> None:
    job = Job()
    job.submit(1)
    job.tell_rank(Recalled(id_of(1)))
    job.started()
    job.tell(1, JournalFailed("full"))
    assert job.journal[-1] == JournalFailed("full")


def test_before_the_end_of_the_job_an_actor_gives_back_what_it_has_not_begun_and_saves() -> None:
    job = Job(recalls=False)
    job.tell(
        DRIVER,
        spec_of(6, ActorSpec, "Model", b"code", 10_000, code=CODE),
        spec_of(7, MethodSpec, "Model.m", b"", code=CODE),
    )
    model = id_of(20)
    job.tell(DRIVER, Call(model, 6, b"p", digest=ARGS))
    job.started()
    job.tell(1, Done(model, b"", 500))
    for number in (21, 22, 23):
        job.tell(DRIVER, Call(id_of(number), 7, b"p", actor=model, digest=ARGS))
    assert [call.id for call in job.calls] == [model, id_of(21), id_of(22), id_of(23)]
    effects = job.announce()
    assert effects.clients[1] == [SaveRequested()]
    assert effects.ranks[0] == [TakeBack(1, 3)]
    job.tell_rank(TakenBack(1, [id_of(22), id_of(23)]))
    assert len(job.calls) == 4, "and is sent nothing more"
    assert job.unsaved() == 1
    job.tell(1, Done(id_of(21), b"", 500), Saved(b"s" * 16, Kept(b"state")))
    assert job.unsaved() == 0
    [saved] = [one for one in job.journal if isinstance(one, Checkpoint)]
    assert (saved.calls, saved.state) == (1, Kept(b"state"))
    job.tell(DRIVER, CancelRequested(id_of(22), force=False, recursive=True))
    assert [one.code for one in job.to_driver if isinstance(one, ReadyFailed)] == ["TaskCancelledError"]
    assert len(job.calls) == 4


def test_a_call_that_was_cancelled_while_it_is_taken_back_ends() -> None:
    job = Job(recalls=False)
    job.tell(
        DRIVER,
        spec_of(6, ActorSpec, "Model", b"code", 10_000, code=CODE),
        spec_of(7, MethodSpec, "Model.m", b"", code=CODE),
    )
    job.tell(DRIVER, Call(id_of(20), 6, b"p", digest=ARGS))
    job.started()
    job.tell(1, Done(id_of(20), b"", 500))
    for number in (21, 22):
        job.tell(DRIVER, Call(id_of(number), 7, b"p", actor=id_of(20), digest=ARGS))
    job.announce()
    job.tell(DRIVER, CancelRequested(id_of(22), force=False, recursive=True))
    job.tell_rank(TakenBack(1, [id_of(22)]))
    assert [(one.id, one.code) for one in job.to_driver if isinstance(one, ReadyFailed)] == [
        (id_of(22), "TaskCancelledError")
    ]
