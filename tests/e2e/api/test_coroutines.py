"""Actors with coroutines: order, references, constructors, cancelled calls."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import ObjectRef, cancel, get, kill, remote
from mpi_runtime.errors import ActorDiedError, TaskCancelledError
from tests.e2e.shared import is_open, until_cancels_have_come
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")


@remote
class Signal:
    """Many wait, one wakes them."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0

    async def wait(self) -> str:
        self.waiting += 1
        await self.event.wait()
        return "woken"

    async def wake(self) -> int:
        self.event.set()
        return self.waiting

    def plain(self) -> int:
        return self.waiting


def test_a_thousand_coroutines_wait_at_once() -> None:
    signal = Signal.remote()
    refs = [signal.wait.remote() for _ in range(900)]
    while get(signal.plain.remote()) < 900:
        time.sleep(0.01)
    assert mpi_runtime.wait(refs, timeout=0.05)[0] == []
    assert get(signal.wake.remote()) == 900
    assert get(refs) == ["woken"] * 900


def test_coroutines_start_in_order_and_no_more_than_allowed() -> None:
    @remote(max_concurrency=1)
    class One:
        def __init__(self) -> None:
            self.log: list[Any] = []

        async def work(self, number: int) -> None:
            self.log.append(("start", number))
            await asyncio.sleep(0.001)
            self.log.append(("end", number))

        async def seen(self) -> list[Any]:
            return self.log

    one = One.remote()
    for number in range(5):
        one.work.remote(number)
    assert get(one.seen.remote()) == [(what, number) for number in range(5) for what in ("start", "end")]


def test_a_method_that_returns_a_reference_does_not_wait_for_it() -> None:
    signal = Signal.remote()

    @remote
    class Mixed:
        async def coroutine(self, signal: Any) -> Any:
            return signal.wait.remote()

        def method(self, signal: Any) -> Any:
            return signal.wait.remote()

        def later(self) -> Any:
            return self.soon()

        async def soon(self) -> int:
            return 3

    mixed = Mixed.remote()
    refs = get([mixed.method.remote(signal), mixed.coroutine.remote(signal)], timeout=30)
    assert [type(ref) for ref in refs] == [ObjectRef, ObjectRef]
    get(signal.wake.remote())
    assert get(refs) == ["woken", "woken"]
    assert get(mixed.later.remote()) == 3


def test_coroutines_await_refs() -> None:
    @remote
    def slow(value: int) -> int:
        time.sleep(0.05)
        return value

    @remote
    def fails() -> None:
        raise KeyError("no")

    @remote
    class Gatherer:
        async def gather(self, count: int) -> int:
            return sum(await asyncio.gather(*[slow.remote(index) for index in range(count)]))

        async def one(self, refs: list[Any]) -> Any:
            return await refs[0]

        async def caught(self) -> str:
            try:
                await fails.remote()
            except KeyError as error:
                return type(error).__name__
            return "nothing"

    gatherer = Gatherer.remote()
    assert get([gatherer.gather.remote(4) for _ in range(3)]) == [6, 6, 6]
    assert get(gatherer.one.remote([mpi_runtime.put("x")])) == "x"
    assert get(gatherer.caught.remote()) == "TaskError(KeyError)"


def test_a_constructor_runs_in_the_loop() -> None:
    @remote
    class Async:
        def __init__(self, number: int) -> None:
            self.loop = asyncio.get_running_loop()
            self.number = asyncio.create_task(self.later(get(mpi_runtime.put(number))))

        async def later(self, number: int) -> int:
            return number

        async def seen(self) -> tuple[bool, int]:
            return asyncio.get_running_loop() is self.loop, await self.number

    assert get(Async.remote(3).seen.remote(), timeout=20) == (True, 3)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_constructor_that_raises_in_the_loop(error: BaseException) -> None:
    @remote
    class Plain:
        def __init__(self) -> None:
            raise error

        async def run(self) -> None:
            pass

    @remote
    class Async:
        async def __init__(self) -> None:  # type: ignore[misc]
            raise error

        async def run(self) -> None:
            pass

    for made in (Plain.remote(), Async.remote()):
        with pytest.raises(ActorDiedError):
            get(made.run.remote(), timeout=30)


def test_a_coroutine_that_swallows_its_cancellation_has_no_value() -> None:
    @remote
    class Async:
        async def sleep(self) -> int:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return 1

        async def run(self) -> int:
            return 2

    actor = Async.remote()
    ref = actor.sleep.remote()
    get(actor.run.remote())
    cancel(ref)
    with pytest.raises(TaskCancelledError):
        get(ref, timeout=20)
    assert get(actor.run.remote()) == 2


