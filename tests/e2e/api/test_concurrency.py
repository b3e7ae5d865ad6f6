"""Actors that take several calls at a time: threads, coroutines, concurrency groups."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import cancel, get, kill, method, remote
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


@remote(max_concurrency=3)
class Meeting:
    """Nobody leaves before so many are there."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)

    def meet(self) -> int:
        return self.barrier.wait(timeout=20)

    def ids(self) -> Any:
        context = mpi_runtime.get_runtime_context()
        before = context.get_task_id()
        time.sleep(0.02)
        return before, context.get_task_id(), context.get_task_name()


def test_threads_meet() -> None:
    meeting = Meeting.remote(3)
    assert sorted(get([meeting.meet.remote() for _ in range(3)], timeout=30)) == [0, 1, 2]
    assert sorted(get([meeting.meet.remote() for _ in range(6)], timeout=30)) == [0, 0, 1, 1, 2, 2]


def test_no_more_than_allowed() -> None:
    @remote(max_concurrency=2)
    class Counted:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.now = self.most = 0

        def work(self) -> None:
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.01)
            with self.lock:
                self.now -= 1

        def seen(self) -> int:
            return self.most

    counted = Counted.remote()
    get([counted.work.remote() for _ in range(20)])
    assert get(counted.seen.remote()) == 2


def test_each_call_knows_itself() -> None:
    meeting = Meeting.remote(1)
    refs = [meeting.ids.remote() for _ in range(6)]
    for ref, (before, after, name) in zip(refs, get(refs), strict=True):
        assert before == after == ref.hex()
        assert name == "Meeting.ids"


def test_calls_in_threads_submit_calls_and_wait() -> None:
    @remote
    def double(value: int) -> int:
        return 2 * value

    @remote(max_concurrency=4)
    class Asker:
        def ask(self, value: int) -> int:
            refs = [double.remote(value + index) for index in range(5)]
            return sum(get(refs))

    asker = Asker.remote()
    assert get([asker.ask.remote(10 * number) for number in range(8)]) == [100 * number + 20 for number in range(8)]


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


def test_errors_of_coroutines_and_threads() -> None:
    @remote
    class Async:
        async def fail(self) -> None:
            await asyncio.sleep(0)
            raise ZeroDivisionError("async")

    with pytest.raises(ZeroDivisionError, match="async"):
        get(Async.remote().fail.remote())
    meeting = Meeting.remote(2)
    with pytest.raises(TypeError, match="too many"):
        meeting.meet.remote("too many")


@remote(concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(3)
        self.gate = threading.Event()

    @method(concurrency_group="io")
    def read(self) -> bool:
        return self.gate.wait(timeout=20)

    @method(concurrency_group="compute")
    def open(self) -> str:
        self.gate.set()
        return "open"

    def thread(self) -> str:
        return threading.current_thread().name

    def meet(self) -> int:
        return self.barrier.wait(timeout=20)


def test_a_group_that_is_busy_holds_up_no_other() -> None:
    grouped = Grouped.remote()
    refs = [grouped.read.remote() for _ in range(400)]  # more than an actor is sent at a time
    assert get(grouped.open.remote(), timeout=30) == "open"
    assert get(refs) == [True] * 400


def test_a_group_for_one_call() -> None:
    grouped = Grouped.remote()
    refs = [grouped.meet.options(concurrency_group=group).remote() for group in ("io", "io", "compute")]
    assert sorted(get(refs, timeout=30)) == [0, 1, 2]
    with pytest.raises(ValueError, match="no concurrency group 'disk'; it has: 'io', 'compute'"):
        get(grouped.meet.options(concurrency_group="disk").remote())


def test_groups_of_coroutines() -> None:
    @remote(concurrency_groups={"few": 1})
    class Async:
        def __init__(self) -> None:
            self.is_open = False
            self.inside: list[int] = []

        @method(concurrency_group="few")
        async def wait(self) -> int:
            self.inside.append(1)
            while not self.is_open:  # an asyncio.Event belongs to the loop of one group
                await asyncio.sleep(0.001)
            return len(self.inside)

        async def open(self) -> None:
            while not self.inside:
                await asyncio.sleep(0.001)
            self.is_open = True

    actor = Async.remote()
    refs = [actor.wait.remote() for _ in range(3)]
    get(actor.open.remote(), timeout=30)
    assert get(refs, timeout=30) == [1, 2, 3]


def test_out_of_order(gate: Path) -> None:
    @remote
    def late() -> int:
        return int(is_open(gate))

    @remote(allow_out_of_order_execution=True)
    class Any_:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def add(self, value: Any) -> list[Any]:
            self.seen.append(value)
            return self.seen

    actor = Any_.remote()
    get(actor.add.remote("first"))
    last = actor.add.remote(late.remote())
    assert get(actor.add.remote(2)) == ["first", 2]
    gate.touch()
    assert get(last) == ["first", 2, 1]


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 3}])
def test_a_later_call_may_be_what_an_earlier_one_waits_for(options: dict[str, Any]) -> None:
    class Threaded:
        def __init__(self) -> None:
            self.gate = threading.Event()

        def wait(self) -> int:
            self.gate.wait(60)
            return 1

        def use(self, value: int) -> int:
            return value + 1

        def go(self) -> None:
            self.gate.set()

    class Async:
        def __init__(self) -> None:
            self.gate = asyncio.Event()

        async def wait(self) -> int:
            await self.gate.wait()
            return 1

        async def use(self, value: int) -> int:
            return value + 1

        async def go(self) -> None:
            self.gate.set()

    actor: Any = remote(Threaded).options(**options).remote() if options else remote(Async).remote()
    used = actor.use.remote(actor.wait.remote())
    actor.go.remote()
    assert get(used, timeout=30) == 2


