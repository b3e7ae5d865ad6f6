"""Generators: calls that yield."""

import asyncio
import time

import numpy as np
import ray

from tests.ray_docs.helpers import eventually, raised, tally


def generator_functions_stream():
    """A call of a generator function gives a generator of references."""

    @ray.remote
    def f(n):
        for i in range(n):  # Ray does not bear `yield from` an iterator that is no generator
            yield i

    generator = f.remote(3)
    print(isinstance(generator, ray.ObjectRefGenerator), [ray.get(ref) for ref in generator])


def items_come_before_the_end():
    """The first item can be read while the function goes on."""

    @ray.remote
    def f(path):
        yield "first"
        import os

        while not os.path.exists(path):
            time.sleep(0.01)
        yield "second"

    with tally() as gate:
        generator = f.remote(gate.path)
        print(ray.get(next(generator)))
        open(gate.path, "w").close()
        print(ray.get(next(generator)), raised(lambda: next(generator), "StopIteration"))


def errors_come_after_the_items():
    """What was yielded before an error is there; the next reference raises it; then comes the end."""

    @ray.remote
    def f():
        yield 1
        raise ValueError("after")

    generator = f.remote()
    print(ray.get(next(generator)))
    bad = next(generator)
    print(raised(lambda: ray.get(bad), "ValueError"), raised(lambda: next(generator), "StopIteration"))


def methods_of_actors_yield():
    """Also coroutines of async actors."""

    @ray.remote
    class A:
        def f(self, n):
            for i in range(n):
                yield i

    @ray.remote
    class B:
        async def f(self, n):
            for i in range(n):
                await asyncio.sleep(0)
                yield i

    a, b = A.remote(), B.remote()
    print([ray.get(ref) for ref in a.f.remote(3)], [ray.get(ref) for ref in b.f.remote(3)])


def async_for_over_a_generator():
    """In a coroutine it can be gone through with `async for`."""

    @ray.remote
    def f(n):
        for i in range(n):
            yield i

    async def main():
        return [await ref async for ref in f.remote(3)]

    print(asyncio.run(main()))


def wait_takes_generators():
    """A generator is ready when its next item is."""

    @ray.remote
    def f():
        yield 1

    generator = f.remote()
    ready, rest = ray.wait([generator], timeout=20)
    print(ready == [generator], rest, ray.get(next(generator)))


def generators_are_not_to_be_passed_on():
    """Its items are."""

    @ray.remote
    def f():
        yield 1

    @ray.remote
    def use(x):
        return x

    generator = f.remote()
    print(raised(lambda: use.remote(generator), "TypeError"), ray.get(use.remote(next(generator))))


def cancel_of_a_generator():
    """The call ends; what was yielded can be read."""

    @ray.remote
    def f(path):
        yield 1
        open(path, "ab").write(b"x")
        for _ in range(1000):  # Ray does not interrupt a single long sleep
            time.sleep(0.05)
        yield 2

    with tally() as counts:
        generator = f.remote(counts.path)
        first = next(generator)
        eventually(lambda: counts.count)
        ray.cancel(generator)
        print(ray.get(first), raised(lambda: [ray.get(ref) for ref in generator], "TaskCancelledError"))


def a_generator_that_nobody_reads():
    """The call runs on when its generator is dropped, whether or not items were taken, and does not wait for a reader."""

    @ray.remote(_generator_backpressure_num_objects=1)
    def f(path):
        for _ in range(5):
            with open(path, "ab") as file:
                file.write(b"x")
            yield 1

    for taken in (0, 1):
        with tally() as counts:
            generator = f.remote(counts.path)
            for _ in range(taken):
                ray.get(next(generator))
            del generator
            print(eventually(lambda: counts.count == 5))