def test_a_coroutine_is_cancelled() -> None:
    @remote
    class Async:
        def __init__(self) -> None:
            self.ended: list[str] = []

        async def sleep(self) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise

        async def seen(self) -> list[str]:
            return self.ended

    actor = Async.remote()
    ref = actor.sleep.remote()
    get(actor.seen.remote())
    cancel(ref)
    with pytest.raises(TaskCancelledError):
        get(ref, timeout=20)
    assert get(actor.seen.remote()) == ["cancelled"]


def test_a_coroutine_that_has_not_begun_is_cancelled(tmp_path: Path, gate: Path) -> None:
    @remote
    class Async:
        def hold_up(self) -> None:
            is_open(gate)

        async def plain(self) -> int:
            return 1

    actor = Async.remote()
    get(actor.plain.remote())
    actor.hold_up.remote()
    refs = [actor.plain.remote() for _ in range(3)]
    cancel(refs[1])
    until_cancels_have_come(tmp_path)
    gate.touch()
    with pytest.raises(TaskCancelledError):
        get(refs[1], timeout=20)
    assert get(refs[::2]) == [1, 1]


def test_what_a_coroutine_has_submitted_is_cancelled_with_it() -> None:
    @remote
    def long() -> None:
        time.sleep(60)

    @remote
    class Async:
        def __init__(self) -> None:
            self.refs: list[Any] = []

        async def wait(self, key: int) -> None:
            self.refs.append(long.remote())
            await self.refs[-1]

        async def child(self, index: int) -> Any:
            return self.refs[index : index + 1]

    actor = Async.remote()
    first, second = actor.wait.remote(0), actor.wait.remote(1)
    children = [get(get(actor.child.remote(index)) and actor.child.remote(index))[0] for index in range(2)]
    cancel(second)
    with pytest.raises(TaskCancelledError):
        get(second, timeout=20)
    with pytest.raises(TaskCancelledError):
        get(children[1], timeout=20)
    assert mpi_runtime.wait([first, children[0]], num_returns=2, timeout=0.1)[0] == []
    cancel(first)
    with pytest.raises(TaskCancelledError):
        get(children[0], timeout=20)


def test_a_coroutine_cleans_up_with_a_call(tmp_path: Path) -> None:
    @remote
    def clean() -> None:
        (tmp_path / "cleaned").touch()

    @remote
    class Async:
        async def sleep(self) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await clean.remote()
                raise

        async def run(self) -> int:
            return 1

    actor = Async.remote()
    ref = actor.sleep.remote()
    get(actor.run.remote())
    cancel(ref)
    with pytest.raises(TaskCancelledError):
        get(ref, timeout=20)
    assert (tmp_path / "cleaned").exists()


def test_killed_while_many_wait() -> None:
    signal = Signal.remote()
    refs = [signal.wait.remote() for _ in range(10)]
    get(signal.plain.remote())
    kill(signal)
    for ref in refs:
        with pytest.raises(ActorDiedError):
            get(ref, timeout=20)


def test_it_is_started_again() -> None:
    @remote(max_restarts=1, max_task_retries=1)
    class Async:
        async def where(self) -> int:
            import os

            return os.getpid()

    actor = Async.remote()
    pid = get(actor.where.remote())
    kill(actor, no_restart=False)
    assert get(actor.where.remote()) != pid


def test_large_values_in_and_out() -> None:
    numpy = pytest.importorskip("numpy")

    @remote
    class Async:
        async def double(self, array: Any) -> Any:
            await asyncio.sleep(0.001)
            return 2 * array

    actor = Async.remote()
    array = mpi_runtime.put(numpy.ones(300_000))
    results = get([actor.double.remote(array) for _ in range(10)])
    assert all((result == 2).all() for result in results)


PROGRAM = """
import asyncio
import mpi_runtime

@mpi_runtime.remote
class Signal:
    def __init__(self):
        self.event = asyncio.Event()
    async def wait(self):
        await self.event.wait()
        return mpi_runtime.get_runtime_context().get_rank()
    async def wake(self):
        self.event.set()

@mpi_runtime.remote
def wait(signal):
    return mpi_runtime.get(signal.wait.remote())

mpi_runtime.init(num_cpus=2)
signal = Signal.remote()
refs = [wait.remote(signal) for _ in range(20)]
direct = [signal.wait.remote() for _ in range(50)]
assert mpi_runtime.wait(refs, timeout=0.5)[0] == []
mpi_runtime.get(signal.wake.remote())
assert len(set(mpi_runtime.get(refs + direct))) == 1
print("woken")
"""


@pytest.mark.mpi
def test_on_several_ranks() -> None:
    assert run_program(PROGRAM, ranks=3).expect().stdout == "woken\n"
