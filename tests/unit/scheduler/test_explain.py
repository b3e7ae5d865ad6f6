"""Answers to questions: what there is, and why a call does not run."""

from mpi_runtime.scheduler.protocol.effects import Fetch, StartExecutor
from mpi_runtime.scheduler.protocol.events import OnDisk
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX, MOVED_BYTES_PER_US
from mpi_runtime.scheduler.protocol.questions import (
    AvailableResources,
    ClusterResources,
    Explanation,
    Nodes,
    Statistics,
)
from tests.builders import LARGE, UNIT, Cluster


def test_resources_are_told_as_people_count_them() -> None:
    with Cluster().node(cpus=2, gpus=1, memory=1000, disk=0.5) as cluster:
        total = {"CPU": 2.0, "GPU": 1.0, "memory": 1000.0, "node:host0": 1.0, "disk": 0.5}
        total["object_store_memory"] = float(1 << 30)
        assert cluster.ask(ClusterResources()) == total
        cluster.placed(cluster.submit(cpu=1.5, gpu=1))
        left = {**total, "CPU": 0.5}
        del left["GPU"]
        assert cluster.ask(AvailableResources()) == left


def test_nodes_say_what_they_own() -> None:
    with Cluster().head().node(cpus=2, ranks=2) as cluster:
        head, host = cluster.ask(Nodes())
        assert (head.name, head.ranks, head.resources.get("CPU")) == ("head", [0], None)
        assert (host.name, host.ranks, host.resources["CPU"]) == ("host1", [1, 2], 2.0)


def test_statistics_count() -> None:
    with Cluster().node() as cluster:
        first, _ = cluster.submit_many(2)
        cluster.done(cluster.placed(first), first)
        cluster.forget()
        counts = cluster.ask(Statistics())
        assert (counts.submitted, counts.finished, counts.failed, counts.objects) == (2, 1, 0, 2)


def test_why_nothing_and_why_there_already() -> None:
    with Cluster().node() as cluster:
        assert cluster.explain(b"x" * 16).state == "unknown"
        answer = cluster.explain(cluster.put())
        assert answer.state == "inline"
        assert answer.why.startswith("The value is there. Arrays of it ")


def test_where_a_value_lies_and_why_its_arrays_are_read_only() -> None:
    with Cluster().node().node() as cluster:
        id = cluster.put(size=LARGE, rank=1, offset=64)
        why = cluster.explain(id).why
        assert why.startswith("The value is there: 2.0 MiB, in the shared memory of host1. Arrays of it ")
        assert "read-only" in why
        assert "get(ref, copy=True) gives arrays that may be written into" in why
        cluster.state.objects[id].disk = OnDisk(0, 0, LARGE)
        cluster.state.spilling.on_disk[0, 0] = id
        assert "in the shared memory of host1 and on a disk of host0." in cluster.explain(id).why


def test_an_error_is_told_from_a_value() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        cluster.raised(cluster.placed(id), id)
        cluster.forget()
        assert cluster.explain(id) == Explanation(
            state="error", why="The value is there: an error, which get() raises."
        )


def test_it_runs_or_stands_behind_one_that_runs() -> None:
    with Cluster().node() as cluster:
        ids = cluster.submit_many(3, name="fit")
        executor = cluster.placed(ids[0])
        cluster.started(executor)
        cluster.done(executor, ids[0])
        cluster.forget()
        where = f"executor {executor} (pid {4000 + executor}) on rank 0 of host0"
        assert cluster.explain(ids[1]) == Explanation(state="sent", name="fit", why=f"It runs in {where}.")
        assert cluster.explain(ids[2]).why == f"It is with {where}, behind fit."
        cluster.blocked(executor, ids[2])
        cluster.forget()
        assert cluster.explain(ids[1]).why == f"It runs in {where} and waits for {ids[2].hex()}."


def test_it_waits_for_arguments() -> None:
    with Cluster().node() as cluster:
        ids = cluster.submit_many(EXPLAINED_MAX + 3)
        waiting = cluster.submit(*ids)
        cluster.forget()
        answer = cluster.explain(waiting)
        assert answer.state == "waiting"
        assert answer.why.startswith(f"It waits for {EXPLAINED_MAX + 3} argument(s): {ids[0].hex()}, ")
        assert answer.why.endswith("and 3 more.")


