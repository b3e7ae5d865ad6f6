"""The front of the scheduler: how a job begins, and the answers that its caller needs for performing effects."""

import gc
import tracemalloc

from mpi_runtime.scheduler.core import Described
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import TaskSpec, Titled, Where
from mpi_runtime.scheduler.protocol.questions import NodeOfRank, Nodes
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.builders import DRIVER, UNIT, Cluster, spec_of


def test_an_executor_is_told_of_until_it_is_gone() -> None:
    with Cluster().head().node(cpus=1) as cluster:
        executor = cluster.placed(cluster.actor())
        cluster.started(executor)
        answers = cluster.scheduler
        assert answers.rank_of(executor) == 1
        assert answers.describe_executor(executor) == Described(4000 + executor, 1, "host1", "")
        cluster.client_says(executor, Titled("Counter(3)"))
        assert answers.describe_executor(executor).title == "Counter(3)"
        cluster.died(executor)
        assert answers.rank_of(executor) == -1
        assert answers.describe_executor(executor) == Described()
        cluster.forget()


def test_a_function_is_told_by_its_spec() -> None:
    with Cluster().node() as cluster:
        cluster.placed(cluster.submit(name="prepare"))
        (spec,) = cluster.state.functions
        assert cluster.scheduler.name_of(spec) == "prepare"


def test_the_code_of_a_function_is_kept_once_for_all_its_options() -> None:
    with Cluster().node() as cluster:
        for number in range(3):
            code = bytes(bytearray(b"code"))
            cluster.client_says(DRIVER, spec_of(number, TaskSpec, f"name {number}", code))
        first, *others = cluster.state.functions.values()
        assert [one.spec.function is first.spec.function for one in others] == [True, True]


def test_a_processor_is_free_where_no_call_has_it() -> None:
    with Cluster().head().node(cpus=1, ranks=2) as cluster:
        has_free_cpu = cluster.scheduler.has_free_cpu
        assert [has_free_cpu(rank) for rank in (0, 1, 2)] == [True, True, True]
        executor = cluster.placed(call := cluster.submit())
        assert [has_free_cpu(rank) for rank in (0, 1, 2)] == [True, False, False], "calls never run on rank 0"
        cluster.done(executor, call)
        cluster.told(call, DRIVER)
        assert has_free_cpu(1)
        assert has_free_cpu(3), "a rank that has not joined"


def test_what_is_wrong_with_gpus_is_told_when_the_job_begins() -> None:
    with Cluster() as cluster:
        cluster.join(RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30, gpu_problems=["one GPU is lost"]))
        assert cluster.notes == []
        assert cluster.begin() == ""
        assert cluster.notes == ["host host0: one GPU is lost."]


def test_a_job_that_is_refused_tells_why_and_nothing_else() -> None:
    with Cluster() as cluster:
        cluster.join(RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30, gpu_problems=["one GPU is lost"]))
        assert cluster.begin(2) == "init(num_gpus=2), but host host0 has no GPU for this job."
        assert cluster.notes == []


def test_nodes_have_numbers_of_their_own() -> None:
    with Cluster().node(cpus=1, ranks=3).node(cpus=1, ranks=2).node(cpus=1) as cluster:
        assert [(node.id, node.ranks) for node in cluster.ask(Nodes())] == [
            (f"{0:032x}", [0, 1, 2]),
            (f"{1:032x}", [3, 4]),
            (f"{2:032x}", [5]),
        ]
        ids = [cluster.ask(NodeOfRank(rank)) for rank in range(6)]
        assert ids == [f"{number:032x}" for number in (0, 0, 0, 1, 1, 2)]


def busy_job() -> None:
    """A job that ends with much unfinished."""
    with Cluster().node(cpus=6, ranks=2) as cluster:
        executor = cluster.placed(ended := cluster.submit())
        cluster.started(executor)
        cluster.done(executor, ended)
        group = cluster.group({"cpu": 1}, {"cpu": 1})
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.started(executor)
        cluster.client_says(executor, Titled("Counter(3)"))
        cluster.submit(cluster.method(actor), where=Where(group=group, bundle=0))
        cluster.submit(ranks=2)
        cluster.submit(alternatives=(Request(2 * UNIT),))
        cluster.submit(*cluster.submit_many(40), cpu=3)
        cluster.group({"cpu": 4}, {"cpu": 4})
        cluster.forget()
    cluster.scheduler.close()


def test_an_ended_job_leaves_no_memory() -> None:
    busy_job()
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10):
            busy_job()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 10 * 500, "each job has some 40 kB of records"
