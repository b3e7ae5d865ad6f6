"""Reports of the ends of members: that of one that called MPI_Abort waits for those of other nodes."""

from collections.abc import Iterator

import pytest

from mpi_runtime.agent.executors import LocalExecutor
from mpi_runtime.agent.gangs import Gangs
from mpi_runtime.agent.poller import Poller


@pytest.fixture
def gangs() -> Iterator[Gangs]:
    def never(*_: object) -> None:
        raise AssertionError

    poller = Poller()
    one = Gangs(poller, 1, "/nowhere", never, never, never, never, never)
    yield one
    one.close()
    poller.close()


def test_the_end_of_a_member_that_aborted_is_reported_after_others(
    gangs: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    aborted, other = (LocalExecutor(number, 0, -1, None) for number in (1, 2))
    aborted.end_waits_s = 0.25
    reported: list[int] = []
    gangs.report_end(aborted, lambda: reported.append(1))
    gangs.report_end(other, lambda: reported.append(2))
    assert (gangs.turn(), reported) == (0.25, [2])
    now_s += 0.125
    assert (gangs.turn(), reported) == (0.125, [2])
    now_s += 0.125
    assert (gangs.turn(), reported) == (None, [2, 1])
    assert (gangs.turn(), reported) == (None, [2, 1])
