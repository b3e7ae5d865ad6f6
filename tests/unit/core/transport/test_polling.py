"""Looking before sleeping: only where it was granted, and only after a short wait."""

import time

import pytest

from mpi_runtime.core.transport import polling
from mpi_runtime.core.transport.polling import LOOK_S, SHORT_S, Patience


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a single one nobody ever looks."""
    monkeypatch.setattr(polling, "cpus_allowed", lambda: [0, 1])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as its only item."""
    now = [100.0]
    monkeypatch.setattr(polling.time, "monotonic", lambda: now[0])
    return now


def wait(waiting: Patience, clock: list[float], seconds: float) -> bool:
    """A wait of this length; whether it began with looking."""
    looked = waiting.begin(None)
    clock[0] += seconds
    waiting.end()
    return looked


def test_nobody_looks_unless_granted(clock: list[float]) -> None:
    waiting = Patience()
    assert [wait(waiting, clock, 0.0) for _ in range(3)] == [False] * 3


def test_nobody_looks_where_there_is_one_processor(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "cpus_allowed", lambda: [0])
    waiting = Patience()
    waiting.is_granted = True
    assert [wait(waiting, clock, 0.0) for _ in range(3)] == [False] * 3


def test_one_looks_after_a_short_wait(clock: list[float]) -> None:
    waiting = Patience()
    waiting.is_granted = True
    seconds = (SHORT_S / 2, 0.0, 0.0, 0.0, 2 * SHORT_S, SHORT_S / 2, 0.0)
    assert [wait(waiting, clock, one) for one in seconds] == [False, True, True, True, True, False, True]


def test_who_looks_in_vain_sleeps_for_the_next_waits(clock: list[float]) -> None:
    """Though they are short: what is waited for takes longer than one looks."""
    waiting = Patience()
    waiting.is_granted = True
    looks = [wait(waiting, clock, 2 * LOOK_S) for _ in range(200)]
    assert looks[:3] == [False, True, False]
    assert 2 <= sum(looks) <= 10, "it tries again, now and then"


def test_looking_goes_on_where_it_finds_more_than_it_misses(clock: list[float]) -> None:
    waiting = Patience()
    waiting.is_granted = True
    often = [wait(waiting, clock, 2 * LOOK_S if number % 8 == 7 else LOOK_S / 2) for number in range(80)]
    assert all(often[1:])
    rarely = [wait(waiting, clock, LOOK_S / 2 if number % 3 == 2 else 2 * LOOK_S) for number in range(300)]
    assert sum(rarely) < 100 / 3, "of a hundred that it would find"


@pytest.mark.parametrize(("timeout_s", "look_s"), [(None, LOOK_S), (1.0, LOOK_S), (LOOK_S / 2, LOOK_S / 2)])
def test_one_looks_for_a_moment_and_no_longer_than_the_wait_may_last(
    timeout_s: float | None, look_s: float, clock: list[float]
) -> None:
    waiting = Patience()
    waiting.is_granted = True
    wait(waiting, clock, 0.0)
    assert waiting.begin(timeout_s)
    clock[0] += 0.9 * look_s
    assert waiting.look_again()
    clock[0] += 0.2 * look_s
    assert not waiting.look_again()


def test_looking_lets_others_run() -> None:
    waiting = Patience()
    waiting.is_granted = True
    waiting.begin(None)
    waiting.end()
    start = time.monotonic()
    assert waiting.begin(None)
    while waiting.look_again():
        pass
    assert time.monotonic() - start >= LOOK_S
