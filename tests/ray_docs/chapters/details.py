"""Details of actors, generators, queues, pools and graphs."""

import asyncio
import threading
import time

import ray

from tests.ray_docs.helpers import eventually, raised


def a_plain_method_beside_coroutines_returns_a_reference():
    """A method without `async` may return a reference. The caller gets the reference, not its value."""

    @ray.remote
    class Plain:
        def value(self):
            return 7

    @ray.remote
    class Mixed:
        async def ready(self):
            return True

        def plain(self, actor):
            return actor.value.remote()

        async def coroutine(self, actor):
            return actor.value.remote()

    plain, mixed = Plain.remote(), Mixed.remote()
    found = ray.get([mixed.plain.remote(plain), mixed.coroutine.remote(plain)])
    print([type(one).__name__ for one in found], ray.get(found))


def a_running_function_has_a_short_name():
    """It has that of its module and its own, a method also that of its class, but not those of their surroundings."""

    @ray.remote
    def task():
        return ray.get_runtime_context().get_task_function_name()

    @ray.remote
    class Actor:
        def method(self):
            return ray.get_runtime_context().get_task_function_name()

    names = ray.get([task.remote(), Actor.remote().method.remote()])
    print([name.rpartition("details.")[2] for name in names])


def a_base_exception_fails_the_call():
    """It does not end the process."""

    @ray.remote(max_retries=0)
    def fails():
        raise BaseException("b")

    print(raised(lambda: ray.get(fails.remote()), "RayTaskError", "WorkerCrashedError"))


def a_generator_of_an_actor_ends_with_its_actor():
    """The values before are kept, then comes the error, then nothing."""

    @ray.remote
    class Actor:
        def slowly(self):
            for number in range(100):
                time.sleep(0.05)
                yield number

    actor = Actor.remote()
    items = actor.slowly.remote()
    first = ray.get(next(items))
    ray.kill(actor)
    print(
        first, raised(lambda: [ray.get(one) for one in items], "RayActorError"), raised(items.__next__, "StopIteration")
    )


def a_cancelled_generator_raises_then_ends():
    """Also one of coroutines."""

    @ray.remote
    class Actor:
        async def slowly(self):
            for number in range(1000):
                await asyncio.sleep(0.05)
                yield number

    items = Actor.remote().slowly.remote()
    print(ray.get(next(items)))
    ray.cancel(items)
    print(
        raised(lambda: [ray.get(one) for one in items], "TaskCancelledError"), raised(items.__next__, "StopIteration")
    )


def an_asynchronous_loop_over_a_generator():
    """`async for` gives references, and these can be awaited."""

    @ray.remote
    def items():
        for number in range(3):
            yield number

    async def read():
        return [await ref async for ref in items.remote()]

    print(asyncio.run(read()))


def a_generator_tells_of_its_end():
    """`completed()` is a reference to the end of the call."""

    @ray.remote
    def items():
        yield 0
        yield 1

    found = items.remote()
    print([ray.get(one) for one in found], ray.get(found.completed()), found.is_finished())


def a_generator_with_a_number_of_returns():
    """It is no stream then. A wrong number is an error."""

    @ray.remote
    def items():
        yield 0
        yield 1

    print(ray.get(items.options(num_returns=2).remote()))
    print(raised(lambda: ray.get(items.options(num_returns=3).remote()), "ValueError"))


def a_cancelled_call_cancels_those_it_made():
    """Unless that is not wanted."""

    @ray.remote
    class Log:
        def __init__(self):
            self.words = []

        def add(self, word):
            self.words.append(word)

        def all(self):
            return sorted(self.words)

    @ray.remote
    def inner(log, word):
        ray.get(log.add.remote(f"{word} began"))
        time.sleep(1.5)
        ray.get(log.add.remote(f"{word} ended"))

    @ray.remote(num_cpus=0)
    def outer(log, word):
        ray.get(inner.remote(log, word))

    log = Log.remote()
    for recursive in (True, False):
        call = outer.remote(log, str(recursive))
        eventually(lambda word=f"{recursive} began": word in ray.get(log.all.remote()))
        ray.cancel(call, recursive=recursive)
        print(raised(lambda ref=call: ray.get(ref), "TaskCancelledError"))
    eventually(lambda: "False ended" in ray.get(log.all.remote()))
    print(ray.get(log.all.remote()))


