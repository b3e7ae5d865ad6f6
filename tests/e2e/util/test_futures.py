"""The executor: what `concurrent.futures` says an executor does, on tasks."""

import asyncio
import concurrent.futures
import logging
import operator
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.errors import MpiRuntimeError, RuntimeNotInitializedError, WorkerCrashedError
from mpi_runtime.util import futures
from mpi_runtime.util.background_calls import Dispatcher
from mpi_runtime.util.futures import Executor
from tests.e2e.shared import LONG_S, OwnError, fail, is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")

BOTH = pytest.mark.parametrize(
    "make", [pytest.param(lambda: concurrent.futures.ThreadPoolExecutor(2), id="standard"), pytest.param(Executor)]
)
Make = Callable[[], concurrent.futures.Executor]


class Made:
    """What a call makes."""

    def __init__(self, value: int) -> None:
        self.value = value


def later(value: int) -> int:
    time.sleep(0.1)
    return value


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mpi_runtime futures"]


# As in the standard library


@BOTH
def test_submit_passes_arguments(make: Make) -> None:
    with make() as executor:
        assert executor.submit(divmod, 17, 5).result(LONG_S) == (3, 2)
        assert executor.submit(dict, fn=1, self=2, function=3).result(LONG_S) == {"fn": 1, "self": 2, "function": 3}
        assert executor.submit(lambda *values: sum(values), *range(10)).result(LONG_S) == 45


@BOTH
def test_what_is_raised_is_of_the_user_s_class(make: Make) -> None:
    with make() as executor:
        future = executor.submit(fail, 5)
        error = future.exception(LONG_S)
        assert type(error) is OwnError
        assert (str(error), error.code) == ("mine", 5)
        with pytest.raises(OwnError):
            future.result()


@BOTH
def test_futures_can_be_waited_for(make: Make, gate: Path) -> None:
    with make() as executor:
        closed = executor.submit(is_open, str(gate))
        quick = executor.submit(operator.add, 1, 2)
        done, rest = wait([closed, quick], timeout=LONG_S, return_when=FIRST_COMPLETED)
        assert (done, rest) == ({quick}, {closed})
        gate.touch()
        assert wait([closed, quick], timeout=LONG_S).not_done == set()


@BOTH
def test_they_come_as_they_complete(make: Make, gate: Path) -> None:
    with make() as executor:
        futures: list[Future[Any]] = [executor.submit(is_open, str(gate)), executor.submit(abs, -1)]
        order = []
        for future in as_completed(futures, timeout=LONG_S):
            order.append(future.result())
            gate.touch()
        assert order == [1, True]


@BOTH
def test_asyncio_awaits_them(make: Make) -> None:
    async def main(executor: concurrent.futures.Executor) -> list[int]:
        loop = asyncio.get_running_loop()
        first = asyncio.wrap_future(executor.submit(operator.mul, 6, 7))
        second = loop.run_in_executor(executor, abs, -1)
        return [await first, await second]

    with make() as executor:
        assert asyncio.run(main(executor)) == [42, 1]


@BOTH
def test_map_is_like_the_built_in_one(make: Make) -> None:
    with make() as executor:
        assert list(executor.map(pow, [2, 3, 4], [5, 2, 1, 0])) == [32, 9, 4]
        assert list(executor.map(abs, range(-50, 0), chunksize=7)) == list(range(50, 0, -1))
        assert list(executor.map(abs, [])) == []
        for made in executor.map(Made, range(4), chunksize=2):
            seen = weakref.ref(made)
            del made
            assert seen() is None, "a result that was returned is not kept"


@BOTH
def test_map_raises_where_the_call_has_raised(make: Make) -> None:
    with make() as executor:
        results = executor.map(operator.truediv, [1, 1, 1], [1, 0, 1])
        assert next(results) == 1.0
        with pytest.raises(ZeroDivisionError):
            next(results)


@BOTH
def test_map_times_out(make: Make, gate: Path) -> None:
    with make() as executor:
        with pytest.raises(concurrent.futures.TimeoutError):
            list(executor.map(is_open, [str(gate)], timeout=0.05))
        gate.touch()


