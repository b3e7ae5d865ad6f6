"""Actors that take several calls at a time: threads, concurrency groups, order."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import cancel, get, method, remote
from mpi_runtime.errors import ActorDiedError, TaskCancelledError
from tests.e2e.shared import is_open, until_cancels_have_come

pytestmark = pytest.mark.usefixtures("job")


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


def test_an_actor_outlives_the_stop_of_its_loop_and_ends_with_a_task_in_it_that_exits() -> None:
    @remote
    class Loops:
        async def stop(self) -> int:
            asyncio.get_running_loop().stop()
            return 1

        async def leave(self, code: int) -> None:
            async def background() -> None:
                raise SystemExit(code)

            self.task = asyncio.create_task(background())
            await asyncio.sleep(60)

    actor = Loops.remote()
    assert get([actor.stop.remote(), actor.stop.remote()], timeout=20) == [1, 1]
    with pytest.raises(ActorDiedError, match="exited with code 3"):
        get(actor.leave.remote(3), timeout=20)
    with pytest.raises(ActorDiedError, match="ended itself"):
        get(Loops.remote().leave.remote(0), timeout=20)


def test_a_clock_that_user_code_has_replaced_ends_no_process() -> None:
    @remote(max_retries=0)
    def freeze() -> int:
        time.monotonic_ns = lambda: 0
        return 1

    assert get([freeze.options(max_calls=1).remote() for _ in range(2)]) == [1, 1]


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
