"""Corners of tasks, actors, pools, queues, generators and states that programs meet."""

import asyncio
import warnings

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError, TaskCancelledError
from ray.util import ActorPool, as_completed, map_unordered
from ray.util.annotations import Deprecated, RayDeprecationWarning
from ray.util.multiprocessing import Pool
from ray.util.queue import Empty, Full, Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tests.ray_docs.helpers import eventually, raised


@ray.remote
def _same(x):
    return x


@ray.remote
def _fails():
    raise KeyError("on purpose")


@ray.remote
class _Worker:
    def double(self, x):
        return 2 * x

    def fail(self, x):
        if x == 1:
            raise ValueError("on purpose")
        return x


def pool_without_work():
    """A pool of actors without work: what it says and raises."""
    pool = ActorPool([_Worker.remote()])
    print(pool.has_next(), pool.has_free(), raised(pool.get_next, "StopIteration"))
    print(raised(pool.get_next_unordered, "StopIteration"))
    actor = pool.pop_idle()
    print(actor is not None, pool.pop_idle(), pool.has_free())
    pool.push(actor)
    print(raised(lambda: pool.push(actor), "ValueError"))


def pool_after_an_error():
    """A pool goes on after a call that failed."""
    pool = ActorPool([_Worker.remote(), _Worker.remote()])
    for x in range(3):
        pool.submit(lambda actor, value: actor.fail.remote(value), x)
    found = [raised(lambda: print(pool.get_next()), "ValueError") for _ in range(3)]
    print(found, pool.has_next())


def pool_with_a_limit_of_time():
    """A pool that waits too long."""

    @ray.remote
    class Slow:
        async def wait(self, x):
            await asyncio.sleep(x)
            return x

    pool = ActorPool([Slow.remote()])
    pool.submit(lambda actor, value: actor.wait.remote(value), 60)
    print(raised(lambda: pool.get_next(timeout=0.1), "TimeoutError"))
    print(raised(lambda: pool.get_next_unordered(timeout=0.1), "TimeoutError"))


def queues_full_and_empty():
    """What a queue does at its limits, one by one and in batches."""
    queue = Queue(maxsize=2)
    queue.put_nowait_batch([1, 2])
    print(queue.full(), queue.size(), len(queue), queue.empty())
    print(raised(lambda: queue.put_nowait(3), "Exception"), raised(lambda: queue.put(3, timeout=0.1), "Exception"))
    try:
        queue.put_nowait_batch([3, 4])
    except Full:
        print("Full")
    try:
        queue.get_nowait_batch(3)
    except Empty:
        print("Empty")
    print(queue.get_nowait_batch(2), queue.qsize())
    print(raised(lambda: queue.get(timeout=-1), "ValueError"), raised(lambda: queue.put(1, timeout=-1), "ValueError"))
    queue.shutdown(force=True)
    print(raised(queue.size, "Exception"))


def completed_in_order_of_their_ends():
    """`as_completed` and `map_unordered`."""
    print(sorted(as_completed([_same.remote(x) for x in range(4)], chunk_size=2)))
    print(sorted(map_unordered(_same, range(5), backpressure_size=4, chunk_size=2)))
    print(raised(lambda: list(as_completed([_fails.remote()])), "KeyError"))


def errors_are_of_both_classes():
    """The error of a task is one of Ray and of the class that was raised."""
    try:
        ray.get(_fails.remote())
    except KeyError as error:
        print(
            isinstance(error, RayTaskError),
            type(error.cause).__name__,
            isinstance(error.as_instanceof_cause(), KeyError),
        )
        print("on purpose" in str(error))


def nested_errors_keep_their_class():
    """A task that passes on the error of another."""

    @ray.remote
    def outer():
        return ray.get(_fails.remote())

    print(raised(lambda: ray.get(outer.remote()), "KeyError", "RayTaskError"))
    print(raised(lambda: ray.get(_same.remote(_fails.remote())), "KeyError", "RayTaskError"))


def dying_in_the_constructor():
    """Calls of an actor whose constructor raises."""

    @ray.remote
    class Broken:
        def __init__(self):
            raise ValueError("on purpose")

        def call(self):
            pass

    actor = Broken.remote()
    try:
        ray.get(actor.call.remote())
    except RayActorError as error:
        print(type(error).__name__, "on purpose" in str(error), isinstance(error, ValueError))


def a_generator_that_fails_midway():
    """References before the error have values, the one of the error raises it, and then it ends."""

    @ray.remote
    def numbers():
        yield 1
        yield 2
        raise ValueError("on purpose")

    seen = []
    for ref in numbers.remote():
        seen.append(raised(lambda ref=ref: ray.get(ref), "ValueError"))
    print(seen)


def a_generator_is_asked_after_its_end():
    """`next` after the end, and `completed`."""

    @ray.remote
    def numbers():
        yield 1

    generator = numbers.remote()
    print(ray.get(next(generator)), raised(lambda: next(generator), "StopIteration"))
    print(raised(lambda: next(generator), "StopIteration"), ray.get(generator.completed()))