def test_it_waits_for_room() -> None:
    with Cluster().node(cpus=2, gpus=1).node(cpus=4) as cluster:
        cluster.placed(cluster.submit(cpu=3))
        waiting = cluster.submit(name="large", cpu=4)
        why = cluster.explain(waiting).why
        assert why == (
            "It needs 4 CPU. host0: 2 CPU, 1 GPU free; host1: 1 CPU, 0 GPU free (kept for a larger request). "
            "In use by f (1)."
        )


def test_its_arguments_are_on_their_way() -> None:
    with Cluster().head().node() as cluster:
        id = cluster.submit(cluster.put(size=LARGE, rank=0))
        cluster.one(Fetch)
        cluster.one(StartExecutor)
        answer = cluster.explain(id)
        assert answer.state == "staging"
        assert answer.why.startswith("1 argument(s) are on their way to executor 1 ")
        assert answer.why.endswith(" of host1: 2.0 MiB from head.")


def test_it_waits_for_the_node_that_has_its_arguments() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        size = 1_000_000 * MOVED_BYTES_PER_US
        data, other = cluster.put(size=size, rank=1, offset=64), cluster.put(size=LARGE, rank=2, offset=64)
        running = cluster.submit(data)
        executor = cluster.placed(running)
        first, second = (cluster.submit(data, other, name="waits") for _ in range(2))
        cluster.later(250_000)
        why = cluster.explain(first).why
        assert why == (
            "It needs 1 CPU. head: 0 CPU, 0 GPU free; host1: 0 CPU, 0 GPU free; host2: 1 CPU, 0 GPU free. "
            "It waits for room on host1: since 0.25 s, and for 0.75 s at most, which is what it would take to move "
            "them. Then it runs on host2, or where else there is room. "
            "Of its arguments lie 953.7 MiB on host1, 2.0 MiB on host2."
        )
        assert "It waits for room on host1, as the call before it does: since 0.25 s" in cluster.explain(second).why
        cluster.done(executor, running)
        cluster.forget()
        why = cluster.explain(first).why
        assert why.startswith(f"1 argument(s) are on their way to executor {executor} ")
        assert why.endswith(" of host1: 2.0 MiB from host2.")


def test_it_is_said_where_arguments_lie_also_if_nothing_is_free() -> None:
    with Cluster().head().node(cpus=1) as cluster:
        data = cluster.put(size=LARGE, rank=1, offset=64)
        far = cluster.put(size=LARGE, rank=0, offset=64)
        cluster.placed(cluster.submit(data))
        why = cluster.explain(cluster.submit(data, far)).why
        assert why.endswith(
            "host1: 0 CPU, 0 GPU free. Of its arguments lie 2.0 MiB on head, 2.0 MiB on host1. In use by f (1)."
        )


def test_its_actor_is_not_ready() -> None:
    with Cluster().node() as cluster:
        cluster.placed(cluster.submit())
        actor = cluster.actor()
        waits = "It needs 1 CPU. host0: 0 CPU, 0 GPU free. In use by f (1)."
        assert cluster.explain(cluster.method(actor)).why == f"Its actor is being created. {waits}"
        assert cluster.explain(actor).why == waits


def test_an_actor_keeps_its_cpu_and_waits_for_one() -> None:
    with Cluster().node(cpus=1) as cluster:
        outer = cluster.actor(held_cpu=UNIT)
        executor = cluster.placed(outer)
        cluster.done(executor, outer)
        fit = cluster.method(outer)
        train = cluster.method(cluster.actor())
        cluster.blocked(executor, train)
        cluster.forget()
        assert cluster.explain(fit).why.endswith(
            f", which waits for {train.hex()}. Of Actor.method: Its actor is being created. It needs 1 CPU. "
            "host0: 0 CPU, 0 GPU free. In use by actor Actor (1)."
        )


def test_requests_are_told_in_words() -> None:
    with Cluster().node(cpus=2, gpus=2, memory=10, disk=1) as cluster:
        cluster.placed(cluster.submit(cpu=2))
        waiting = cluster.submit(cpu=0.5, gpu=1.5, memory=7, custom={"disk": UNIT})
        assert "0.5 CPU, 1.5 GPU, 7 bytes of memory, 1 of 'disk'" in cluster.explain(waiting).why
