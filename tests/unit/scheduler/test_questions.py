"""Each question has an answer of the type that it names, with the keys that users see."""

from typing import get_args

import msgspec
import pytest

from mpi_runtime.scheduler.answers.answering import ANSWERS, answer
from mpi_runtime.scheduler.protocol import questions as q
from mpi_runtime.scheduler.protocol import window_questions as w
from mpi_runtime.scheduler.protocol.entries import dictionaries
from mpi_runtime.scheduler.protocol.events import ActorSpec, Done, Returned, Value
from mpi_runtime.scheduler.protocol.past import DIED, Run
from tests.builders import LARGE, Cluster

ID = b"i" * 16
SAMPLES: list[q.Question[object]] = [
    *(q.Statistics(), q.ClusterResources(), q.AvailableResources(), q.Nodes(), q.NodeOfRank(1), q.Store()),
    *(q.Tasks(), q.Tasks(ended=10), q.Actors(), q.Objects(), q.Workers(), q.Environments(), q.Groups(), q.Drivers()),
    *(q.NamedActor("", "a"), q.NamedActors(), q.NamedGroup("", "g"), q.Group(ID)),
    *(q.Progress(), q.RunningCalls(), q.Late(), q.Explain(ID), q.Report(), q.History()),
    *(w.Glance(), w.RunsSince(0), w.Errors(), w.Errors("f"), w.Oldest("waits"), w.WholeStore()),
    *(w.FirstTasks(), w.FirstActors(), w.FirstObjects(), w.FirstNodes(), w.FirstGroups(), w.FirstDrivers()),
    *(w.RunsFrom(0), w.MovesFrom(0)),
]
KEYS = {
    q.Tasks: "task_id name func_or_class_name type state attempt_number actor_id node_id worker_id worker_pid "
    "required_resources parent_task_id error_type error_message creation_time_ms start_time_ms end_time_ms",
    q.Actors: "actor_id class_name state name repr_name ray_namespace node_id pid num_restarts death_cause "
    "pending_calls driver is_detached required_resources placement_group_id",
    q.Objects: "object_id state object_size node_ids is_spilled reference_count held_by",
    q.Workers: "worker_id pid state rank node_id actor_id task_id gpu_ids assigned_resources is_alive exit_type "
    "exit_detail end_time_ms",
    q.Nodes: "NodeID Alive NodeName NodeManagerHostname NodeManagerAddress Resources Available Labels ranks cpus "
    "cpu_limit gpus gpu_problems executors",
    q.Groups: "placement_group_id name bundles nodes strategy state scheduling why",
    q.Store: "node_id hostname capacity used objects on_disk objects_on_disk in_flight being_written wanted largest",
}
"""What users find in the entries of each list, in this order."""


def busy() -> Cluster:
    """A cluster that has, and has had, something of everything."""
    cluster = Cluster().node(cpus=4, gpus=2).node(cpus=4)
    good, bad = cluster.submit(), cluster.submit()
    cluster.client_says(cluster.placed(good), Done(good, b"", 500, start_us=1))
    error = Value(b"error", is_error=True)
    cluster.client_says(cluster.placed(bad), Returned(bad, [error], 10, raised=True, said="ValueError: no", trace="T"))
    actor = cluster.actor()
    cluster.started(cluster.placed(actor))
    running = cluster.submit(name="runs", gpu=1)
    cluster.started(cluster.placed(running))
    cluster.submit(running, name="waits", cpu=4)
    cluster.put(size=LARGE, offset=LARGE)
    cluster.group({"cpu": 1}, name="g", request=5)
    cluster.forget()
    return cluster


def test_every_question_has_a_function_that_answers_it() -> None:
    assert set(ANSWERS) == {*get_args(q.ClientQuestion), *get_args(w.SchedulerQuestion)}
    assert {type(one) for one in SAMPLES} == set(ANSWERS)
    assert {*get_args(w.SchedulerQuestion), *get_args(w.HeadQuestion)} == {*get_args(w.SingleQuestion)}
    assert {*get_args(w.SingleQuestion), w.Several, w.Watch} == {*get_args(w.WindowQuestion)}


@pytest.mark.parametrize("question", SAMPLES, ids=repr)
def test_answers_arrive_as_they_were(question: q.Question[object]) -> None:
    for cluster in (busy(), Cluster().node().node()):
        try:
            found = answer(cluster.state, question, cluster.now)
        except LookupError:
            assert isinstance(question, w.Oldest)
            continue
        assert q.decoded(question, msgspec.msgpack.encode(found)) == found


@pytest.mark.parametrize("kind", KEYS)
def test_entries_have_the_keys_that_users_know(kind: type[q.Question[list[msgspec.Struct]]]) -> None:
    cluster = busy()
    entries = dictionaries(answer(cluster.state, kind(), cluster.now))
    assert entries
    assert [" ".join(one) for one in entries] == [KEYS[kind]] * len(entries)


def test_what_a_gpu_and_a_large_value_show() -> None:
    cluster = busy()
    nodes, stores = cluster.ask(q.Nodes()), cluster.ask(q.Store())
    gpu = dictionaries(nodes)[0]["gpus"][0]
    assert " ".join(gpu) == (
        "id uuid name types memory bus numa exclusive ranks home linked free memory_free quarantined used_by"
    )
    assert [list(one) for one in gpu["used_by"]] == [["name", "pid", "share", "memory"]]
    (largest,) = [one for store in dictionaries(stores) for one in store["largest"]]
    assert list(largest) == ["object_id", "size", "in_memory", "on_disk", "made_by", "held_by"]


def test_the_ranks_of_a_gang_are_shown_only_if_there_is_one() -> None:
    with Cluster().node(cpus=4) as cluster:
        cluster.submit(ranks=2)
        cluster.submit()
        cluster.forget()
        gang, task = dictionaries(cluster.ask(q.Tasks()))
        assert gang["num_ranks"] == 2
        assert "num_ranks" not in task


def test_what_is_asked_often_is_a_row() -> None:
    run = Run("f", ActorSpec.number, "host", 3, 7, "A(1)", 10, 20, 30, DIED, 1, 0.5, 1.0, [2])
    row = ["f", 1, "host", 3, 7, "A(1)", 10, 20, 30, 2, 1, 0.5, 1.0, [2]]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(run)) == row
    assert (run.end_us, run.waited_us, run.title) == (50, 10, "A(1): f")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(q.RunningCall(b"i", "host", 5))) == [b"i", "host", 5]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(q.Saved(1, 2))) == [1, 2]
    late = q.LateCalls([q.LateFunction("fit", 3, 9)], 100)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(late)) == [[["fit", 3, 9]], 100]


def test_an_answer_of_another_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        q.decoded(q.Progress(), msgspec.msgpack.encode({"unsaved": 1}))
