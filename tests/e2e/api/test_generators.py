# Without num_returns a checker cannot know that a generator function streams.
# mypy: disable-error-code="call-overload,arg-type,var-annotated"
"""Remote generators: items come while the call runs, in order, once, with errors in their place."""

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import mpi_runtime
from mpi_runtime import DynamicObjectRefGenerator, ObjectRef, ObjectRefGenerator, get, method, remote, wait
from mpi_runtime.errors import GetTimeoutError, TaskCancelledError, TaskError
from tests.e2e.shared import is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
def count(number: int) -> Iterator[int]:
    yield from range(number)


@remote
def fails_after(number: int) -> Iterator[int]:
    yield from range(number)
    raise ZeroDivisionError("no more")


def taken(generator: Any) -> list[Any]:
    return [get(ref) for ref in generator]


@pytest.mark.parametrize("number", [0, 1, 7, 1000])
def test_items_in_order(number: int) -> None:
    generator = count.remote(number)
    assert isinstance(generator, ObjectRefGenerator)
    assert taken(generator) == list(range(number))
    with pytest.raises(StopIteration):
        next(generator)
    assert generator.is_finished()
    assert get(generator.completed()) is None


def test_an_item_is_there_before_the_call_has_ended(tmp_path: Path) -> None:
    @remote
    def waits() -> Iterator[str]:
        yield "first"
        is_open(tmp_path / "go")
        yield "second"

    generator = waits.remote()
    assert get(next(generator)) == "first"
    with pytest.raises(GetTimeoutError):
        generator.next_ref(timeout=0.05)
    assert not generator.is_finished()
    (tmp_path / "go").touch()
    assert taken(generator) == ["second"]


def test_an_error_comes_in_its_place() -> None:
    refs = list(fails_after.remote(3))
    assert get(refs[:3]) == [0, 1, 2]
    assert len(refs) == 4
    with pytest.raises(ZeroDivisionError, match="no more"):
        get(refs[3])


def test_one_result_is_the_single_value() -> None:
    @remote
    class Numbers:
        @method(num_returns=1)
        def one(self) -> Iterator[int]:
            yield 7

    zero: Any = count.options(num_returns=1).remote(1)
    assert get(zero) == 0
    assert get(Numbers.remote().one.remote()) == 7
    with pytest.raises(ZeroDivisionError, match="no more"):
        get(fails_after.options(num_returns=1).remote(0))
    with pytest.raises(ValueError, match="yielded 0 values, but num_returns is 1"):
        get(count.options(num_returns=1).remote(0))


def test_an_item_that_cannot_be_serialised() -> None:
    @remote
    def wrong() -> Iterator[Any]:
        yield 1
        yield threading.Lock()

    refs = list(wrong.remote())
    assert get(refs[0]) == 1
    with pytest.raises(TaskError, match="an item of wrong"):
        get(refs[1])


def test_what_is_no_generator() -> None:
    for word in ("streaming", "dynamic"):
        with pytest.raises(ValueError, match="for functions that yield"):

            @remote(num_returns=word)
            def number() -> int:
                return 1

    @remote
    class Numbers:
        @method(num_returns="streaming")
        def one(self) -> int:
            return 1

        @method(num_returns="streaming")
        def two(self) -> list[int]:
            return [1, 2]

    numbers = Numbers.remote()
    with pytest.raises(TypeError, match="num_returns='streaming', and returned 'int'"):
        taken(numbers.one.remote())
    assert taken(numbers.two.remote()) == [1, 2]


