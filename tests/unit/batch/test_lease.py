"""A command that a stopped job had queued does not begin late, on hosts with any clock."""

import time
from collections import deque

import pytest

from mpi_runtime.batch.run.attempts import is_too_late

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