def test_calls_that_run_at_the_same_time_cannot_be_kept_in_order() -> None:
    class Async:
        async def nothing(self) -> None:
            pass

    class Plain:
        pass

    plain: Any = remote(Plain)
    with pytest.raises(ValueError, match=r"has coroutines.*allow_out_of_order_execution=False"):
        remote(Async).options(allow_out_of_order_execution=False).remote()
    with pytest.raises(ValueError, match=r"max_concurrency above 1.*allow_out_of_order_execution=False"):
        plain.options(allow_out_of_order_execution=False, max_concurrency=2).remote()
    plain.options(allow_out_of_order_execution=False, concurrency_groups={"io": 2}).remote()


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


def test_a_queued_call_of_a_busy_actor_is_cancelled(tmp_path: Path, gate: Path) -> None:
    @remote(max_concurrency=2)
    class Busy:
        def work(self) -> bool:
            return is_open(gate)

    busy = Busy.remote()
    refs = [busy.work.remote() for _ in range(4)]
    cancel(refs[3])
    until_cancels_have_come(tmp_path)
    gate.touch()
    with pytest.raises(TaskCancelledError):
        get(refs[3], timeout=20)
    assert get(refs[:3]) == [True] * 3


def test_killed_while_many_wait() -> None:
    signal = Signal.remote()
    refs = [signal.wait.remote() for _ in range(10)]
    get(signal.plain.remote())
    kill(signal)
    for ref in refs:
        with pytest.raises(ActorDiedError):
            get(ref, timeout=20)


def test_it_ends_itself_from_a_coroutine_and_from_a_thread() -> None:
    @remote
    class Async:
        async def leave(self) -> None:
            mpi_runtime.actor.exit_actor()

    @remote(max_concurrency=2)
    class Threads:
        def leave(self) -> None:
            mpi_runtime.actor.exit_actor()

    for actor in (Async.remote(), Threads.remote()):
        with pytest.raises(ActorDiedError, match="exit_actor"):
            get(actor.leave.remote(), timeout=20)


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


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="max_concurrency must be 1 or more"):
        Meeting.options(max_concurrency=0)
    with pytest.raises(ValueError, match="must be 1 or more"):
        Grouped.options(concurrency_groups={"io": 0})
    with pytest.raises(TypeError, match="dict"):
        Grouped.options(concurrency_groups=["io"])

    @remote
    class Wrong:
        @method(concurrency_group="io")
        def read(self) -> None:
            """Of a group that its class does not have."""

    with pytest.raises(ValueError, match="concurrency group 'io', which the class does not have"):
        Wrong.remote()


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
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_on_several_ranks(mpi: str) -> None:
    assert run_program(PROGRAM, ranks=3, mpi=mpi).expect().stdout == "woken\n"
