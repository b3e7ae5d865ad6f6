"""Ctrl-C is put off while a message is under way, and only then."""

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from mpi_runtime.client.interrupts import Interrupts


@pytest.fixture(autouse=True)
def seen() -> Iterator[list[int]]:
    """The signals that the program's own handler got."""
    got: list[int] = []

    def handler(number: int, _: FrameType | None) -> None:
        got.append(number)

    before = signal.signal(signal.SIGINT, handler)
    yield got
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_outside_it_comes_at_once(seen: list[int]) -> None:
    interrupts = Interrupts()
    with interrupts:
        pass
    interrupt()
    assert seen == [signal.SIGINT]


def test_inside_it_waits_until_the_outermost_is_left(seen: list[int]) -> None:
    interrupts = Interrupts()
    with interrupts:
        with interrupts:
            interrupt()
            assert seen == []
        assert seen == []
    assert seen == [signal.SIGINT]


def test_a_second_one_does_not_wait(seen: list[int]) -> None:
    interrupts = Interrupts()
    with interrupts:
        interrupt()
        interrupt()
        assert seen == [signal.SIGINT]
    assert seen == [signal.SIGINT]


def test_a_keyboard_interrupt_is_raised_when_it_is_left() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = Interrupts()
    done = False
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupts:
            interrupt()
            done = True
        pytest.fail("it went on")
    assert done


def test_a_handler_that_the_program_sets_later_is_asked() -> None:
    interrupts = Interrupts()
    with interrupts:
        pass
    later: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: later.append(number))
    with interrupts:
        interrupt()
        assert later == []
    assert later == [signal.SIGINT]


def test_a_program_without_handler_stays_without() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts = Interrupts()
    with interrupts:
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_put_nothing_off(seen: list[int]) -> None:
    interrupts = Interrupts()
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with interrupts:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    interrupt()
    assert seen == [signal.SIGINT]
    leave.set()
    thread.join()


def test_outside_the_programs_own_handler_is_in_place() -> None:
    """asyncio and trio look for it and put theirs in its place."""
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
