"""What clients may not say: an executor that does is ended, and the rest of the job is untouched."""

from typing import Any, cast

import pytest

from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.gpu.device import PROGRAM
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import ReadyFailed, StopExecutor
from mpi_runtime.scheduler.protocol.events import (
    STREAMING,
    BundleSpec,
    Call,
    Consumed,
    Done,
    Faulted,
    GangSpec,
    GroupRequested,
    NamedActorRequested,
    Put,
    Query,
    RefusedError,
    Returned,
    Spec,
    Stored,
    TaskSpec,
    Titled,
    Value,
    Yielded,
)
from mpi_runtime.scheduler.protocol.questions import NamedActor, NodeOfRank, Nodes
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, Fetched, FrameRefused, RankJoined, RankLost
from tests.builders import DRIVER, UNIT, Cluster, spec_of
from tests.checks import executors as invariants

ID, OTHER = b"i" * 16, b"o" * 16
LAST = b"\xff" * 16
SPEC = spec_of(77, TaskSpec, "g", b"", UNIT)
MANY = spec_of(78, TaskSpec, "many", b"", UNIT, num_returns=3)
PLACE = Stored(0, 64, 100)
TWICE = (("disk", 1), ("disk", 1))
ORDER = "asks for custom resources that are not in order"
ALL_OF_IT = "a bundle asks for memory of GPUs, and has that of its GPUs"


def refusal(cluster: Cluster, executor: int) -> str:
    """What the executor was refused for; empty: it was not."""
    found = cluster.state.executors[executor].refusal
    return found.why.removeprefix("sent a frame that cannot be read: ") if found is not None else ""


def say(cluster: Cluster, client: int, events: list[Any], ended: int | None = None) -> None:
    """A client says these in a frame that ends so many calls."""
    decoded = codec.from_client.decode(codec.encode(events))
    cluster.scheduler.handle(client, decoded, cluster.now, ended)


WRONG: list[tuple[list[Any], str]] = [
    ([Call(ID, 99, b"")], "a call of function 99, which nobody has sent"),
    ([SPEC, Call(ID, 77, b""), Call(ID, 77, b"")], f"{ID.hex()} exists already"),
    ([MANY, Call(LAST, 78, b"")], f"there are no 3 ids after {LAST.hex()}"),
    ([SPEC, MANY, Call(b"i" * 15 + b"j", 77, b""), Call(ID, 78, b"")], f"one of 3 ids after {ID.hex()} exists already"),
    ([Put(ID, Value(b"")), Put(ID, Value(b""))], f"{ID.hex()} exists already"),
    ([Put(ID, Value(b"", Stored(5, 0, 9)))], "there is no rank 5"),
    ([Put(ID, Value(b"", PLACE)), Put(OTHER, Value(b"", PLACE))], "another object lies at offset 64 of rank 0"),
    ([Returned(ID, [Value(b"", PLACE), Value(b"", PLACE)], 1)], "two values lie in one place"),
    ([GroupRequested(ID, [BundleSpec(Request(1))], "SOMEHOW", b"")], "'SOMEHOW' is not a strategy"),
    ([GroupRequested(ID, [BundleSpec(Request(1, gpu_memory=5))], "PACK", b"")], ALL_OF_IT),
    ([GroupRequested(ID, [BundleSpec(Request(custom=TWICE))], "PACK", b"")], f"a bundle {ORDER}"),
    ([Spec(79, TaskSpec(), "h", b"", Request(custom=TWICE))], f"h {ORDER}"),
    ([Spec(79, TaskSpec(alternatives=(Request(custom=TWICE),)), "h", b"")], f"h {ORDER}"),
    (
        [Spec(79, TaskSpec(alternatives=(Request(1),)), "h", b"", gang=GangSpec(2))],
        "h has alternatives, which only tasks without a place or ranks may have",
    ),
    ([NamedActorRequested(1, "", "name", b"", False, Call(ID, 99, b""))], "only an actor can have a name"),
    ([SPEC, NamedActorRequested(1, "", "name", b"", False, Call(ID, 77, b""))], "only an actor can have a name"),
    ([SPEC, Call(ID, 77, b""), Consumed(ID, 3)], "items are taken of a call that yields none"),
    ([Query(1, NodeOfRank(9))], "there is no rank 9"),
]


