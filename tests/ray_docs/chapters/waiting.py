"""Waiting: `get` and `wait`, and what they refuse."""

import time

import ray

from tests.ray_docs.helpers import raised


def wait_splits_into_ready_and_rest():
    """`wait` returns those that are ready and those that are not."""

    @ray.remote
    def f(seconds):
        time.sleep(seconds)

    fast, slow = f.remote(0), f.remote(30)
    ready, rest = ray.wait([slow, fast])
    print(ready == [fast], rest == [slow])
    ray.cancel(slow, force=True)


def wait_returns_at_most_what_was_asked_for():
    """More may be ready than `num_returns`; the rest stays in the second list."""
    refs = [ray.put(n) for n in range(4)]
    ready, rest = ray.wait(refs, num_returns=2)
    print(len(ready), len(rest), {*ready, *rest} == {*refs})


def wait_with_a_timeout():
    """After the timeout it returns what there is."""

    @ray.remote
    def f():
        time.sleep(30)

    ref = f.remote()
    ready, rest = ray.wait([ref], timeout=0.05)
    print(ready, rest == [ref])
    ray.cancel(ref, force=True)


def wait_without_waiting():
    """A timeout of zero only looks."""
    ref = ray.put(1)
    print(len(ray.wait([ref], timeout=0)[0]))


def wait_takes_errors_as_ready():
    """A call that failed is ready."""

    @ray.remote
    def f():
        raise ValueError

    ref = f.remote()
    print(ray.wait([ref], timeout=20)[0] == [ref])


def wait_refuses_what_is_no_list_of_references():
    """A single reference, other objects and doubles are refused."""
    ref = ray.put(1)
    print(raised(lambda: ray.wait(ref), "TypeError"), raised(lambda: ray.wait([1]), "TypeError"))
    print(raised(lambda: ray.wait([ref, ref]), "ValueError"))


def wait_refuses_numbers_out_of_bounds():
    """`num_returns` lies between one and the number of references, a timeout is not negative."""
    refs = [ray.put(1)]
    print(
        raised(lambda: ray.wait(refs, num_returns=0), "ValueError"),
        raised(lambda: ray.wait(refs, num_returns=2), "ValueError"),
    )
    print(raised(lambda: ray.wait(refs, timeout=-1), "ValueError"))


def wait_for_nothing():
    """An empty list is ready at once."""
    print(ray.wait([]))


def results_as_they_come():
    """A loop of `wait` takes results in the order in which calls end."""

    @ray.remote
    def f(n):
        time.sleep(n / 5)
        return n

    rest, seen = [f.remote(n) for n in (2, 0, 1)], []
    while rest:
        ready, rest = ray.wait(rest)
        seen += ray.get(ready)
    print(seen)


def get_keeps_the_order():
    """A list of references gives a list of values in its order."""

    @ray.remote
    def f(n):
        time.sleep((3 - n) / 50)
        return n

    print(ray.get([f.remote(n) for n in range(4)]), ray.get([]))


def get_refuses_what_is_no_reference():
    """Only references, and lists of them."""
    for value in (1, "a", None, [1], {"a": 1}):
        print(raised(lambda v=value: ray.get(v), "ValueError", "TypeError"))


def get_with_a_timeout():
    """A value that does not come in time is an error that is a TimeoutError too."""

    @ray.remote
    def f():
        time.sleep(30)

    ref = f.remote()
    print(raised(lambda: ray.get(ref, timeout=0.05), "GetTimeoutError", "TimeoutError", "RayError"))
    ray.cancel(ref, force=True)


def get_with_timeout_zero():
    """Zero looks only: what is there comes, what is not raises."""

    @ray.remote
    def f():
        time.sleep(30)

    ref, there = f.remote(), ray.put(5)
    print(ray.get(there, timeout=0), raised(lambda: ray.get(ref, timeout=0), "GetTimeoutError"))
    ray.cancel(ref, force=True)


def get_within_a_task():
    """A task that waits for another gives its CPU to it."""

    @ray.remote
    def inner():
        return 1

    @ray.remote(num_cpus=4)
    def outer():
        return ray.get(inner.options(num_cpus=4).remote())

    print(ray.get(outer.remote(), timeout=60))