def backpressure():
    """With `_generator_backpressure_num_objects` the function waits until items are taken."""

    @ray.remote(_generator_backpressure_num_objects=2)
    def f(path):
        for n in range(10):
            open(path, "ab").write(b"x")
            yield n

    with tally() as counts:
        generator = f.remote(counts.path)
        eventually(lambda: counts.count >= 2)
        time.sleep(0.3)
        made = counts.count
        print(made < 5, [ray.get(ref) for ref in generator] == list(range(10)), counts.count)


def backpressure_out_of_bounds():
    """It is positive, or -1."""

    @ray.remote
    def f():
        yield 1

    print(raised(lambda: f.options(_generator_backpressure_num_objects=0).remote(), "ValueError"))


def dynamic_number_of_results():
    """`num_returns="dynamic"` gives one reference to a generator of references."""

    @ray.remote(num_returns="dynamic")
    def f(n):
        for i in range(n):
            yield i

    ref = f.remote(3)
    generator = ray.get(ref)
    print(isinstance(ref, ray.ObjectRef), [ray.get(one) for one in generator])


def dynamic_and_an_error():
    """What was yielded is there, and the error is the last item."""

    @ray.remote(num_returns="dynamic")
    def f():
        yield 1
        raise ValueError

    refs = list(ray.get(f.remote()))
    print(len(refs), ray.get(refs[0]), raised(lambda: ray.get(refs[1]), "ValueError"))


def dynamic_of_what_does_not_yield():
    """A function without `yield` cannot have it."""

    def f():
        return [1, 2]

    print(raised(lambda: ray.get(ray.remote(num_returns="dynamic")(f).remote()), "ValueError", "TypeError"))


def streaming_of_what_does_not_yield():
    """The same for `num_returns="streaming"`."""

    def f():
        return 1

    print(raised(lambda: list(ray.remote(num_returns="streaming")(f).remote()), "ValueError", "TypeError"))


def fixed_number_of_results_of_a_generator():
    """With a number the items become that many results."""

    @ray.remote(num_returns=3)
    def f():
        for i in range(3):
            yield np.full(3, i)

    print([int(ray.get(ref)[0]) for ref in f.remote()])


def too_few_items():
    """Those that were yielded are there, the rest raises ValueError."""

    @ray.remote(num_returns=3)
    def f():
        yield 1

    a, b, c = f.remote()
    print(raised(lambda: ray.get(b), "ValueError"), raised(lambda: ray.get(c), "ValueError"))


def too_many_items():
    """What is more than `num_returns`."""

    @ray.remote(num_returns=3)
    def f():
        for i in range(4):
            yield i

    refs = f.remote()
    print([raised(lambda ref=ref: print(ray.get(ref), end=" "), "ValueError") for ref in refs])


def an_error_among_a_fixed_number():
    """Items before the error are values; it stands in the place of the others."""

    @ray.remote(num_returns=3)
    def f():
        yield 1
        raise ValueError("x")

    a, b, c = f.remote()
    print(ray.get(a), raised(lambda: ray.get(b), "ValueError"), raised(lambda: ray.get(c), "ValueError"))


def completed_of_a_generator():
    """`completed()` is a reference that is ready when the call has ended."""

    @ray.remote
    def f():
        yield 1
        yield 2

    generator = f.remote()
    ray.get(generator.completed())
    print([ray.get(ref) for ref in generator])


def next_ready_of_a_generator():
    """`next_ready()` tells whether `next` would not wait."""

    @ray.remote
    def f(path):
        yield 1
        import os

        while not os.path.exists(path):
            time.sleep(0.01)

    with tally() as gate:
        generator = f.remote(gate.path)
        print(eventually(generator.next_ready), ray.get(next(generator)), generator.next_ready())
        open(gate.path, "w").close()
        ray.get(generator.completed())
        print(generator.next_ready())


def empty_generator():
    """Nothing yielded: the end comes at once."""

    @ray.remote
    def f():
        return
        yield

    print(list(f.remote()))


def references_of_items_outlive_the_generator():
    """Items can be read after the generator is gone."""

    @ray.remote
    def f():
        yield "kept"

    generator = f.remote()
    ref = next(generator)
    del generator
    print(ray.get(ref))