@pytest.mark.parametrize(("returns", "values"), [(0, 2), (1, 2), (3, 2), (3, 4)])
def test_a_call_ends_with_as_many_values_as_it_has_or_with_one_error(returns: int, values: int) -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(num_returns=returns)
        executor = cluster.placed(id)
        say(cluster, executor, [Returned(id, [Value(b"")] * values, 1)])
        assert refusal(cluster, executor) == "a call of f ends as it cannot"
        cluster.forget()


@pytest.mark.parametrize(("events", "problem"), WRONG)
def test_an_executor_that_says_it_is_ended(events: list[Any], problem: str) -> None:
    with Cluster().node(cpus=2) as cluster:
        executor = cluster.placed(cluster.submit())
        say(cluster, executor, events)
        assert refusal(cluster, executor) == problem
        effects = cluster.scheduler.decide(cluster.now)
        assert StopExecutor(executor, force=True) in effects.ranks[0]
        assert len(effects.notes) == 1
        assert f"executor {executor} " in effects.notes[0].text
        assert problem in effects.notes[0].text
        invariants.check(cluster.state)
        cluster.forget()


@pytest.mark.parametrize(("events", "problem"), WRONG)
def test_the_driver_that_says_it_is_refused(events: list[Any], problem: str) -> None:
    with Cluster().node(cpus=2) as cluster, pytest.raises(RefusedError) as caught:
        say(cluster, DRIVER, events)
    assert problem in str(caught.value) or "the driver ends a call" in str(caught.value)


@pytest.mark.parametrize(
    "event",
    [
        Done(ID, b"", 1),
        Returned(ID, [Value(b"")], 1),
        Titled("title"),
        Faulted("f", "cudaErrorUnknown", PROGRAM, True, ""),
        Yielded(ID, 0, OTHER, Value(b"")),
    ],
)
def test_the_driver_does_not_say_what_executors_do(event: Any) -> None:
    with Cluster().node() as cluster, pytest.raises(RefusedError, match=r"the driver"):
        say(cluster, DRIVER, [event])


@pytest.mark.parametrize(
    ("num_returns", "event"),
    [
        (3, Done(ID, b"", 1)),
        (3, Returned(ID, [Value(b""), Value(b"")], 1)),
        (1, Yielded(ID, 0, OTHER, Value(b""))),
        (STREAMING, Yielded(ID, 1, OTHER, Value(b""))),
        (STREAMING, Yielded(ID, 0, ID, Value(b""))),
    ],
)
def test_ends_and_items_that_cannot_be(num_returns: int, event: Any) -> None:
    with Cluster().node() as cluster:
        spec = cluster.spec(num_returns=num_returns)
        cluster.client_says(DRIVER, spec, Call(ID, spec.id, b""))
        executor = cluster.placed(ID)
        say(cluster, executor, [event])
        assert refusal(cluster, executor)
        assert list(cluster.state.executors[executor].assigned) == [ID]
        cluster.died(executor, ID, "was killed")
        cluster.forget()


@pytest.mark.parametrize("event", [Done(ID, b"", 1), Returned(ID, [Value(b"")], 1)])
def test_a_call_that_has_said_that_another_has_ended_has_run(event: Any) -> None:
    with Cluster().node(cpus=1) as cluster:
        call = cluster.submit(max_retries=0)
        executor = cluster.placed(call)
        say(cluster, executor, [event], ended=1)
        assert refusal(cluster, executor) == "a call ends that it does not have"
        cluster.forget()
        dies(cluster, executor, b"")  # its agent thinks that it has ended
        (failed,) = [effect for _, _, effect in cluster.recorded if isinstance(effect, ReadyFailed)]
        assert (failed.id, failed.code) == (call, "WorkerCrashedError")
        cluster.forget()


