"""`ref.future()` and `await ref`: values for those who do not wait themselves."""

import asyncio
import concurrent.futures
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mpi_runtime
from mpi_runtime import remote
from tests.e2e.shared import is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


@mpi_runtime.remote
def same(value: object, seconds: float = 0.0) -> object:
    time.sleep(seconds)
    return value


@mpi_runtime.remote
def fail() -> None:
    raise KeyError("lost")


def test_a_future_gets_the_value() -> None:
    ref = same.remote(5)
    future = ref.future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=30) == 5
    assert ref.future().result(timeout=30) == 5  # there is one already


def test_a_future_gets_the_error() -> None:
    error = fail.remote().future().exception(timeout=30)
    assert isinstance(error, KeyError)
    assert isinstance(error, mpi_runtime.errors.TaskError)


def test_a_future_keeps_what_it_waits_for() -> None:
    future = same.remote("kept", 0.2).future()  # no reference is left
    assert future.result(timeout=30) == "kept"


def test_futures_work_with_the_standard_library() -> None:
    futures = [same.remote(number, 0.01 * (number % 3)).future() for number in range(30)]
    done, pending = concurrent.futures.wait(futures, timeout=30)
    assert not pending
    assert sorted(future.result() for future in done) == list(range(30))  # type: ignore[type-var]


def test_two_futures_of_one_reference() -> None:
    ref = same.remote(1, 0.1)
    first, second = ref.future(), ref.future()
    assert (first.result(timeout=30), second.result(timeout=30)) == (1, 1)


def test_a_value_that_is_here_is_not_waited_for_behind_one_that_is_not(gate: Path) -> None:
    closed, ready = mpi_runtime.remote(is_open).remote(gate).future(), same.remote(5)
    mpi_runtime.get(ready)
    assert ready.future().result(timeout=30) == 5
    assert not closed.done()
    gate.touch()
    assert closed.result(timeout=30)


def test_a_task_that_waits_for_a_future_gives_up_its_cpu() -> None:
    @mpi_runtime.remote
    def inner() -> int:
        return 1

    @mpi_runtime.remote
    def outer() -> int:
        future = inner.remote().future()
        assert future.exception() is None
        return future.result() + inner.remote().future().result()

    assert mpi_runtime.get([outer.remote() for _ in range(10)], timeout=30) == [2] * 10


def test_cancelling_a_future_leaves_the_call_alone() -> None:
    ref = same.remote(3, 0.2)
    future = ref.future()
    assert not future.cancel()
    assert mpi_runtime.get(ref) == 3
    assert future.result(timeout=30) == 3


def test_a_future_of_a_large_value_and_of_put() -> None:
    array = np.arange(200_000)
    assert np.array_equal(mpi_runtime.put(array).future().result(timeout=30), array)
    large = same.remote(array).future().result(timeout=30)
    assert np.array_equal(large, array)  # type: ignore[arg-type]


def test_futures_beside_get_in_other_threads() -> None:
    """Whoever reads the socket, all get theirs."""
    found: list[object] = []

    def work(number: int) -> None:
        found.append(mpi_runtime.get(same.remote(number, 0.05)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    futures = [same.remote(10 + n, 0.05).future() for n in range(4)]
    for thread in threads:
        thread.start()
    assert mpi_runtime.get(same.remote("main", 0.05)) == "main"
    assert [future.result(timeout=30) for future in futures] == [10, 11, 12, 13]
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]  # type: ignore[type-var]


def test_the_thread_ends_when_nothing_is_waited_for() -> None:
    assert same.remote(1).future().result(timeout=30) == 1
    wait_until(lambda: all(thread.name != "mpi_runtime futures" for thread in threading.enumerate()))


def test_await() -> None:
    async def main() -> object:
        assert await same.remote(7) == 7
        with pytest.raises(KeyError):
            await fail.remote()
        return await asyncio.gather(*(same.remote(number) for number in range(20)))

    assert asyncio.run(main()) == list(range(20))


def test_await_does_not_hold_up_other_coroutines(gate: Path) -> None:
    async def main() -> bool:
        async def tick() -> None:
            for _ in range(4):
                await asyncio.sleep(0.01)
            gate.touch()  # nobody else does: if this is held up, the call does not end

        ticking = asyncio.create_task(tick())
        await remote(is_open).remote(gate)
        await ticking
        return True

    assert asyncio.run(main())


def test_await_with_a_time_limit() -> None:
    async def main() -> object:
        ref = same.remote("late", 0.5)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref, 0.05)
        return await ref

    assert asyncio.run(main()) == "late"


def test_asyncio_wait_takes_futures() -> None:
    async def main() -> set[object]:
        waiting = [asyncio.wrap_future(same.remote(number).future()) for number in range(5)]
        done, pending = await asyncio.wait(waiting)
        assert not pending
        return {one.result() for one in done}

    assert asyncio.run(main()) == set(range(5))


def test_await_inside_a_task() -> None:
    @mpi_runtime.remote
    def outer() -> object:
        async def main() -> object:
            return await asyncio.gather(same.remote(1), same.remote(2))

        return asyncio.run(main())

    assert mpi_runtime.get(outer.remote()) == [1, 2]


@pytest.mark.parametrize("way", ["await", "together", "futures", "with a limit"])
def test_tasks_that_await_lend_their_cpus(way: str) -> None:
    """As many as there are CPUs wait for calls that need one."""

    @mpi_runtime.remote
    def outer() -> object:
        async def main() -> object:
            refs = [same.remote(1), same.remote(2)]
            if way == "together":
                return await asyncio.gather(*refs)
            if way == "futures":
                done, _ = await asyncio.wait([ref.as_future() for ref in refs])
                return sorted([one.result() for one in done], key=repr)
            if way == "with a limit":
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(same.remote(0, 1.0), 0.01)
            return [await ref for ref in refs]

        return asyncio.run(main())

    assert mpi_runtime.get([outer.remote() for _ in range(8)], timeout=30) == [[1, 2]] * 8


def test_await_without_a_loop_of_asyncio_names_what_waits_then() -> None:
    """Libraries such as trio run coroutines without one."""

    async def main() -> object:
        return await same.remote(1)

    coroutine = main()
    with pytest.raises(RuntimeError, match=r"running loop of asyncio.*trio\.to_thread\.run_sync\(get, ref\)"):
        coroutine.send(None)


def test_a_borrowed_reference() -> None:
    """Made elsewhere, it has to be asked for."""

    @mpi_runtime.remote
    def use(refs: list[mpi_runtime.ObjectRef[object]]) -> object:
        return refs[0].future().result(timeout=30)

    assert mpi_runtime.get(use.remote([same.remote(9, 0.1)])) == 9


SHUT_DOWN = """
import time
import mpi_runtime as ray
ray.init(num_cpus=1)
future = ray.remote(lambda: time.sleep(100)).remote().future()
ray.shutdown()
print(type(future.exception(timeout=10)).__name__)
"""


def test_futures_end_with_the_job() -> None:
    assert run_program(SHUT_DOWN).expect().stdout == "ObjectLostError\n"


@pytest.mark.mpi
def test_under_mpirun() -> None:
    source = """
import asyncio
import mpi_runtime as ray
ray.init(num_cpus=2)
same = ray.remote(lambda value: value)

async def main():
    return sum(await asyncio.gather(*(same.remote(number) for number in range(500))))

print(asyncio.run(main()))
"""
    assert run_program(source, ranks=3).expect().stdout == "124750\n"