def many_items():
    """A thousand of them."""

    @ray.remote
    def f():
        for i in range(1000):
            yield i

    print(sum(ray.get(list(f.remote()))))


def large_items():
    """Arrays as items."""

    @ray.remote
    def f():
        for n in range(3):
            yield np.full(100_000, n)

    print([int(ray.get(ref).sum()) for ref in f.remote()])


def generators_in_tasks():
    """A task goes through the generator of another."""

    @ray.remote
    def inner(n):
        for i in range(n):
            yield i

    @ray.remote
    def outer():
        return [ray.get(ref) for ref in inner.remote(4)]

    print(ray.get(outer.remote()))


def options_of_generators():
    """`.options(num_returns="streaming")` makes a function that returns a list stream."""

    @ray.remote
    def f():
        yield 1

    print(isinstance(f.options(num_returns="streaming").remote(), ray.ObjectRefGenerator))
    print(isinstance(f.options(num_returns="dynamic").remote(), ray.ObjectRef))


def a_crash_of_a_generator_is_tried_again():
    """Items that were there are there once."""
    import os

    @ray.remote(max_retries=2)
    def f(path):
        for n in range(4):
            if n == 2 and not os.path.exists(path):
                open(path, "w").close()
                os._exit(1)
            yield n

    with tally() as mark:
        print([ray.get(ref) for ref in f.remote(mark.path)])


def get_of_a_generator():
    """`get` of a generator returns it."""

    @ray.remote
    def f():
        yield 1
        yield 2

    generator = f.remote()
    print(ray.get(generator) is generator, [ray.get(ref) for ref in generator])


def get_of_a_list_with_a_generator():
    """In a list it is no reference."""

    @ray.remote
    def f():
        yield 1

    print(raised(lambda: ray.get([f.remote()]), "ValueError", "TypeError"))


def one_result_of_a_generator():
    """`num_returns=1`: the single value that it yields."""

    @ray.remote(num_returns=1)
    def f(count):
        yield from range(5, 5 + count)

    print(ray.get(f.remote(1)))
    print(raised(lambda: ray.get(f.remote(0)), "ValueError"))
    print(raised(lambda: ray.get(f.remote(2)), "ValueError"))


def one_result_of_a_generator_method():
    """Also of methods."""

    @ray.remote
    class A:
        @ray.method(num_returns=1)
        def f(self):
            yield 7

    print(ray.get(A.remote().f.remote()))


def one_result_of_a_generator_that_raises():
    """The error is the value."""

    @ray.remote(num_returns=1)
    def f():
        raise KeyError("x")
        yield

    print(raised(lambda: ray.get(f.remote()), "KeyError"))


def is_finished_waits_for_the_error():
    """A generator whose error was not taken has not finished."""

    @ray.remote
    def f():
        yield 1
        raise ValueError

    generator = f.remote()
    ray.wait([generator.completed()])
    time.sleep(0.1)
    seen = [generator.is_finished()]
    next(generator)
    seen.append(generator.is_finished())
    error = next(generator)
    seen.append(generator.is_finished())
    print(seen, raised(lambda: ray.get(error), "ValueError"), raised(lambda: next(generator), "StopIteration"))


def one_result_of_a_function_that_returns_a_generator():
    """A plain function that returns a generator gives its first item."""

    @ray.remote
    def f(count):
        return (i for i in range(3, 3 + count))

    print(ray.get(f.remote(1)), raised(lambda: ray.get(f.remote(0)), "ValueError"))


def one_result_of_an_asynchronous_generator():
    """`num_returns=1` of an asynchronous generator."""

    @ray.remote
    class A:
        @ray.method(num_returns=1)
        async def f(self):
            yield 7

    print(raised(lambda: print(ray.get(A.remote().f.remote(), timeout=10)), "TypeError", "ValueError", "RayTaskError"))
