"""Ends that nobody else tells of: ranks of this host that were killed."""

import os
import signal
from collections.abc import Iterator, Mapping

import pytest

from mpi_runtime.core.agent.leftovers import watch_head, watch_ranks
from mpi_runtime.core.transport.alone import Alone
from mpi_runtime.core.transport.base import HeadLostError, TransportError
from mpi_runtime.core.transport.poller import Poller


class Seeing(Alone):
    """A transport that knows the process of one neighbour."""

    neighbours: Mapping[int, int] = {}

    def __init__(self, pid: int, has_left: bool, rank: int = 1) -> None:
        super().__init__()
        self.hostnames = ["here", "here"]
        self.neighbours = {rank: pid}
        self._has_left = has_left

    def has_left(self, rank: int) -> bool:
        return self._has_left


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that sleeps."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def poller() -> Iterator[Poller]:
    """What a rank waits on."""
    poller = Poller()
    yield poller
    poller.close()


@pytest.mark.parametrize(
    ("library", "cure"),
    [
        (
            "Open MPI v5.0.11",
            r"Started with `mpi-runtime run --fault-tolerant`, the job would have continued without it\.",
        ),
        (
            "Open MPI v4.1.2",
            r"Open MPI v4\.1\.2 cannot continue without it\. Open MPI 5 can, if it is started with `mpi-ru",
        ),
        (
            "MPICH 5.0.2",
            r"MPICH 5\.0\.2 cannot continue without it\. Open MPI 5 can, if it is started with `mpi-runtime",
        ),
    ],
)
def test_a_rank_that_was_killed_is_named_with_what_would_have_helped(
    library: str, cure: str, sleeper: int, poller: Poller
) -> None:
    watch_ranks(poller, Seeing(sleeper, has_left=False), library)
    assert not poller.poll(0)
    os.kill(sleeper, signal.SIGKILL)
    with pytest.raises(
        TransportError, match=rf"^rank 1 on here \(pid {sleeper}\) has died, and the job ends: .*{cure}"
    ):
        poller.poll(10)


def test_a_rank_that_ends_by_itself_is_not_told_of(sleeper: int, poller: Poller) -> None:
    watch_ranks(poller, Seeing(sleeper, has_left=True), "MPICH 5.0.2")
    os.kill(sleeper, signal.SIGKILL)
    assert poller.poll(10)
    assert not poller.poll(0), "it is watched no more"


def test_a_rank_that_is_gone_already_is_left_to_mpi(poller: Poller) -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    watch_ranks(poller, Seeing(pid, has_left=False), "MPICH 5.0.2")
    assert not poller.poll(0)


def test_the_end_of_the_head_is_an_error(sleeper: int, poller: Poller) -> None:
    watch_head(poller, Seeing(sleeper, has_left=False, rank=0))
    assert not poller.poll(0)
    os.kill(sleeper, signal.SIGKILL)
    with pytest.raises(HeadLostError, match=r"^rank 0 on here has died, and with it the head"):
        poller.poll(10)


def test_the_end_of_another_rank_is_not_that_of_the_head(sleeper: int, poller: Poller) -> None:
    watch_head(poller, Seeing(sleeper, has_left=False))
    os.kill(sleeper, signal.SIGKILL)
    assert not poller.poll(0.1)


def test_a_head_that_has_ended_already_is_an_error(poller: Poller) -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    with pytest.raises(HeadLostError):
        watch_head(poller, Seeing(pid, has_left=False, rank=0))
