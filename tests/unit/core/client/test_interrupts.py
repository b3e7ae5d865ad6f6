"""Ctrl-C and cancels are put off while a message is under way, and only then."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from mpi_runtime.core.client import interrupts as module
from mpi_runtime.core.client.interrupts import CANCEL_SIGNAL, Interrupts, is_of_handler, repeat_ignored
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.executor import cancels as executor_cancels
from mpi_runtime.core.executor.cancels import Cancels
from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.protocol.ids import ID_BYTES, attempt_of
from tests.helpers import stable_id

LONG_S = 20.0
"""Longer than anything takes."""


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
@pytest.mark.parametrize("make", [Interrupts, lambda: Cancels(-1)], ids=["driver", "executor"])
def test_a_handler_of_asyncio_runs_once(make: Callable[[], AbstractContextManager[None]], number: int) -> None:
    """The signal itself wakes the event loop, so it must not be raised again."""
    handled: list[int] = []

    async def run() -> None:
        asyncio.get_running_loop().add_signal_handler(number, handled.append, number)
        with make():
            os.kill(os.getpid(), number)
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert handled == [number]


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF])
@pytest.mark.parametrize("make", [Interrupts, lambda: Cancels(-1)], ids=["driver", "executor"])
def test_an_alarm_waits_too_and_its_error_is_raised_when_it_is_left(
    make: Callable[[], AbstractContextManager[None]], number: int
) -> None:
    def late(*_: object) -> None:
        raise TimeoutError("too late")

    interrupts, done = make(), False
    before = signal.signal(number, late)
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError, match="too late"):  # noqa: PT012
                with interrupts:
                    signal.raise_signal(number)
                    done = True
                pytest.fail("it went on")
            assert done
            assert signal.getsignal(number) is late
    finally:
        signal.signal(number, before)


def test_an_alarm_while_handlers_are_replaced_leaves_ctrl_c_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise TimeoutError("too late")

    def replace(number: int, handler: Any) -> None:
        signal.signal(number, handler)
        if number == signal.SIGINT:
            signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGALRM, late)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_signal", SimpleNamespace(getsignal=signal.getsignal, signal=replace))
            with pytest.raises(TimeoutError), Interrupts():
                pytest.fail("the alarm did not come")
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    finally:
        signal.signal(signal.SIGALRM, before)


class _Late:
    def __call__(self, number: int, frame: object) -> None:
        raise TimeoutError("too late")

    def on(self, number: int, frame: object) -> None:
        self(number, frame)


def _late(*_: object) -> None:
    raise TimeoutError("too late")


@pytest.mark.parametrize("handler", [_late, _Late(), _Late().on, partial(_Late().on)], ids=stable_id)
def test_an_error_is_known_to_be_of_a_handler(handler: Any) -> None:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeoutError) as caught:
            list(map(signal.raise_signal, [signal.SIGALRM]))  # within C, as pickling is
        assert is_of_handler(caught.value)
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(TimeoutError) as caught:
        _late(1, None)
    assert not is_of_handler(caught.value)


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


@pytest.fixture
def cancels() -> Iterator[tuple[Cancels, Callable[[], None]]]:
    """What an executor knows of cancels while it runs a call, and a function that cancels the call."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    call = Call(b"x" * 16, 1, b"")
    found = Cancels(reading)
    found.interruptible = call
    before, hook = signal.getsignal(CANCEL_SIGNAL), sys.unraisablehook
    found.listen()

    def cancel() -> None:
        os.write(writing, attempt_of(call.id, call.attempt))
        os.kill(os.getpid(), CANCEL_SIGNAL)

    yield found, cancel
    found.interruptible = None
    signal.signal(CANCEL_SIGNAL, before)
    sys.unraisablehook = hook
    os.close(reading)
    os.close(writing)


def test_a_cancel_interrupts_a_call(cancels: tuple[Cancels, Callable[[], None]]) -> None:
    with pytest.raises(KeyboardInterrupt):
        cancels[1]()