def test_what_an_executor_ends_is_counted() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.submit(max_retries=1), cluster.submit(max_retries=1)
        one, two = cluster.placed(first), cluster.placed(second)
        say(cluster, one, [Done(first, b"value", 1)], ended=1)
        assert not refusal(cluster, one)
        say(cluster, two, [Done(second, b"value", 1)], ended=0)
        assert refusal(cluster, two) == "1 call(s) end in it, and its header counts 0"
        cluster.forget()


def test_what_was_said_before_counts_and_nothing_after() -> None:
    with Cluster().node(cpus=1) as cluster:
        first = cluster.submit(max_retries=1)
        executor = cluster.placed(first)
        say(cluster, executor, [Put(ID, Value(b"")), Call(OTHER, 99, b""), Done(first, b"value", 1)], ended=1)
        assert ID in cluster.state.objects
        say(cluster, executor, [Done(first, b"value", 1)], ended=1)
        say(cluster, executor, [Put(OTHER, Value(b""))], ended=0)
        refused = cluster.state.executors[executor].refusal
        assert refused is not None
        assert refused.ends == 2
        assert OTHER not in cluster.state.objects
        assert cluster.state.executors[executor].assigned
        cluster.forget()


def dies(cluster: Cluster, executor: int, running: bytes) -> None:
    """The executor that was refused is gone."""
    cluster.scheduler.handle_rank(ExecutorDied(executor, running, "was killed by signal 9"), cluster.now)
    cluster.decide()


def sent_ahead(cluster: Cluster, number: int, **fields: Any) -> tuple[int, list[bytes]]:
    """An executor with so many short calls in hand, and these."""
    known = cluster.submit(**fields)
    cluster.done(cluster.placed(known), known, us=1)
    calls = cluster.submit_many(number, **fields)
    executor = cluster.placed(calls[0])
    assert list(cluster.state.executors[executor].assigned) == calls
    return executor, calls


def test_calls_whose_ends_were_dropped_have_run() -> None:
    with Cluster().node(cpus=1) as cluster:
        executor, calls = sent_ahead(cluster, 4)
        cluster.scheduler.handle_rank(FrameRefused(executor, "junk", ended=1), cluster.now)
        say(cluster, executor, [Done(calls[1], b"", 1)], ended=1)
        cluster.forget()
        dies(cluster, executor, b"")
        failed = [effect for _, _, effect in cluster.recorded if isinstance(effect, ReadyFailed)]
        assert [(one.id, one.code) for one in failed] == [(id, "WorkerCrashedError") for id in calls[:2]]
        assert "sent a frame that cannot be read: junk" in failed[0].message
        assert all(cluster.state.objects[id].task is not None for id in calls[2:])
        cluster.forget()


def test_each_call_that_may_have_run_costs_a_retry() -> None:
    with Cluster().node(cpus=1) as cluster:
        executor, calls = sent_ahead(cluster, 3, max_retries=5)
        tasks = [cluster.state.objects[id].task for id in calls]
        cluster.scheduler.handle_rank(FrameRefused(executor, "junk"), cluster.now)
        dies(cluster, executor, calls[1])
        assert [task.retries for task in tasks if task is not None] == [4, 4, 5]
        cluster.forget()


def test_of_many_the_user_is_told_once_in_a_while() -> None:
    with Cluster().node(cpus=5) as cluster:
        executors = [cluster.placed(call) for call in cluster.submit_many(5)]
        for executor in executors[:3]:
            cluster.scheduler.handle_rank(FrameRefused(executor, "junk"), cluster.now)
            cluster.scheduler.handle_rank(FrameRefused(executor, "more junk"), cluster.now)
        assert len(cluster.scheduler.decide(cluster.now).notes) == 1
        cluster.now += 999_999
        cluster.scheduler.handle_rank(FrameRefused(executors[3], "junk"), cluster.now)
        assert cluster.scheduler.decide(cluster.now).notes == []
        cluster.now += 1
        cluster.scheduler.handle_rank(FrameRefused(executors[4], "junk"), cluster.now)
        (note,) = cluster.scheduler.decide(cluster.now).notes
        assert "So did 3 other(s) since the last such line." in note.text
        cluster.forget()