def test_large_items_and_references_in_items() -> None:
    @remote
    def arrays(number: int) -> Iterator[Any]:
        for index in range(number):
            array = numpy.full(100_000, index)
            yield array
            yield [mpi_runtime.put(index), index]

    for index, ref in enumerate(arrays.remote(6)):
        value = get(ref)
        if index % 2:
            assert get(value[0]) == value[1] == index // 2
        else:
            assert (value == index // 2).all()


def test_items_are_arguments() -> None:
    @remote
    def double(value: int) -> int:
        return 2 * value

    assert get([double.remote(ref) for ref in count.remote(5)]) == [0, 2, 4, 6, 8]


def test_nobody_takes_the_items(tmp_path: Path) -> None:
    @remote
    def arrays() -> Iterator[Any]:
        for _ in range(20):
            yield numpy.ones(100_000)
        (tmp_path / "end").touch()

    generator = arrays.remote()
    next(generator)
    del generator
    wait_until((tmp_path / "end").exists)  # it runs on, and what it yields is freed


def test_closed_early(tmp_path: Path) -> None:
    @remote
    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
                time.sleep(0.001)
        finally:
            (tmp_path / "closed").touch()

    generator = endless.remote()
    assert get(next(generator)) == 0
    ended = generator.completed()
    generator.close()
    with pytest.raises(StopIteration):
        next(generator)
    with pytest.raises(TaskCancelledError):
        get(ended, timeout=20)
    assert (tmp_path / "closed").exists()


def test_cancelled() -> None:
    @remote
    def endless() -> Iterator[int]:
        while True:
            yield 1
            time.sleep(0.001)

    generator = endless.remote()
    next(generator)
    mpi_runtime.cancel(generator.completed())
    refs = list(generator)
    with pytest.raises(TaskCancelledError):
        get(refs[-1])


def test_wait_for_what_can_be_taken(tmp_path: Path) -> None:
    @remote(_generator_backpressure_num_objects=1)
    def stepwise(name: str) -> Iterator[int]:
        for number in range(2):
            while not (tmp_path / f"{name}{number}").exists():
                time.sleep(0.005)
            yield number

    def go(name: str) -> None:
        (tmp_path / name).touch()

    one, other, value = stepwise.remote("a"), stepwise.remote("b"), mpi_runtime.put(1)
    assert wait([one, other], timeout=0.05) == ([], [one, other])
    assert wait([one, value, other], timeout=0) == ([value], [one, other])
    go("b0")
    assert wait([one, other]) == ([other], [one])
    assert wait([other, one, value], num_returns=2) == ([other, value], [one])
    assert wait([other], timeout=0)[0], "looking takes nothing"
    assert get(next(other)) == 0
    assert wait([other, other.completed()], timeout=0.05) == ([], [other, other.completed()])
    go("a0")
    go("b1")
    assert wait([one, other], num_returns=2) == ([one, other], [])
    assert wait([other.completed(), other], timeout=0) == ([other], [other.completed()])
    assert get(next(other)) == 1
    assert wait([other.completed(), other], num_returns=2) == ([other.completed(), other], [])
    assert list(other) == []
    assert wait([other]) == ([other], []), "next says at once that there is nothing more"
    assert get(next(one)) == 0
    one.close()
    assert wait([one]) == ([one], [])


def test_wait_for_generators_that_end_otherwise(tmp_path: Path) -> None:
    @remote
    def quiet() -> Iterator[int]:
        while not tmp_path.exists():
            yield 1
        time.sleep(60)

    failing, empty = fails_after.remote(0), count.remote(0)
    assert wait([failing, empty], num_returns=2)[1] == []
    with pytest.raises(ZeroDivisionError):
        get(next(failing))
    assert list(empty) == []
    pending = quiet.remote()
    assert wait([pending, failing], num_returns=1) == ([failing], [pending])
    mpi_runtime.cancel(pending)
    assert wait([pending], timeout=20) == ([pending], [])
    with pytest.raises(TaskCancelledError, match="quiet was cancelled by cancel"):
        get(next(pending))


def test_wait_refuses_what_cannot_be_waited_for() -> None:
    generator = count.remote(1)
    with pytest.raises(TypeError, match="a single ObjectRefGenerator"):
        wait(generator)
    with pytest.raises(ValueError, match="unique"):
        wait([generator, generator])
    with pytest.raises(TypeError, match="contains <class 'int'>"):
        wait([generator, 1])  # type: ignore[type-var]
    assert taken(generator) == [0]


def test_all_items_of_several_generators_by_wait() -> None:
    pending, found = [count.remote(20) for _ in range(4)], 0
    while pending:
        ready, pending = wait(pending, num_returns=len(pending), timeout=0.1)
        for generator in ready:
            ref = next(generator, None)
            if ref is not None:
                found += get(ref)
                pending.append(generator)
    assert found == 4 * sum(range(20))


def is_lent() -> bool:
    """Whether all CPUs are free: of a call that has begun, that it waits."""
    return mpi_runtime.available_resources().get("CPU") == mpi_runtime.cluster_resources()["CPU"]


@pytest.mark.parametrize("most", [1, 3])
def test_backpressure(tmp_path: Path, most: int) -> None:
    @remote(_generator_backpressure_num_objects=most)
    def eager() -> Iterator[int]:
        for number in range(10):
            (tmp_path / str(number)).touch()
            yield number

    generator = eager.remote()
    for number in range(10):
        wait_until(lambda number=number: len(list(tmp_path.iterdir())) == min(number + most, 10))  # type: ignore[misc]
        wait_until(is_lent)  # it goes no further, or has ended
        assert len(list(tmp_path.iterdir())) == min(number + most, 10)
        assert get(next(generator)) == number


def test_backpressure_when_nobody_takes_more(tmp_path: Path) -> None:
    @remote(_generator_backpressure_num_objects=1)
    def eager() -> Iterator[int]:
        yield from range(50)
        (tmp_path / "end").touch()

    generator = eager.remote()
    next(generator)
    wait_until(is_lent)
    del generator
    wait_until((tmp_path / "end").exists)


def test_backpressure_lends_the_cpu(tmp_path: Path) -> None:
    @remote(_generator_backpressure_num_objects=1, num_cpus=4)
    def eager() -> Iterator[int]:
        (tmp_path / "begun").touch()
        yield from range(3)

    generator = eager.remote()

    @remote(num_cpus=4)
    def needs_all() -> int:
        return 1

    wait_until((tmp_path / "begun").exists)
    assert get(needs_all.remote(), timeout=20) == 1
    assert taken(generator) == [0, 1, 2]


@pytest.mark.parametrize("most", [-1, 2])
def test_run_again_after_a_crash(tmp_path: Path, most: int) -> None:
    @remote(max_retries=2, _generator_backpressure_num_objects=most)
    def fragile() -> Iterator[Any]:
        attempt = len(list(tmp_path.iterdir()))
        (tmp_path / str(attempt)).touch()
        for number in range(6):
            if number == 2 * attempt + 2 and attempt < 2:
                time.sleep(0.05)  # what was yielded is told
                os._exit(1)
            yield numpy.full(100_000, number)

    assert [int(value[0]) for value in taken(fragile.remote())] == list(range(6))
    assert len(list(tmp_path.iterdir())) == 3


def test_run_again_after_an_error(tmp_path: Path) -> None:
    @remote(max_retries=1, retry_exceptions=True)
    def flaky() -> Iterator[int]:
        yield 1
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("once")
        yield 2

    assert taken(flaky.remote()) == [1, 2]


def test_in_coroutines() -> None:
    async def main() -> list[int]:
        async def sum_of(generator: Any) -> int:
            return sum([await ref async for ref in generator])

        return await asyncio.gather(*[sum_of(count.remote(number)) for number in (3, 4, 5)])

    assert asyncio.run(main()) == [3, 6, 10]


def test_a_wait_that_is_cancelled_takes_no_item(gate: Path) -> None:
    """And holds up nobody: neither the loop's end nor the waits that follow share a thread that belongs to the loop."""

    @remote
    def held() -> Iterator[int]:
        is_open(gate)
        yield from range(3)

    async def main() -> list[int]:
        generator = held.remote()
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(generator.__anext__(), 0.05)
        assert sum(thread.name == "mpi_runtime item" for thread in threading.enumerate()) == 1
        gate.touch()
        return [await ref async for ref in generator]

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_loop_ends_while_a_call_may_yield_later(gate: Path) -> None:
    @remote
    def held() -> Iterator[int]:
        is_open(gate)
        yield 1

    generator = held.remote()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(generator.__anext__(), 0.05)

    asyncio.run(main())
    assert not gate.exists()
    gate.touch()
    assert taken(generator) == [1]


def test_closed_while_a_coroutine_waits() -> None:
    @remote
    def endless() -> Iterator[int]:
        time.sleep(30)
        yield 1

    async def main() -> None:
        generator = endless.remote()
        waiting = asyncio.ensure_future(generator.__anext__())
        await asyncio.sleep(0.1)
        generator.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, 15)

    asyncio.run(main())