def several_returns():
    """The number of returns, and what does not fit it."""

    @ray.remote(num_returns=2)
    def two(values):
        return values

    print(ray.get(two.remote([1, 2])), ray.get(two.remote("ab")))
    print(raised(lambda: ray.get(two.remote([1, 2, 3])), "ValueError"))
    print(raised(lambda: ray.get(two.remote(7)), "TypeError", "ValueError"))
    print(two.options(num_returns=0).remote([]), len(two.options(num_returns=3).remote([1, 2, 3])))


def cancelled_before_it_starts():
    """A task that waits for an argument is cancelled."""

    @ray.remote
    def waits(x):
        import time

        time.sleep(100)

    blocker = waits.remote(0)
    ref = _same.remote(blocker)
    ray.cancel(ref)
    print(raised(lambda: ray.get(ref, timeout=20), "TaskCancelledError"))
    print(raised(lambda: ray.get(blocker, timeout=0.1), "GetTimeoutError"))
    ray.cancel(blocker, force=True)
    print(raised(lambda: ray.get(blocker, timeout=20), "TaskCancelledError", "WorkerCrashedError"))
    print(issubclass(GetTimeoutError, TimeoutError), issubclass(TaskCancelledError, Exception))


def pools_of_processes():
    """`multiprocessing.Pool`: chunks, starmap, callbacks, and use after its end."""
    pool = Pool(2)
    print(pool.map(abs, range(-3, 0), chunksize=2), pool.starmap(pow, [(2, 3), (3, 2)]))
    print(sorted(pool.imap_unordered(abs, [-1, -2])), pool.apply(divmod, (7, 2)))
    seen = []
    result = pool.map_async(abs, [-1], callback=seen.append)
    print(result.get(timeout=30), result.ready(), result.successful(), eventually(lambda: seen), seen)
    pool.close()
    print(raised(lambda: pool.apply(abs, (1,)), "ValueError"))
    pool.join()


def a_taken_name_has_an_error_of_its_own():
    """`ActorAlreadyExistsError`, which is a ValueError."""

    @ray.remote(num_cpus=0)
    class A:
        pass

    a = A.options(name="docs-corner").remote()
    print(
        raised(lambda: A.options(name="docs-corner").remote(), "ActorAlreadyExistsError", "ValueError", "RayError"),
        A.options(name="docs-corner", get_if_exists=True).remote() == a,
    )


def deriving_from_an_actor_class_has_an_error_of_its_own():
    """`ray.actor.ActorClassInheritanceException`, which is a TypeError."""

    @ray.remote
    class A:
        pass

    try:

        class B(A):
            pass

    except ray.actor.ActorClassInheritanceException as error:
        print("refused", isinstance(error, TypeError))


def a_busy_node_is_left_where_that_is_allowed():
    """`_spill_on_unavailable` of `NodeAffinitySchedulingStrategy`, with `soft` alone."""
    id = ray.get_runtime_context().get_node_id()

    @ray.remote
    def f():
        return ray.get_runtime_context().get_node_id() == id

    here, gone = (
        NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True) for node in (id, "00" * 28)
    )
    print(ray.get([f.options(scheduling_strategy=one).remote() for one in (here, gone)]))
    print(raised(lambda: NodeAffinitySchedulingStrategy(id, soft=False, _spill_on_unavailable=True), "ValueError"))


def deprecated_definitions_warn_where_asked():
    """`Deprecated(warning=True)` warns at each call, with its message."""

    @Deprecated(message="Use another.", warning=True)
    def f(x):
        return x

    @Deprecated(message="Use another.", warning=True)
    class C:
        def __init__(self, x):
            self.x = x

    @Deprecated
    def g():
        return 3

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        print(f(1), C(2).x, isinstance(C(2), C), g())
    print([(one.category is RayDeprecationWarning, "Use another." in str(one.message)) for one in seen])


def lines_that_were_logged_can_be_forgotten():
    """`reset_log_once` of `ray.util.debug`, one key or all of them."""
    from ray.util import enable_periodic_logging  # noqa: F401  # that it is there
    from ray.util.debug import log_once, reset_log_once

    print(log_once("docs-a"), log_once("docs-b"), log_once("docs-a"))
    reset_log_once("docs-a")
    print(log_once("docs-a"), log_once("docs-b"))
    reset_log_once()
    print(log_once("docs-a"), log_once("docs-b"))


def what_init_returns():
    """Versions, and facts about the job as attributes and keys."""
    found = ray.init(ignore_reinit_error=True, log_to_driver=False)
    print(found.ray_version == ray.__version__, found.ray_commit == ray.__commit__)
    print(found["node_id"] == found.address_info["node_id"] == ray.get_runtime_context().get_node_id())


def locations_have_a_module():
    """`ray.experimental.locations`."""
    from ray.experimental import get_local_object_locations, get_object_locations, locations

    print(locations.get_object_locations is get_object_locations)
    print(locations.get_local_object_locations is get_local_object_locations)