def test_a_reference_that_is_gone_is_not_released_when_its_id_comes_back() -> None:
    with Cluster().node(cpus=1) as cluster:
        gone = ID
        call = cluster.submit(holds=[gone])
        say(cluster, DRIVER, [Put(gone, Value(b"value"))])
        cluster.done(cluster.placed(call), call)
        assert gone in cluster.state.objects
        cluster.forget()


def test_what_ranks_cannot_say() -> None:
    with Cluster().node(cpus=1) as cluster:
        for event in (
            RankJoined(0, 0, "host0", [0], 0, 0, 0, {}, 0),
            Fetched(0, ID, 0),
            Fetched(9, ID, 0),
            RankLost(0),
        ):
            with pytest.raises(RefusedError):
                cluster.scheduler.handle_rank(event, cluster.now)
        cluster.scheduler.handle_rank(FrameRefused(9, "junk"), cluster.now)
        assert cluster.scheduler.decide(cluster.now).notes == []


@pytest.mark.parametrize(
    "event",
    [
        Call(b"short", 1, b""),
        Call(ID, -1, b""),
        Call(ID, 1, b"", (b"short",)),
        Call(ID, 1, b"", actor=b"i" * 17),
        Done(ID, b"", -1),
        Done(ID, b"", 1 << 63),
        Returned(ID, [], 1),
        Put(ID, Value(b"", Stored(0, -1, 1))),
        Put(ID, Value(b"", Stored(0, 0, 0))),
        Spec(1, cast(Any, 3), "f", b""),
        spec_of(1, TaskSpec, "f", b"", cpu=-1),
        spec_of(1, TaskSpec, "f", b"", num_returns=100_001),
        spec_of(1, TaskSpec, "f", b"", num_returns=-3),
        Yielded(ID, 1 << 62, OTHER, Value(b"")),
        Consumed(ID, (1 << 62) + 1),
        GroupRequested(ID, [], "PACK", b""),
    ],
)
def test_numbers_and_ids_out_of_bounds_are_not_decoded(event: Any) -> None:
    with pytest.raises(BadFrameError):
        codec.from_client.decode(codec.encode([event]))


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"\x91\x93\x0c\x01\xa1\xff", b"\x91" * 100_000, b"\x90\x90"])
def test_junk_is_not_decoded(junk: bytes) -> None:
    with pytest.raises(BadFrameError, match=r"the frame of \d+ bytes starts with b'"):
        codec.from_client.decode(junk)


@pytest.mark.parametrize(
    "question",
    [
        Query(7, 5),  # type: ignore[arg-type]
        Query(7, Nodes("text")),  # type: ignore[arg-type]
        Query(7, NamedActor("", 2)),  # type: ignore[arg-type]
        NamedActorRequested(7, 123, "name", b"", False, Call(ID, 1, b"")),  # type: ignore[arg-type]
        GroupRequested(ID, [BundleSpec(Request(-1))], "PACK", b"", "", "name", 7),
        GroupRequested(ID, [BundleSpec(Request(-1))], "PACK", b""),
    ],
)
def test_a_question_that_would_not_be_decoded_is_refused_before_it_is_sent(question: Any) -> None:
    with pytest.raises(TypeError, match=r"must not be .*: Expected `"):
        codec.check(question)
    with pytest.raises(BadFrameError, match="Expected `"):
        codec.from_client.decode(codec.encode([question]))


@pytest.mark.parametrize("ranks", [0, 3])
def test_scattered_arguments_need_a_gang_and_an_object_for_each_rank(ranks: int) -> None:
    with Cluster().node(cpus=4) as cluster:
        executor = cluster.placed(cluster.submit())
        spec = cluster.spec(ranks=ranks) if ranks else cluster.spec()
        say(cluster, executor, [spec, Call(ID, spec.id, b"", (OTHER, LAST), scattered=1)])
        assert "scattered arguments" in refusal(cluster, executor)
        assert ID not in cluster.state.objects