def test_of_actors() -> None:
    @remote
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def up(self, number: int) -> Iterator[int]:
            for _ in range(number):
                self.value += 1
                yield self.value

        @method(num_returns="dynamic")
        def all(self) -> Iterator[int]:
            yield from range(self.value)

        def plain(self) -> int:
            return self.value

    counter = Counter.remote()
    assert taken(counter.up.remote(3)) == [1, 2, 3]
    assert get(counter.plain.remote()) == 3
    assert taken(get(counter.all.remote())) == [0, 1, 2]
    assert taken(counter.up.options(_generator_backpressure_num_objects=1).remote(2)) == [4, 5]
    assert len(get(counter.up.options(num_returns="dynamic").remote(2))) == 2


def test_of_actors_with_coroutines() -> None:
    @remote
    class Async:
        async def count(self, number: int) -> AsyncIterator[int]:
            for index in range(number):
                await asyncio.sleep(0.001)
                yield index

        async def fail(self) -> AsyncIterator[int]:
            yield 1
            raise KeyError("async")

        @method(num_returns="dynamic")
        async def all(self) -> AsyncIterator[int]:
            yield 1
            yield 2

        def plain(self, number: int) -> Iterator[int]:
            yield from range(number)

    actor = Async.remote()
    generators = [actor.count.remote(5) for _ in range(3)]
    assert [taken(generator) for generator in generators] == [[0, 1, 2, 3, 4]] * 3
    refs = list(actor.fail.remote())
    assert get(refs[0]) == 1
    with pytest.raises(KeyError, match="async"):
        get(refs[1])
    assert taken(get(actor.all.remote())) == [1, 2]
    assert taken(actor.plain.remote(3)) == [0, 1, 2]
    assert taken(actor.count.options(_generator_backpressure_num_objects=1).remote(4)) == [0, 1, 2, 3]


