"""Tables by type of message: each message that may arrive has its row."""

from typing import get_args

from mpi_runtime.core.agent import agent
from mpi_runtime.core.head import head
from mpi_runtime.core.transport.messages import ForAgent, Idle, Pull, Unpull, WorkerToHead
from mpi_runtime.scheduler.protocol.effects import RankEffect
from mpi_runtime.scheduler.protocol.rank_events import RankLost


def test_an_agent_obeys_each_effect_and_message() -> None:
    assert set(agent._ORDERS) == {*get_args(RankEffect), *get_args(ForAgent)}


def test_the_head_takes_each_report() -> None:
    """It finds out itself that a rank is lost, and takes `Idle` only at the end of a job."""
    assert set(head._REPORTS) == {*get_args(WorkerToHead), Pull, Unpull} - {RankLost, Idle}
