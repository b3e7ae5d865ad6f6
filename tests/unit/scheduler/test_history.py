"""What has run: one record for each attempt that ended, in the head's time, and no more than a number of them."""

from collections import deque

import pytest

from mpi_runtime.scheduler.protocol.effects import Fetch
from mpi_runtime.scheduler.protocol.events import CancelRequested, Done, RetrySpec, Returned, Titled, Value
from mpi_runtime.scheduler.protocol.limits import HISTORY_CALLS_MAX
from mpi_runtime.scheduler.protocol.past import (
    CANCELLED,
    RETURNED,
    MoveTimes,
    PastMove,
    PastRun,
    RunNode,
    RunProcess,
    RunTimes,
)
from mpi_runtime.scheduler.protocol.questions import Actors, History, Report, Statistics
from mpi_runtime.scheduler.protocol.rank_events import Fetched, RoomWanted, Spilled
from mpi_runtime.scheduler.protocol.window_questions import Glance, MovesFrom
from tests.builders import DRIVER, Cluster


def runs(cluster: Cluster) -> list[PastRun]:
    return cluster.ask(History()).runs


def test_a_call_with_its_times() -> None:
    with Cluster().node() as cluster:
        first, second = cluster.submit_many(2, name="work")
        executor = cluster.placed(first)
        cluster.started(executor)
        cluster.later(1000)
        cluster.client_says(executor, Done(first, b"", 500, start_us=1_000_300))
        cluster.placed(second)
        cluster.client_says(executor, Returned(second, [Value(b"")], 200, start_us=1_000_800))
        cluster.forget()
        one, two = runs(cluster)
        process, times = RunProcess(executor, 4000 + executor, "", 0), RunTimes(1_000_000, 1_000_300, 500)
        assert one == PastRun(first.hex(), "work", "NORMAL_TASK", 0, None, process, RunNode(0, "host0"), times, "")
        assert (two.id, two.times) == (second.hex(), RunTimes(1_000_000, 1_000_800, 200))
        cluster.released(first, second)


def test_a_report_says_what_each_call_had() -> None:
    with Cluster().node(gpus=2) as cluster:
        id = cluster.submit(cpu=0.5, gpu=1)
        executor = cluster.placed(id)
        cluster.started(executor)
        cluster.client_says(executor, Done(id, b"", 500, start_us=1))
        cluster.forget()
        found = cluster.ask(Report())
        (run,) = found.runs
        assert (run.cpus, run.gpus, run.gpu_ids) == (0.5, 1.0, [0])
        assert (run.duration_us, run.outcome, found.ran) == (500, RETURNED, 1)
        cluster.released(id)


def test_each_attempt_and_how_it_ended() -> None:
    with Cluster().node(cpus=1) as cluster:
        id = cluster.submit(max_retries=1, retry=RetrySpec())
        executor = cluster.placed(id)
        error = Value(b"error", is_error=True)
        cluster.client_says(executor, Returned(id, [error], 10, raised=True, start_us=5))
        executor = cluster.placed(id)
        cluster.later(400)
        cluster.died(executor, running=id)
        cluster.forget()
        raised, died = runs(cluster)
        assert (raised.attempt, raised.error, raised.times) == (0, "raised", RunTimes(1_000_000, 5, 10))
        assert (died.attempt, died.error, died.process.executor) == (1, "its process died", executor)
        assert died.times == RunTimes(1_000_000, 1_000_000, 400)
        cluster.released(id)


def test_a_cancelled_attempt_has_not_just_raised() -> None:
    with Cluster().node(cpus=1) as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        cluster.client_says(DRIVER, CancelRequested(id, False, False))
        error = Value(b"cancelled", is_error=True)
        cluster.client_says(executor, Returned(id, [error], 10, raised=True, start_us=5))
        cluster.forget()
        (run,) = runs(cluster)
        assert run.error == "cancelled"
        assert [one.outcome for one in cluster.ask(Report()).runs] == [CANCELLED]
        cluster.released(id)