def test_dynamic() -> None:
    ref = count.options(num_returns="dynamic").remote(4)
    assert isinstance(ref, ObjectRef)
    generator = get(ref)
    assert isinstance(generator, DynamicObjectRefGenerator)
    assert (len(generator), taken(generator), get(generator[1])) == (4, [0, 1, 2, 3], 1)
    assert get(next(generator)) == 0

    @remote
    def total(generator: Any) -> int:
        return sum(taken(generator))

    assert get(total.remote(ref)) == 6
    *items, last = get(fails_after.options(num_returns="dynamic").remote(2))
    assert len(get(items)) == 2
    with pytest.raises(ZeroDivisionError):
        get(last)


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="'streaming', 'dynamic' or 'ranks', not 'many'"):
        count.options(num_returns="many")
    with pytest.raises(ValueError, match="async def"):

        @remote
        async def generate() -> AsyncIterator[int]:
            yield 1

    with pytest.raises(TypeError, match="cannot be passed on"):
        mpi_runtime.put(count.remote(1))


PROGRAM = """
import mpi_runtime
import numpy

@mpi_runtime.remote
def arrays(number):
    for index in range(number):
        yield numpy.full(200_000, index)

@mpi_runtime.remote
def total(array):
    return int(array.sum())

@mpi_runtime.remote
def outer(number):
    return sum(mpi_runtime.get([total.remote(ref) for ref in arrays.remote(number)]))

@mpi_runtime.remote
def waits(number):
    pending, found = [arrays.remote(number) for _ in range(3)], 0
    while pending:
        (generator,), pending = mpi_runtime.wait(pending)
        for ref in generator:
            found += int(mpi_runtime.get(ref)[0])
            pending.append(generator)
            break
    return found

mpi_runtime.init(num_cpus=2)
sums = [sum(int(mpi_runtime.get(ref)[0]) for ref in arrays.remote(5)) for _ in range(3)]
print(sums, mpi_runtime.get(outer.remote(4)), mpi_runtime.get(waits.remote(4)), waits._function(3))
"""


@pytest.mark.mpi
def test_on_several_ranks() -> None:
    assert run_program(PROGRAM, ranks=3).expect().stdout == "[10, 10, 10] 1200000 18 9\n"


class Weighty:
    """Something that is not to be in memory twice."""


def held() -> Iterator[Any]:
    items = [Weighty()]
    ref = weakref.ref(items[0])
    yield items.pop()
    yield ref() is None


@mpi_runtime.remote
class Holds:
    def plain(self) -> Iterator[Any]:
        yield from held()

    async def coroutine(self) -> AsyncIterator[Any]:
        for item in held():
            yield item
            del item


@pytest.mark.parametrize("kind", ["streaming", "dynamic", 2])
def test_an_item_is_not_kept_while_the_next_one_is_made(kind: Any) -> None:
    made: Any = remote(held).options(num_returns=kind).remote()
    assert get(list(get(made) if kind == "dynamic" else made)[1])


@pytest.mark.parametrize("name", ["plain", "coroutine"])
@pytest.mark.parametrize("kind", ["streaming", "dynamic"])
def test_nor_in_actors(name: str, kind: str) -> None:
    made: Any = getattr(Holds.remote(), name).options(num_returns=kind).remote()
    assert get(list(get(made) if kind == "dynamic" else made)[1])
