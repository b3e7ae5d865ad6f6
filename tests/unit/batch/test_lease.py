"""A command that a stopped job had queued does not begin late, on hosts with any clock."""

import time
from collections import deque
from types import SimpleNamespace

import pytest

from mpi_runtime.batch.run import attempts
from mpi_runtime.batch.run.attempts import has_expired, is_too_late

LEASE_S = 5.0


@pytest.mark.parametrize("skew_s", [0.0, 18_000.0, -25_000.0])
def test_only_a_command_that_waited_is_too_late(skew_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = deque[float](maxlen=4)

    def is_late(sent_s: float, waited_s: float) -> bool:
        monkeypatch.setattr(time, "time", lambda: sent_s + waited_s + skew_s)
        return is_too_late(sent_s, sent_s + LEASE_S, delays)

    assert [is_late(1000.0 + number, 0.2) for number in range(3)] == [False] * 3
    assert is_late(1010.0, 60.0)
    assert not is_late(1080.0, 0.3)
    skew_s += 3600.0  # the clock is set: commands are refused, and begin a little later
    assert [is_late(1090.0 + number, 0.1) for number in range(4)] == [True, True, True, False]
    skew_s -= 7200.0
    assert not is_late(1100.0, 0.1)


@pytest.mark.parametrize("host", [0, 2])
def test_on_the_host_that_submits_the_first_command_of_a_process_can_be_too_late(
    host: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_delays", deque[float](maxlen=4))
    client = SimpleNamespace(questions=SimpleNamespace(host=host))
    monkeypatch.setattr(attempts, "job", lambda: client)
    sent_s = time.time() - 60.0
    assert has_expired(sent_s, sent_s + LEASE_S) is (host == 0)
    assert not has_expired(time.time(), time.time() + LEASE_S)


def test_if_a_command_is_too_late_on_one_rank_it_begins_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """A rank that is in time, in a gang with one that is not."""

        def any_of_all(self, one: bool) -> bool:
            assert not one
            return True

    monkeypatch.setattr(attempts, "Rank", Other)
    monkeypatch.setattr(attempts, "has_expired", lambda sent_s, until_s: False)
    assert attempts.run_ranks(None, b"never read", "out", False, 1.0, 2.0, "") == b""
