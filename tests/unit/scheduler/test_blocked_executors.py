"""Calls that wait for objects: what they lend meanwhile."""

from mpi_runtime.scheduler.protocol.events import BLOCKED_IDS_MAX
from tests.builders import LARGE, Cluster


def test_a_call_that_waits_for_what_is_there_keeps_its_cpu() -> None:
    with Cluster().node() as cluster:
        small, large = cluster.put(), cluster.put(size=LARGE, rank=0)
        executor = cluster.placed(cluster.submit())
        cluster.held(executor, small, large)
        cluster.subscribed(executor, small, large)
        cluster.forget()
        other = cluster.submit()
        cluster.blocked(executor, small, large)
        cluster.nothing()
        cluster.unblocked(executor)
        cluster.nothing()
        cluster.blocked(executor, small, other)
        cluster.placed(other)


def test_a_call_that_waits_for_more_than_it_says_lends_its_cpu() -> None:
    with Cluster().node() as cluster:
        there = [cluster.put() for _ in range(BLOCKED_IDS_MAX)]
        executor = cluster.placed(cluster.submit())
        cluster.held(executor, *there)
        other = cluster.submit()
        cluster.blocked(executor, *there)
        cluster.placed(other)