@BOTH
def test_nothing_is_submitted_after_shutdown(make: Make) -> None:
    executor = make()
    last = executor.submit(abs, -3)
    executor.shutdown()
    executor.shutdown()
    assert last.done()
    assert last.result() == 3
    with pytest.raises(RuntimeError):
        executor.submit(abs, 1)
    with pytest.raises(RuntimeError):
        executor.map(abs, [1])


@BOTH
def test_leaving_the_context_waits(make: Make) -> None:
    with make() as executor:
        futures = [executor.submit(time.sleep, 0.05) for _ in range(6)]
    assert all(future.done() for future in futures)
    with pytest.raises(RuntimeError):
        executor.submit(abs, 1)


@BOTH
def test_shutdown_need_not_wait(make: Make, gate: Path) -> None:
    executor = make()
    futures = [executor.submit(is_open, str(gate)) for _ in range(20)]
    executor.shutdown(wait=False)
    assert not any(future.done() for future in futures)
    gate.touch()
    assert all(future.result(LONG_S) for future in futures)


@BOTH
def test_callbacks_run_here_and_their_errors_do_no_harm(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[int, int]] = []
    gate = threading.Event()

    def note(future: Future[int]) -> None:
        gate.wait(LONG_S)
        seen.append((future.result(), os.getpid()))
        raise KeyError("in a callback")

    with caplog.at_level(logging.CRITICAL, "concurrent.futures"), make() as executor:
        for value in range(3):
            executor.submit(later, value).add_done_callback(note)
        gate.set()
    assert sorted(seen) == [(value, os.getpid()) for value in range(3)]


# Cancelling


def test_what_the_runtime_was_not_given_can_be_cancelled(gate: Path) -> None:
    with Executor(1) as executor:
        running = executor.submit(is_open, str(gate))
        waiting = [executor.submit(abs, number) for number in range(3)]
        wait_until(running.running)
        assert not running.cancel()
        assert waiting[1].cancel()
        gate.touch()
        assert [waiting[0].result(LONG_S), waiting[2].result(LONG_S)] == [0, 2]
        with pytest.raises(CancelledError):
            waiting[1].result()
        assert running.result() is True


def test_max_workers_bounds_what_is_in_flight(gate: Path) -> None:
    with Executor(3) as executor:
        futures = [executor.submit(is_open, str(gate)) for _ in range(8)]
        assert [future.running() for future in futures] == [True] * 3 + [False] * 5
        gate.touch()


def test_by_default_no_more_is_in_flight_than_keeps_the_cpus_busy(gate: Path) -> None:
    with Executor() as executor:
        futures = [executor.submit(is_open, str(gate)) for _ in range(100)]
        assert 4 <= sum(future.running() for future in futures) < 20
        executor.shutdown(wait=False, cancel_futures=True)
        gate.touch()


def test_shutdown_can_cancel(gate: Path) -> None:
    executor = Executor(2)
    futures = [executor.submit(is_open, str(gate)) for _ in range(6)]
    executor.shutdown(wait=False, cancel_futures=True)
    # Those who wait for them are told: `wait` does not count a future as done whose cancelling was not noted.
    assert wait(futures[2:], timeout=LONG_S).not_done == set()
    gate.touch()
    executor.shutdown()
    assert [future.cancelled() for future in futures] == [False] * 2 + [True] * 4


def test_map_cancels_what_nobody_wants_any_more(gate: Path) -> None:
    with Executor(1) as executor:
        closed = executor.submit(is_open, str(gate))
        results = executor.map(Path.touch, [gate.with_name(str(number)) for number in range(5)], timeout=0.05)
        with pytest.raises(concurrent.futures.TimeoutError):
            next(results)
        gate.touch()
        assert closed.result(LONG_S)
    assert [path.name for path in gate.parent.iterdir()] == [gate.name]


# The thread