def a_task_cancels_a_call_of_another():
    """With the reference that it was given."""

    @ray.remote
    class Actor:
        async def wait(self):
            await asyncio.sleep(60)

    @ray.remote
    def cancel(refs):
        ray.cancel(refs[0])

    actor = Actor.remote()
    call = actor.wait.remote()
    ray.get(actor.__ray_ready__.remote())
    ray.get(cancel.remote([call]))
    print(raised(lambda: ray.get(call), "TaskCancelledError"))


def groups_of_one_actor_have_loops_of_their_own():
    """Coroutines of one concurrency group share a thread, those of two do not."""

    @ray.remote(concurrency_groups={"io": 2, "compute": 4})
    class Actor:
        @ray.method(concurrency_group="io")
        async def first(self):
            return threading.get_ident()

        @ray.method(concurrency_group="io")
        async def second(self):
            return threading.get_ident()

        @ray.method(concurrency_group="compute")
        async def third(self):
            return threading.get_ident()

        async def fourth(self):
            return threading.get_ident()

    actor = Actor.remote()
    one, two, three, four = ray.get([getattr(actor, name).remote() for name in ("first", "second", "third", "fourth")])
    moved = ray.get(actor.second.options(concurrency_group="compute").remote())
    print(one == two, one == three, four in (one, three), moved == three)


def one_coroutine_at_a_time():
    """With `max_concurrency=1` a call ends before the next begins, though it waits."""

    @ray.remote
    class Actor:
        def __init__(self):
            self.seen = ""

        async def work(self):
            self.seen += "b"
            await asyncio.sleep(0)
            self.seen += "e"

        async def all(self):
            return self.seen

    actor = Actor.options(max_concurrency=1).remote()
    ray.get([actor.work.remote() for _ in range(4)])
    print(ray.get(actor.all.remote()))


def calls_on_the_instance_of_an_actor():
    """`__ray_call__` runs a function on it."""

    @ray.remote
    class Actor:
        def __init__(self):
            self.value = 3

    actor = Actor.remote()
    print(
        ray.get(actor.__ray_call__.remote(lambda self, by: self.value * by, 5)), ray.get(actor.__ray_ready__.remote())
    )


def names_belong_to_namespaces():
    """Equal names in two of them are two actors."""

    @ray.remote
    class Actor:
        def ready(self):
            return True

    here = Actor.options(name="twin").remote()
    there = Actor.options(name="twin", namespace="elsewhere").remote()
    ray.get([here.ready.remote(), there.ready.remote()])
    print(raised(lambda: Actor.options(name="twin").remote(), "ValueError"))
    print(ray.get_actor("twin", namespace="elsewhere") == there, ray.get_actor("twin") == here)
    print(sorted(one["namespace"] for one in ray.util.list_named_actors(True) if one["name"] == "twin"))
    ray.kill(there)


def the_first_of_many_makes_the_actor():
    """`get_if_exists` gives all the same one."""

    @ray.remote
    class Actor:
        def __init__(self, value):
            self.value = value

        def get(self):
            return self.value

    @ray.remote
    def make(value):
        actor = Actor.options(name="first", get_if_exists=True, lifetime="detached").remote(value)
        return ray.get(actor.get.remote())

    print(len(set(ray.get([make.remote(number) for number in range(4)]))))
    ray.kill(ray.get_actor("first"))


def queues_refuse_what_does_not_fit():
    """Nothing of a batch is put or taken then."""
    from ray.util.queue import Empty, Full, Queue

    queue = Queue(maxsize=3)
    kinds = []
    for call in (
        lambda: queue.put_nowait_batch([1, 2, 3, 4]),
        lambda: queue.get_nowait_batch(1),
        lambda: queue.put(1, timeout=-1),
        lambda: queue.get(timeout=0.05),
    ):
        try:
            call()
        except (Empty, Full, ValueError) as error:
            kinds.append([kind.__name__ for kind in (Empty, Full, ValueError) if isinstance(error, kind)])
    queue.put_nowait_batch([1, 2])
    print(kinds, queue.get_nowait_batch(2), queue.empty())


