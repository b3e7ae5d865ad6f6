"""What the head forgets when a rank is lost."""

from types import SimpleNamespace
from typing import Any

from mpi_runtime.core.head.head import Head
from tests.builders import Cluster


def test_names_and_bars_of_executors_of_a_lost_rank_are_forgotten() -> None:
    with Cluster().node(1).node(2) as cluster:
        executor = cluster.placed(cluster.submit())
        rank = cluster.scheduler.rank_of(executor)
        ended: list[int] = []
        head: Any = Head.__new__(Head)
        head._drivers = None
        head._names, head._recorded = {executor: "of the lost rank", 99: "of another"}, None
        head._lost, head._working, head._has_begun, head._joined = set(), {1, 2}, True, {1: None, 2: None}
        head._agent = SimpleNamespace(custodian=SimpleNamespace(lose=lambda rank: None))
        head._printer = SimpleNamespace(ended=ended.append)
        head._scheduler = cluster.scheduler
        head._lose(rank)
        assert head._names == {99: "of another"}
        assert ended == [executor]
        cluster.forget()