def test_a_cancel_waits_until_the_outermost_is_left(cancels: tuple[Cancels, Callable[[], None]]) -> None:
    found, cancel = cancels
    done = 0
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with found:
            with found:
                cancel()
                done += 1
            done += 1
        pytest.fail("it went on")
    assert done == 2
    with found:
        done += 1
    assert done == 3, "it interrupts once"


def test_a_cancel_that_comes_in_the_last_moment_interrupts_once(cancels: tuple[Cancels, Callable[[], None]]) -> None:
    """Python runs the handler of a signal also within `__exit__`, before and after it has said that nothing waits."""
    found, cancel = cancels
    count = 0

    def in_exit(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not Cancels.__exit__.__code__:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == moment:
                cancel()
        return in_exit

    for moment in range(1, 5):
        lines: list[int] = []
        interrupted = 0
        found.attempts.clear()
        before = sys.gettrace()
        try:
            with found:
                sys.settrace(in_exit)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        with found:
            pass
        assert interrupted == (len(lines) >= moment)
        count += interrupted
    assert count >= 3


def test_cancels_that_come_after_the_end_of_their_calls_do_not_pile_up(
    cancels: tuple[Cancels, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, cancel = cancels
    monkeypatch.setattr(executor_cancels, "ATTEMPTS_MAX", 10)
    call, found.interruptible = found.interruptible, None
    for number in range(100):
        ended = Call(number.to_bytes(16, "big"), 1, b"", attempt=3)
        found.attempts[ended.id] = attempt_of(ended.id, 3)
        cancel()
        assert len(found.attempts) <= 11
        assert found.has(call)
        assert found.has(ended)
        assert not found.has(Call(ended.id, 1, b"", attempt=4))
        found.forget(b"x" * 16)
        assert not found.has(call)


def test_a_handler_that_is_in_place_again_may_install_another_and_use_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs between two of the handlers that are put back."""
    interrupts, moments = Interrupts(), iter(["while one is put back"])

    def late(number: int, _: FrameType | None) -> None:
        pass

    def early(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGVTALRM, late)
        with interrupts:
            pass

    def put(number: int, handler: Any) -> Any:
        before = signal.signal(number, handler)
        if handler is early and next(moments, None):
            signal.raise_signal(number)
        return before

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM, signal.SIGVTALRM)}
    signal.signal(signal.SIGINT, early)
    signal.signal(signal.SIGALRM, late)
    monkeypatch.setattr(module, "_signal", SimpleNamespace(getsignal=signal.getsignal, signal=put))
    try:
        with interrupts:
            pass
        assert [*map(signal.getsignal, before)] == [early, late, late]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Falls:
    """Is interrupted in its destructor, where Python ignores what is raised."""

    def __del__(self) -> None:
        interrupt()


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Ctrl-C raises as in most programs, and what Python ignores is repeated. The errors that are not."""
    others = list[Any]()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sys, "unraisablehook", others.append)
    repeat_ignored()
    return others


def test_an_ignored_interrupt_is_repeated(default: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        del (falls := [Falls()])[0]
        time.sleep(LONG_S)
    assert not falls
    assert not default


def test_one_that_a_handler_of_the_program_raised_is_not(default: list[Any]) -> None:
    def handler(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)
    del (falls := [Falls()])[0]
    time.sleep(3 * module.IGNORED_PAUSE_S)
    assert not falls
    assert [one.exc_type for one in default] == [KeyboardInterrupt]


def test_another_error_in_a_destructor_is_not(default: list[Any]) -> None:
    class Fails:
        def __del__(self) -> None:
            raise ValueError

    Fails()
    assert [one.exc_type for one in default] == [ValueError]


def test_an_interrupt_in_the_destructor_of_a_reference_does_not_keep_it(
    default: list[Any],
) -> None:
    dropped = list[bytes]()
    client: Any = SimpleNamespace(outbox=SimpleNamespace(drop=dropped.append))

    def interrupts(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is ObjectRef.__del__.__code__:
            sys.setprofile(None)
            interrupt()

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        refs = [ObjectRef[int](b"x" * ID_BYTES, client)]
        sys.setprofile(interrupts)
        refs.clear()
        time.sleep(LONG_S)
    assert dropped == [b"x" * ID_BYTES]
    assert not default