def a_pool_of_actors_gives_idle_ones_away():
    """And takes others."""

    @ray.remote
    class Actor:
        def double(self, value):
            return 2 * value

    first, second = Actor.remote(), Actor.remote()
    pool = ray.util.ActorPool([first])
    pool.submit(lambda actor, value: actor.double.remote(value), 1)
    print(pool.pop_idle(), pool.has_free(), raised(lambda: pool.push(first), "ValueError"))
    pool.push(second)
    print(pool.has_free(), pool.get_next(), pool.has_next(), raised(pool.get_next, "StopIteration"))


def a_late_result_of_a_pool_of_actors():
    """`ignore_if_timedout` goes on without it."""

    @ray.remote
    class Actor:
        def slow(self):
            time.sleep(1)
            return 1

    pool = ray.util.ActorPool([Actor.remote()])
    pool.submit(lambda actor, _: actor.slow.remote(), None)
    print(raised(lambda: pool.get_next(timeout=0.05), "TimeoutError"), pool.get_next())


def calls_in_a_removed_group():
    """Their group is gone for good."""
    from ray.util.placement_group import placement_group_table

    group = ray.util.placement_group([{"CPU": 1}], name="gone")
    ray.get(group.ready())
    ray.util.remove_placement_group(group)
    print(eventually(lambda: placement_group_table(group)["state"] == "REMOVED"))
    print(raised(lambda: ray.util.get_placement_group("gone"), "ValueError"))
    ray.util.remove_placement_group(group)  # again


def labels_choose_a_node():
    """One of several values, or none of them."""

    @ray.remote
    def task():
        return True

    chosen = [{"zone": "a"}, {"zone": "!b"}, {"zone": "in(a,b)"}, {"zone": "!in(c)"}]
    print(ray.get([task.options(label_selector=one).remote() for one in chosen]))


def a_graph_with_several_inputs():
    """By position, by name, and both outputs of two nodes."""
    from ray.dag import InputNode, MultiOutputNode

    @ray.remote
    def add(left, right=0):
        return left + right

    with InputNode() as given:
        by_place = add.bind(given[0], given[1])
    with InputNode() as given:
        by_name = add.bind(given.left, given.right)
    with InputNode() as given:
        both = MultiOutputNode([add.bind(given, 1), add.bind(given, 2)])
    print(ray.get(by_place.execute(3, 4)), ray.get(by_name.execute(left=5, right=6)), ray.get(both.execute(1)))


def a_reference_may_be_awaited_twice():
    """And its value may be waited for with a limit first."""

    @ray.remote
    def slow():
        time.sleep(0.5)
        return 7

    async def read():
        ref = slow.remote()
        try:
            await asyncio.wait_for(ref.as_future(), 0.05)
        except asyncio.TimeoutError:
            return await ref, await ref

    print(asyncio.run(read()))


def tables_of_stored_objects():
    """Sizes and nodes of values, and nothing of a value that is not there yet."""
    from ray.experimental import get_local_object_locations, get_object_locations

    @ray.remote
    def slow():
        time.sleep(3)

    large, pending = ray.put(bytes(2_000_000)), slow.remote()
    found = get_object_locations([large])[large]
    print(found["node_ids"] == [ray.get_runtime_context().get_node_id()], found["object_size"] > 2_000_000)
    for locations in (get_object_locations, get_local_object_locations):
        print(locations([pending])[pending]["node_ids"], locations([pending])[pending]["object_size"])


def a_histogram_tells_its_boundaries():
    """Beside what each metric tells."""
    from ray.util.metrics import Histogram

    print(Histogram("waited", description="in s", boundaries=[1, 2], tag_keys=("who",)).info)