def test_its_thread_is_there_only_while_something_is_in_flight(gate: Path) -> None:
    executor = Executor()
    assert not threads()
    future = executor.submit(is_open, str(gate))
    assert [thread.daemon for thread in threads()] == [True]
    gate.touch()
    future.result(LONG_S)
    wait_until(lambda: not threads())
    assert executor.submit(abs, -1).result(LONG_S) == 1
    executor.shutdown()
    assert not threads()


def test_a_callback_may_submit_and_shut_down() -> None:
    executor = Executor(1)
    more: list[Future[int]] = []
    ended = threading.Event()

    def go_on(future: Future[int]) -> None:
        more.append(executor.submit(operator.add, future.result(), 1))
        executor.shutdown(wait=True)
        ended.set()

    executor.submit(later, 1).add_done_callback(go_on)
    assert ended.wait(LONG_S)
    assert more[0].result(LONG_S) == 2
    executor.shutdown()


def test_a_callback_that_asks_its_thread_to_end_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: said.append(arguments.exc_type))

    def leave(_: object) -> None:
        raise SystemExit

    with Executor(1) as executor:
        executor.submit(time.sleep, 0.1).add_done_callback(leave)
        assert executor.submit(abs, -2).result(LONG_S) == 2
    assert said == [SystemExit]


def test_submitting_while_the_thread_waits_for_something_else(gate: Path) -> None:
    with Executor() as executor:
        closed = executor.submit(is_open, str(gate))
        for number in range(300):
            assert executor.submit(abs, -number).result(LONG_S) == number
        assert not closed.done()
        gate.touch()


def test_a_call_that_ends_before_the_thread_knows_of_it(gate: Path) -> None:
    dispatcher = Dispatcher("executor", range(2))
    closed, quick = Future[bool](), Future[int]()

    def start(_: int) -> mpi_runtime.ObjectRef[Any]:
        ref = mpi_runtime.remote(abs).remote(-1)
        mpi_runtime.wait([ref], timeout=LONG_S)
        return ref

    dispatcher.submit(closed, lambda _: mpi_runtime.remote(is_open).remote(str(gate)))
    dispatcher.submit(quick, start)
    assert quick.result(LONG_S) == 1
    assert not closed.done()
    gate.touch()
    dispatcher.join()