def test_calls_that_raise_are_counted_as_failed() -> None:
    with Cluster().node(cpus=3) as cluster:
        ids = cluster.submit_many(3)
        well, raises, dies = (cluster.placed(id) for id in ids)
        cluster.done(well, ids[0])
        cluster.client_says(raises, Returned(ids[1], [Value(b"error", is_error=True)], 10, raised=True))
        cluster.died(dies, running=ids[2])
        cluster.forget()
        seen = cluster.scheduler.answer(Glance(), cluster.now)
        assert [one.failed for one in seen.errors] == [1]
        assert seen.errors[0].text.startswith("WorkerCrashedError: ")
        assert (seen.counts.failed, seen.counts.cancelled, seen.counts.ended) == (1, 1, 3)
        (work,) = seen.functions
        assert (work.failed, work.cancelled, work.ended, work.waiting) == (1, 1, 3, 0)
        assert cluster.ask(Report()).ran == 3
        assert (cluster.ask(Statistics()).finished, cluster.ask(Statistics()).failed) == (1, 2)
        cluster.released(*ids)


def test_actors_say_who_they_are_also_when_they_are_gone() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.client_says(executor, Titled("Actor(1)"), Done(actor, b"", 1, 1))
        assert cluster.ask(Actors())[0].repr_name == "Actor(1)"
        call = cluster.method(actor)
        cluster.placed(call)
        cluster.done(executor, call)
        cluster.released(call, actor)
        cluster.died(executor)
        cluster.forget()
        creation, method = runs(cluster)
        assert (creation.type, method.type) == ("ACTOR_CREATION_TASK", "ACTOR_TASK")
        assert (method.name, method.actor_id, method.process.name) == ("Actor.method", actor.hex(), "Actor(1)")
        assert not cluster.state.actors


@pytest.mark.parametrize("zero_us", [7_000_000_000, 0, -500_000])
def test_other_hosts_count_time_from_another_moment(zero_us: int) -> None:
    """The head learns the difference from the fastest message: here one that takes 20 microseconds."""
    with Cluster().head().node() as cluster:
        ids = cluster.submit_many(3)
        began = []
        for id, takes_us in zip(ids, (900, 20, 300), strict=True):
            executor = cluster.placed(id)
            began.append(cluster.now)
            cluster.later(100 + takes_us)
            cluster.client_says(executor, Done(id, b"", 100, start_us=zero_us + began[-1]))
        cluster.forget()
        assert [run.times.start_us - 20 for run in runs(cluster)] == began
        cluster.released(*ids)


def test_copies_spills_and_levels_of_arenas() -> None:
    with Cluster().head().node() as cluster:
        cluster.state.nodes[0].arena = cluster.state.nodes[1].arena = 1000
        id = cluster.put(size=800, offset=64)
        small = cluster.put(size=9, offset=1000)
        cluster.later(50)
        call = cluster.submit(id)
        cluster.later(100)
        order = cluster.one(Fetch, to=1)
        cluster.rank_says(Fetched(1, id, 128, order=order.order))
        executor = cluster.placed(call)
        cluster.forget()
        cluster.rank_says(RoomWanted(0, 900, []))
        cluster.later(7)
        cluster.rank_says(Spilled(0, small, 4096, file="file"))
        cluster.forget()
        found = cluster.ask(History())
        assert found.moves_dropped == 0
        head, host = RunNode(0, "head"), RunNode(1, "host1")
        assert found.moves == [
            PastMove("level", "", "", 800, head, "", MoveTimes(1_000_000, 0)),
            PastMove("copy", id.hex(), "", 800, host, "head", MoveTimes(1_000_050, 100)),
            PastMove("level", "", "", 800, host, "", MoveTimes(1_000_150, 0)),
            PastMove("spill", small.hex(), "", 9, head, "", MoveTimes(1_000_150, 7)),
        ]
        part = cluster.scheduler.answer(MovesFrom(1), cluster.now)
        assert [one.what for one in part.moves] == ["copy", "level", "spill"]
        assert not cluster.scheduler.answer(MovesFrom(4), cluster.now).moves
        cluster.state.nodes[0].arena = 1_000_000
        cluster.done(executor, call)
        cluster.released(call, id, small)
        cluster.forget()
        assert cluster.state.logs.moves[-1].size == 0, "an empty arena is a level of its own"


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster().node() as cluster:
        assert cluster.state.history.maxlen == HISTORY_CALLS_MAX
        cluster.state.history = deque(maxlen=3)
        ids = []
        for _ in range(5):
            ids.append(cluster.submit())
            cluster.done(cluster.placed(ids[-1]), ids[-1])
            cluster.forget()
        found = cluster.ask(History())
        assert found.dropped == 2
        assert [one.id for one in found.runs] == [id.hex() for id in ids[2:]]
        cluster.released(*ids, client=DRIVER)
