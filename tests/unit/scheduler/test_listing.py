"""Lists of what there is: all of it, or the one entry that an id names, for the price of that one."""

from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime.scheduler.answers.answering import answer
from mpi_runtime.scheduler.answers.listing import objects
from mpi_runtime.scheduler.protocol.events import Left, OnDisk
from mpi_runtime.scheduler.protocol.limits import ENDED_ACTORS_MAX
from mpi_runtime.scheduler.protocol.questions import (
    Actors,
    Environments,
    Groups,
    Nodes,
    Objects,
    Question,
    RunningCalls,
    Tasks,
    Workers,
)
from mpi_runtime.scheduler.protocol.window_questions import Glance
from tests.builders import LARGE, Cluster

LISTS: dict[Callable[[bytes], Question[list[Any]]], tuple[str, str]] = {
    Tasks: ("objects", "task_id"),
    Actors: ("actors", "actor_id"),
    Objects: ("objects", "object_id"),
    Workers: ("executors", "worker_id"),
    Nodes: ("nodes", "id"),
    Groups: ("groups", "placement_group_id"),
}
"""The lists, each with the table of the state that it is made from, and where its entries have their ids."""


class Unlisted(dict[Any, Any]):
    """A table that nobody may go through."""

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("the whole table was gone through for one of its entries")

    values = items = keys = __iter__ = _refuse


def busy() -> Cluster:
    """A cluster that has several of everything."""
    cluster = Cluster().node(cpus=4).node(cpus=4)
    for number in range(2):
        cluster.placed(cluster.actor())
        cluster.placed(cluster.submit())
        cluster.submit(num_returns=2, cpu=4)
        cluster.put(size=LARGE, offset=number * LARGE)
        cluster.group({"cpu": 1})
    cluster.forget()
    return cluster


@pytest.mark.parametrize("what", LISTS)
def test_an_id_gives_its_entry_alone(what: Callable[[bytes], Question[list[Any]]]) -> None:
    cluster = busy()
    key = LISTS[what][1]
    entries = cluster.ask(what(b""))
    assert len(entries) >= 2
    for entry in entries:
        assert cluster.ask(what(bytes.fromhex(getattr(entry, key)))) == [entry]
    assert cluster.ask(what(b"\xff" * 16)) == []


@pytest.mark.parametrize("what", LISTS)
def test_one_entry_does_not_cost_the_others(what: Callable[[bytes], Question[list[Any]]]) -> None:
    state = busy().state
    table, key = LISTS[what]
    ids = [bytes.fromhex(getattr(entry, key)) for entry in answer(state, what(b""), 0)]
    setattr(state, table, Unlisted(getattr(state, table)))
    for id in ids:
        assert len(answer(state, what(id), 0)) == 1


def test_the_second_value_of_a_call_is_no_call() -> None:
    cluster = Cluster().node()
    call = cluster.submit(num_returns=2)
    second = (int.from_bytes(call, "big") + 1).to_bytes(16, "big")
    assert [entry.task_id for entry in cluster.ask(Tasks(call))] == [call.hex()]
    assert cluster.ask(Tasks(second)) == []
    assert [entry.object_id for entry in cluster.ask(Objects(second))] == [second.hex()]


def test_what_calls_wait_for() -> None:
    with Cluster().node(cpus=1) as cluster:
        actor = cluster.actor(held_cpu=0)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.forget()
        running = cluster.submit(name="runs")
        cluster.placed(running)
        cluster.submit(name="has no room")
        cluster.submit(running, name="has no argument")
        cluster.method(actor, running)
        found = {entry.name: entry.state for entry in cluster.ask(Tasks())}
        assert found == {
            "runs": "RUNNING",
            "has no room": "PENDING_NODE_ASSIGNMENT",
            "has no argument": "PENDING_ARGS_AVAIL",
            "Actor.method": "PENDING_ARGS_AVAIL",
        }