def test_many_threads_submit() -> None:
    totals: list[int] = []

    def work(executor: Executor) -> None:
        futures = [executor.submit(operator.add, number, 1) for number in range(100)]
        totals.append(sum(future.result(LONG_S) for future in futures))

    with Executor() as executor:
        workers = [threading.Thread(target=work, args=(executor,)) for _ in range(5)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(LONG_S)
    assert totals == [5050] * 5


# As tasks


def test_the_remote_traceback_is_the_cause() -> None:
    with Executor() as executor:
        error = executor.submit(fail, 5).exception(LONG_S)
    assert error is not None
    assert isinstance(error.__cause__, MpiRuntimeError)
    assert "in fail" in str(error.__cause__)
    assert f"pid={os.getpid()}" not in str(error.__cause__)


def test_errors_of_a_class_that_refuses_attributes() -> None:
    class Frozen(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            if name.startswith("__"):
                raise AttributeError(name)
            super().__setattr__(name, value)

    def refuse() -> None:
        raise Frozen("cold")

    with Executor() as executor:
        assert executor.submit(refuse).exception(LONG_S).args == ("cold",)  # type: ignore[union-attr]


def test_what_cannot_be_serialised_fails_its_future_only() -> None:
    with Executor(1) as executor:
        bad = executor.submit(print, threading.Lock())
        good = executor.submit(abs, -1)
        assert isinstance(bad.exception(LONG_S), TypeError)
        assert good.result(LONG_S) == 1
        with pytest.raises(TypeError):
            next(executor.map(print, [threading.Lock()]))


def test_a_process_that_dies() -> None:
    with Executor(max_retries=0) as executor:
        assert isinstance(executor.submit(os._exit, 3).exception(LONG_S), WorkerCrashedError)
        assert executor.submit(abs, -1).result(LONG_S) == 1


def test_options_are_those_of_the_tasks(gate: Path) -> None:
    with Executor(num_cpus=4) as executor:
        executor.submit(is_open, str(gate))
        wait_until(lambda: "CPU" not in mpi_runtime.available_resources())
        gate.touch()
    with pytest.raises(ValueError, match="num_cpu"):
        Executor(num_cpu=1)
    with pytest.raises(ValueError, match="num_returns"):
        Executor(num_returns=2)


def test_references_among_the_arguments_stand_for_their_values() -> None:
    with Executor() as executor:
        assert executor.submit(operator.add, mpi_runtime.put(2), 3).result(LONG_S) == 5


@pytest.mark.parametrize("number", [0, -1])
def test_numbers_out_of_bounds(number: int) -> None:
    with pytest.raises(ValueError, match="max_workers"):
        Executor(number)
    with Executor() as executor, pytest.raises(ValueError, match="chunksize"):
        executor.map(abs, [1], chunksize=number)


def test_a_chunk_is_one_task() -> None:
    with Executor() as executor:
        tasks = list(executor.map(lambda _: mpi_runtime.get_runtime_context().get_task_id(), range(10), chunksize=5))
    assert tasks == [tasks[0]] * 5 + [tasks[5]] * 5
    assert tasks[0] != tasks[5]


def add_up(executor: Executor) -> int:
    return sum(executor.map(abs, range(-10, 0)))


def add_up_one_by_one(executor: Executor) -> int:
    return sum(executor.submit(abs, -n).result() for n in range(11))


def add_up_unless_raised(executor: Executor) -> int:
    futures = [executor.submit(abs, -n) for n in range(11)]
    assert not any(future.exception() for future in futures)
    return sum(future.result() for future in futures)


def add_up_at_the_end(executor: Executor) -> int:
    futures = [executor.submit(abs, -n) for n in range(11)]
    executor.shutdown()
    return sum(future.result() for future in futures)


@pytest.mark.parametrize("way", [add_up, add_up_one_by_one, add_up_unless_raised, add_up_at_the_end])
def test_an_executor_in_a_task(way: Callable[[Executor], int]) -> None:
    """There are more such tasks than CPUs: each gives up its own while it waits."""

    @mpi_runtime.remote
    def total() -> int:
        with Executor() as executor:
            return way(executor)

    assert mpi_runtime.get([total.remote() for _ in range(6)], timeout=LONG_S) == [55] * 6
    assert mpi_runtime.available_resources()["CPU"] <= 4


def test_an_executor_that_outlives_its_task(at_rest: Callable[[], None]) -> None:
    """The actor's later calls wait for futures of an earlier one, and what they have said about CPUs adds up."""

    @mpi_runtime.remote
    class Holder:
        def begin(self) -> None:
            self.executor = Executor()
            self.futures = [self.executor.submit(later, n) for n in range(8)]

        def end(self) -> int:
            return sum(future.result() for future in self.futures)

    holder = Holder.remote()
    holder.begin.remote()
    assert mpi_runtime.get(holder.end.remote(), timeout=LONG_S) == 28
    del holder
    at_rest()


# The end of the job

ENDS = """
import atexit, time
import mpi_runtime
from mpi_runtime.util.background_calls import Dispatcher
from mpi_runtime.util.futures import Executor

mpi_runtime.init(num_cpus=1)
executor = Executor(1)
futures = [executor.submit(time.sleep, 60) for _ in range(3)]
mpi_runtime.shutdown()
for future in futures:
    print(type(future.exception(timeout=30)).__name__)
executor.shutdown()
print(mpi_runtime.is_initialized())


def late(text):
    time.sleep(0.5)
    return text


@atexit.register
def too_late():
    try:
        executor.submit(late, "too late")
    except RuntimeError as error:
        print(error)


executor = Executor(1)
for text in ("first", "second"):
    executor.submit(late, text).add_done_callback(lambda future: print(future.result()))
print("the end")
"""

INTERRUPTED = """
import time
from mpi_runtime.util.futures import Executor

futures = [Executor(1).submit(time.sleep, 60) for _ in range(2)]
raise KeyboardInterrupt
"""

RANKS = """
import mpi_runtime
from mpi_runtime.util.background_calls import Dispatcher
from mpi_runtime.util.futures import Executor

mpi_runtime.init(num_cpus=4)


class OwnError(Exception):
    pass


def work(n):
    if n == 7:
        raise OwnError(n)
    return n * n, mpi_runtime.get_runtime_context().get_rank()


with Executor() as executor:
    futures = [executor.submit(work, n) for n in range(30)]
    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors if error] == [OwnError]
    results = [future.result() for future in futures if not future.exception()]
    assert sum(result[0] for result in results) == sum(n * n for n in range(30)) - 49
    assert all(result[1] in (1, 2) for result in results)
    assert sum(executor.map(abs, range(1000), chunksize=100)) == 499500
print("done")
"""


def test_the_job_ends_before_the_executor() -> None:
    completed = run_program(ENDS).expect(0)
    first, second, third, is_initialized, *last = completed.stdout.split("\n")[:-1]
    assert first == "ObjectLostError"
    assert {second, third} <= {"ObjectLostError", RuntimeNotInitializedError.__name__}
    assert is_initialized == "False"
    refused = "This executor was shut down, and takes no calls any more."
    assert last == ["the end", "first", "second", refused], "the end of the program waits for the calls of an executor"


def test_after_ctrl_c_nobody_waits() -> None:
    assert "KeyboardInterrupt" in run_program(INTERRUPTED, timeout=30).stderr


@pytest.mark.mpi
def test_on_ranks() -> None:
    assert run_program(RANKS, ranks=3).expect(0).stdout == "done\n"


prepared: int
"""Set by the initializer, in executors."""


def prepare(value: int) -> None:
    global prepared
    prepared = prepared + 1 if "prepared" in globals() else value


def prepared_value(_: int) -> int:
    return prepared


def test_an_initializer_runs_once_in_each_process() -> None:
    with Executor(initializer=prepare, initargs=[5]) as executor:
        assert {executor.submit(prepared_value, 0).result() for _ in range(5)} == {5}
        assert set(executor.map(prepared_value, range(20), chunksize=5)) == {5}
    with Executor(initializer=prepare, initargs=[7]) as executor:
        assert executor.submit(prepared_value, 0).result() in (7, 6), "another executor has an initializer of its own"


def pools_here(_: object) -> tuple[int, int]:
    return os.getpid(), len(futures._prepared)


def test_a_process_forgets_the_variables_of_pools_that_have_ended() -> None:
    with Executor(initializer=prepare, initargs=[5]) as living:
        living.submit(prepared_value, 0).result()
        known = set()
        for _ in range(40):
            with Executor(initializer=prepare, initargs=[7]) as executor:
                known.add(executor.submit(pools_here, 0).result())
            del executor
        assert max(count for _, count in known) <= 3, "the living pool, this one, and the last if its end is on its way"
        assert living.submit(prepared_value, 0).result() == 5


def test_an_initializer_that_fails() -> None:
    with Executor(initializer=fail, initargs=[3]) as executor:
        future = executor.submit(later, 1)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="initializer"):
            future.result()
    with pytest.raises(TypeError, match="callable"):
        Executor(initializer=3)  # type: ignore[arg-type]


class Interrupting(deque[int]):
    """Slots. Ctrl-C comes as one has been taken."""

    def popleft(self) -> int:
        slot = super().popleft()
        os.kill(os.getpid(), signal.SIGINT)
        return slot


def test_an_interrupt_while_a_call_is_submitted_loses_no_slot() -> None:
    dispatcher = Dispatcher("test", range(1))
    dispatcher._free = Interrupting(dispatcher._free)
    future = Future[int]()
    with pytest.raises(KeyboardInterrupt):
        dispatcher.submit(future, lambda _: mpi_runtime.remote(abs).remote(-3))
    assert future.result(LONG_S) == 3
    dispatcher.close()
    dispatcher.join()
    assert list(dispatcher._free) == [0]
