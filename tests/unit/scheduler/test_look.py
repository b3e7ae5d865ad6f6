"""What a program that looks at a job gets: bounded answers, errors by kind, and why calls wait."""

import msgspec
import pytest

from mpi_runtime.scheduler.answers.inspection import ROWS_MAX, RUNS_MAX
from mpi_runtime.scheduler.answers.store_summary import store
from mpi_runtime.scheduler.answers.summary import FUNCTIONS_MAX
from mpi_runtime.scheduler.log.errors import KINDS_MAX
from mpi_runtime.scheduler.protocol.events import OnDisk, Returned, Value
from mpi_runtime.scheduler.protocol.questions import Question
from mpi_runtime.scheduler.protocol.window_questions import (
    Errors,
    FirstActors,
    FirstGroups,
    FirstNodes,
    FirstObjects,
    FirstTasks,
    Glance,
    MovesFrom,
    Oldest,
    RunsFrom,
    RunsSince,
    WholeStore,
)
from tests.builders import Cluster

QUESTIONS: list[Question[object]] = [
    *(Glance(), RunsSince(0), Errors(), WholeStore(), RunsFrom(0), MovesFrom(0)),
    *(FirstTasks(), FirstActors(), FirstObjects(), FirstNodes(), FirstGroups()),
]
SOCKET_BYTES = 200_000
"""What a new Unix socket takes at once, on a system that has not been tuned."""


def raised(cluster: Cluster, text: str, trace: str = "") -> None:
    id = cluster.submit()
    error = Value(b"error", is_error=True)
    cluster.client_says(cluster.placed(id), Returned(id, [error], 10, raised=True, said=text, trace=trace))
    cluster.forget()
    cluster.released(id)


def test_errors_that_differ_in_numbers_are_one_kind() -> None:
    with Cluster().node() as cluster:
        raised(cluster, "ValueError: no pose after 200 steps", "Traceback 1")
        raised(cluster, "ValueError: no pose after 31 steps", "Traceback 2")
        raised(cluster, "KeyError: 'x'")
        found = cluster.scheduler.answer(Errors(), cluster.now)
        assert [(one.text, one.failed, one.trace) for one in found] == [
            ("ValueError: no pose after 31 steps", 2, ""),
            ("KeyError: 'x'", 1, ""),
        ]
        name = found[0].function
        assert cluster.scheduler.answer(Errors(name), cluster.now)[0].trace == "Traceback 2"
        assert cluster.scheduler.answer(Errors("other"), cluster.now) == []


def test_answers_stay_small_however_large_the_job() -> None:
    with Cluster().node(cpus=2) as cluster:
        for number in range(KINDS_MAX + 20):
            raised(cluster, f"Error{'x' * number}: {'long ' * 100}")
        many = cluster.submit_many(1000, name="work")
        cluster.forget()
        errors = cluster.scheduler.answer(Errors(), cluster.now)
        assert len(errors) == KINDS_MAX + 1
        assert next(one.failed for one in errors if not one.function) == 20
        for question in QUESTIONS:
            data = msgspec.msgpack.encode(cluster.scheduler.answer(question, cluster.now))
            assert len(data) < SOCKET_BYTES, question
        tasks = cluster.scheduler.answer(FirstTasks(), cluster.now)
        assert tasks.count == 1000
        assert 2 < len(tasks.rows) <= ROWS_MAX
        assert len(cluster.scheduler.answer(RunsSince(0), cluster.now).runs) <= RUNS_MAX
        assert cluster.scheduler.answer(Oldest("work"), cluster.now).id in {id.hex() for id in many}


def test_tracebacks_and_names_of_any_length_fit_an_answer() -> None:
    with Cluster().node(cpus=100) as cluster:
        for number in range(KINDS_MAX):
            raised(cluster, f"Error{'x' * number}: {'é' * 250}", "t" * 6000)
        name = cluster.scheduler.answer(Errors(), 0)[0].function
        found = cluster.scheduler.answer(Errors(name), cluster.now)
        assert len(msgspec.msgpack.encode(found)) < SOCKET_BYTES
        assert len(found) == KINDS_MAX
        assert found[0].trace, "the most frequent ones keep theirs"
        assert not found[-1].trace
        cluster.submit_many(100, name="long" * 1000)
        cluster.forget()
        glance = cluster.scheduler.answer(Glance(), cluster.now)
        assert len(msgspec.msgpack.encode(glance)) < SOCKET_BYTES
        assert len(glance.running) > 5
        assert glance.counts.running == 100


def test_a_function_that_failed_is_seen_among_many_that_are_done() -> None:
    with Cluster().node() as cluster:
        for number in range(2 * FUNCTIONS_MAX):
            for _ in range(2):
                id = cluster.submit(name=f"f{number:03}")
                cluster.client_says(cluster.placed(id), Returned(id, [Value(b"1")], 10))
                cluster.released(id)
        id = cluster.submit(name="wrong")
        error = Value(b"error", is_error=True)
        cluster.client_says(cluster.placed(id), Returned(id, [error], 10, raised=True, said="ValueError: no", trace=""))
        cluster.forget()
        glance = cluster.scheduler.answer(Glance(), cluster.now)
        assert glance.functions_in_all == 2 * FUNCTIONS_MAX + 1
        assert len(glance.functions) == FUNCTIONS_MAX
        assert glance.functions[-1].name == "wrong", "those with most calls first"
        assert not [name for name in glance.total if name.startswith("node:")], "there may be thousands of nodes"


def test_a_question_that_cannot_be_answered() -> None:
    with Cluster().node() as cluster, pytest.raises(LookupError, match="no call of nobody waits"):
        cluster.scheduler.answer(Oldest("nobody"), cluster.now)


def test_the_oldest_waiting_call_is_that_of_the_function_that_was_asked_for() -> None:
    """Among calls that are ready, and among those whose arguments are not there."""
    with Cluster().node(cpus=1) as cluster:
        maker = cluster.submit(name="maker")
        cluster.placed(maker)
        behind = {name: cluster.submit(maker, name=name) for name in ("one", "two")}
        ready = {name: cluster.submit(name=name, cpu=1) for name in ("three", "four")}
        cluster.forget()
        for name, id in (behind | ready).items():
            found = cluster.scheduler.answer(Oldest(name), cluster.now)
            assert (found.id, found.name) == (id.hex(), name)


def test_values_on_disk_count_for_the_node_of_the_disk() -> None:
    with Cluster().node().node() as cluster:
        id = cluster.put(size=2_000_000, rank=1, offset=64)
        cluster.state.objects[id].disk = OnDisk(1, 0, 2_000_000)
        cluster.state.spilling.on_disk[1, 0] = id
        rows = store(cluster.state)
        assert [(row.objects, row.objects_on_disk, row.on_disk) for row in rows] == [(0, 0, 0), (1, 1, 2_000_000)]