def test_the_process_of_an_actor() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.started(executor)
        cluster.done(executor, actor)
        cluster.forget()
        (entry,) = cluster.ask(Actors())
        assert entry.pid == 4000 + executor


def test_a_call_that_ends_its_actor_has_finished() -> None:
    for concurrency in ({}, {"": 2}):
        with Cluster().node() as cluster:
            actor = cluster.actor(concurrency=concurrency)
            executor = cluster.placed(actor)
            cluster.done(executor, actor)
            leaves = cluster.method(actor)
            assert cluster.placed(leaves) == executor
            cluster.client_says(executor, Left(actor))
            cluster.died(executor, running=leaves, cause="exited with code 0")
            (entry,) = cluster.ask(Tasks(leaves, ended=1))
            known = (entry.state, entry.error_type, entry.error_message)
            if concurrency:  # another call may have ended it
                assert known[:2] == ("FAILED", "ACTOR_DIED")
            else:
                assert known == ("FINISHED", None, None)
            assert cluster.told(leaves).code == "ActorDiedError"
            cluster.forget()


def test_actors_that_have_ended_come_last() -> None:
    with Cluster().node() as cluster:
        actors = [cluster.actor(held_cpu=0) for _ in range(3)]
        for actor in actors:
            cluster.done(cluster.placed(actor), actor)
        for actor in actors[:2]:
            executor = cluster.state.actors[actor].executor
            assert executor is not None
            cluster.released(actor)
            cluster.died(executor.id, cause="exited with code 0")
        cluster.forget()
        states = [(one.actor_id, one.state) for one in cluster.ask(Actors(ended=5))]
        assert states == [(actors[2].hex(), "ALIVE"), (actors[1].hex(), "DEAD"), (actors[0].hex(), "DEAD")]
        assert [one.actor_id for one in cluster.ask(Actors(actors[0], ended=1))] == [actors[0].hex()]
        assert [one.actor_id for one in cluster.ask(Actors())] == [actors[2].hex()]
        assert cluster.ask(Actors(actors[0])) == []


def test_the_last_actors_that_have_ended_are_kept() -> None:
    with Cluster().node() as cluster:
        for number in range(ENDED_ACTORS_MAX + 2):
            actor = cluster.actor(held_cpu=0)
            executor = cluster.placed(actor)
            cluster.done(executor, actor)
            cluster.released(actor)
            cluster.died(executor, cause="exited with code 0")
            cluster.forget()
            if not number:
                first = actor
        assert len(cluster.ask(Actors(ended=3))) == 3
        found = cluster.ask(Actors(ended=2 * ENDED_ACTORS_MAX))
        assert len(found) == ENDED_ACTORS_MAX
        assert first.hex() not in {one.actor_id for one in found}
        assert not cluster.state.actors


def test_executors_that_have_ended_come_last() -> None:
    with Cluster().node() as cluster:
        kinds = []
        for cause in ("was killed by signal 9", "exited with code 0", "exited with code 3"):
            task = cluster.submit()
            executor = cluster.placed(task)
            cluster.done(executor, task)
            cluster.died(executor, cause=cause)
            (entry,) = cluster.ask(Workers(executor.to_bytes(16, "big"), ended=1))
            kinds.append((entry.is_alive, entry.exit_type, entry.exit_detail == cause))
        assert kinds == [
            (False, "SYSTEM_ERROR", True), (False, "INTENDED_USER_EXIT", True), (False, "SYSTEM_ERROR", True),
        ]  # fmt: skip
        living = cluster.placed(cluster.submit())
        cluster.forget()
        found = cluster.ask(Workers(ended=2))
        assert [one.is_alive for one in found] == [True, False, False]
        assert [one.worker_id for one in cluster.ask(Workers())] == [f"{living:032x}"]


def test_an_actor_is_let_go_of_by_the_runtime() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(held_cpu=0)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.released(actor)
        cluster.died(executor, cause="exited with code 0")
        cluster.forget()
        assert [one.exit_type for one in cluster.ask(Workers(ended=1))] == ["INTENDED_SYSTEM_EXIT"]


def test_groups_that_were_removed_come_last() -> None:
    with Cluster().node(cpus=4) as cluster:
        first, second = cluster.group({"cpu": 1}, name="first"), cluster.group({"cpu": 1})
        cluster.remove_group(first)
        cluster.forget()
        states = [(one.placement_group_id, one.state) for one in cluster.ask(Groups(removed=5))]
        assert states == [(second.hex(), "CREATED"), (first.hex(), "REMOVED")]
        (entry,) = cluster.ask(Groups(first, removed=1))
        assert (entry.name, entry.bundles, entry.why) == ("first", [{"CPU": 1.0}], "It was removed.")
        assert cluster.ask(Groups(first)) == []


def test_the_processes_that_hold_a_value() -> None:
    with Cluster().node() as cluster:
        value = cluster.put(size=LARGE)
        cluster.forget()
        (entry,) = cluster.ask(Objects(value))
        assert [(one.worker_type, one.pid) for one in entry.held_by] == [("DRIVER", 0)]
        assert cluster.ask(Objects())[0].held_by == entry.held_by


def test_a_job_at_a_glance() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        ids = cluster.submit_many(6, name="work", cpu=1)
        places = [cluster.placed(id) for id in ids[:4]]
        for place in places:
            cluster.started(place)
        cluster.later(3_000_000)
        seen = cluster.scheduler.answer(Glance(), cluster.now)
        assert (seen.counts.running, seen.counts.waiting) == (4, 2)
        (work,) = seen.functions
        assert (work.name, work.submitted, work.running, work.waiting, work.ended) == ("work", 6, 4, 2, 0)
        assert sorted(one.host for one in seen.running) == ["host0", "host0", "host1", "host1"]
        assert {one.for_us for one in seen.running} == {3_000_000}
        nodes = [(node.name, node.cpus, node.cpus_used) for node in seen.nodes]
        assert nodes == [("host0", 2.0, 2.0), ("host1", 2.0, 2.0)]
        assert (seen.total["CPU"], seen.free.get("CPU", 0)) == (4, 0)
        running = cluster.ask(RunningCalls())
        assert sorted(one.id for one in running) == sorted(ids[:4])
        assert {one.for_us for one in running} == {3_000_000}


def test_no_more_calls_of_an_actor_run_than_it_has_threads() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(concurrency={"": 2, "io": 1})
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        for group in ("", "", "", "io", "io"):
            cluster.placed(cluster.method(actor, group=group))
        states = [entry.state for entry in cluster.ask(Tasks())]
        assert states == ["RUNNING", "RUNNING", "SUBMITTED_TO_WORKER", "RUNNING", "SUBMITTED_TO_WORKER"]
        cluster.forget()


def test_environments_of_executors() -> None:
    with Cluster().node(cpus=4) as cluster:
        for environment in ({"A": "1"}, {"A": "1"}, {}):
            cluster.placed(cluster.submit(environment=environment))
        cluster.forget()
        found = cluster.ask(Environments())
        assert [(one.environment, one.executors) for one in found] == [({"A": "1"}, 2), ({}, 1)]
        assert {one.node_id for one in found} == {one.id for one in cluster.ask(Nodes())}


def test_a_value_on_disk_is_on_its_node() -> None:
    cluster = Cluster().node().node()
    first, second = (one.id for one in cluster.ask(Nodes()))
    value = cluster.put(size=LARGE)
    found = cluster.state.objects[value]
    for rank, copies, expected in ((0, found.copies, [first]), (1, found.copies, [first, second]), (1, {}, [second])):
        found.disk, found.copies = OnDisk(rank, 0, LARGE), copies
        assert [one.node_ids for one in objects(cluster.state, value)] == [expected]
