"""Actors that take several calls at a time: asyncio, threads, concurrency groups; and asyncio in the driver."""

import asyncio
import threading
import time

import ray

from tests.ray_docs.helpers import eventually, raised, tally


def coroutines_run_beside_each_other():
    """An async actor has many calls under way; one that waits lets others run."""

    @ray.remote
    class A:
        def __init__(self):
            self.event = asyncio.Event()

        async def wait(self):
            await self.event.wait()
            return "woken"

        async def wake(self):
            self.event.set()

    a = A.remote()
    ref = a.wait.remote()
    ray.get(a.wake.remote())
    print(ray.get(ref))


def a_call_with_a_late_argument_blocks_nobody():
    """An async actor starts calls as soon as their arguments are there, in any order."""

    @ray.remote
    class A:
        def __init__(self):
            self.event = asyncio.Event()

        async def wait(self):
            await self.event.wait()
            return "value"

        async def use(self, value):
            return value

        async def go(self):
            self.event.set()

    a = A.remote()
    ref = a.use.remote(a.wait.remote())
    a.go.remote()
    print(ray.get(ref, timeout=5))


def threads_with_a_late_argument():
    """The same for actors with threads."""

    @ray.remote(max_concurrency=3)
    class A:
        def __init__(self):
            self.event = threading.Event()

        def wait(self):
            self.event.wait(8)
            return "value"

        def use(self, value):
            return value

        def go(self):
            self.event.set()

    a = A.remote()
    ref = a.use.remote(a.wait.remote())
    a.go.remote()
    print(ray.get(ref, timeout=5))


def threads_run_beside_each_other():
    """`max_concurrency` gives an ordinary actor threads."""

    @ray.remote(max_concurrency=2)
    class A:
        def __init__(self):
            self.barrier = threading.Barrier(2, timeout=20)

        def meet(self):
            self.barrier.wait()
            return "met"

    a = A.remote()
    print(ray.get([a.meet.remote(), a.meet.remote()]))


def max_concurrency_of_an_async_actor():
    """It bounds how many coroutines are under way."""

    @ray.remote(max_concurrency=2)
    class A:
        def __init__(self):
            self.now = self.most = 0

        async def f(self):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.05)
            self.now -= 1

        async def seen(self):
            return self.most

    a = A.remote()
    ray.get([a.f.remote() for _ in range(6)])
    print(ray.get(a.seen.remote()))


def one_thread_of_the_loop():
    """All coroutines of an actor run in one thread."""

    @ray.remote
    class A:
        async def f(self):
            return threading.get_ident()

    a = A.remote()
    print(len(set(ray.get([a.f.remote() for _ in range(4)]))))


def plain_methods_of_async_actors():
    """They run in the loop too, and hold it up."""

    @ray.remote
    class A:
        async def a(self):
            return threading.get_ident()

        def b(self):
            return threading.get_ident()

    a = A.remote()
    print(ray.get(a.a.remote()) == ray.get(a.b.remote()))


def awaiting_references_in_an_actor():
    """`await ref` and `asyncio.gather` of references in a coroutine."""

    @ray.remote
    def double(x):
        return 2 * x

    @ray.remote
    class A:
        async def f(self):
            one = await double.remote(1)
            more = await asyncio.gather(double.remote(2), double.remote(3))
            return [one, *more]

    print(ray.get(A.remote().f.remote()))


def awaiting_references_in_the_driver():
    """Also there, with `wait` and `wait_for` of asyncio."""

    @ray.remote
    def f(x):
        return x

    async def main():
        done, pending = await asyncio.wait([asyncio.ensure_future(_value(f.remote(n))) for n in range(3)])
        return (
            await f.remote(5),
            sorted(one.result() for one in done),
            len(pending),
            await asyncio.wait_for(f.remote(6), 20),
        )

    async def _value(ref):
        return await ref

    print(asyncio.run(main()))


def awaiting_what_fails():
    """The error comes out of `await`."""

    @ray.remote
    def f():
        raise KeyError("x")

    async def main():
        try:
            await f.remote()
        except KeyError:
            return "KeyError"

    print(asyncio.run(main()))


def futures_of_references():
    """`ref.future()` is a future of concurrent.futures."""
    import concurrent.futures

    future = ray.put(3).future()
    print(isinstance(future, concurrent.futures.Future), future.result(timeout=20))


def asyncio_futures_of_references():
    """`ref.as_future()` is one of asyncio."""

    async def main():
        future = ray.put(4).as_future()
        return asyncio.isfuture(future), await future

    print(asyncio.run(main()))


def an_error_in_a_coroutine():
    """It is the error of its call."""

    @ray.remote
    class A:
        async def f(self):
            raise ValueError("bad")

    print(raised(lambda: ray.get(A.remote().f.remote()), "ValueError", "RayTaskError"))


def cancel_of_a_coroutine():
    """It is interrupted where it waits, sees asyncio's CancelledError, and the call raises TaskCancelledError."""

    @ray.remote
    class A:
        def __init__(self):
            self.seen = ""

        async def f(self, path):
            open(path, "ab").write(b"x")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.seen = "cancelled"
                raise

        async def what(self):
            return self.seen

    a = A.remote()
    with tally() as counts:
        ref = a.f.remote(counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"), ray.get(a.what.remote()))


def concurrency_groups():
    """Methods of one group do not take the room of another."""

    @ray.remote(concurrency_groups={"io": 1, "compute": 1})
    class A:
        def __init__(self):
            self.event = threading.Event()

        @ray.method(concurrency_group="io")
        def wait(self):
            return self.event.wait(30)

        @ray.method(concurrency_group="compute")
        def go(self):
            self.event.set()
            return "gone"

    a = A.remote()
    ref = a.wait.remote()
    print(ray.get(a.go.remote(), timeout=20), ray.get(ref))


def the_default_group():
    """Methods without a group are in one of their own, with `max_concurrency` threads."""

    @ray.remote(concurrency_groups={"io": 2})
    class A:
        @ray.method(concurrency_group="io")
        def named(self):
            return threading.current_thread().name

        def plain(self):
            return "plain"

    a = A.remote()
    ray.get(a.named.remote())
    print(ray.get(a.plain.remote()))


def a_group_for_one_call():
    """`.options(concurrency_group=)` chooses it."""

    @ray.remote(concurrency_groups={"io": 1, "other": 1})
    class A:
        def __init__(self):
            self.event = threading.Event()

        @ray.method(concurrency_group="io")
        def wait(self):
            return self.event.wait(30)

        @ray.method(concurrency_group="io")
        def go(self):
            self.event.set()

    a = A.remote()
    ref = a.wait.remote()
    a.go.options(concurrency_group="other").remote()
    print(ray.get(ref, timeout=20))


def groups_of_async_actors():
    """Their limits hold for coroutines."""

    @ray.remote(concurrency_groups={"few": 1})
    class A:
        def __init__(self):
            self.now = self.most = 0

        @ray.method(concurrency_group="few")
        async def f(self):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.02)
            self.now -= 1
            return self.most

    a = A.remote()
    print(max(ray.get([a.f.remote() for _ in range(3)])))


def a_blocking_call_in_one_group_of_coroutines():
    """Each group of an async actor has a loop of its own: who blocks one does not block the others."""

    @ray.remote(concurrency_groups={"a": 1, "b": 1})
    class A:
        def __init__(self):
            self.event = threading.Event()

        @ray.method(concurrency_group="a")
        async def block(self):
            return self.event.wait(20)

        @ray.method(concurrency_group="b")
        async def go(self):
            self.event.set()

    a = A.remote()
    ref = a.block.remote()
    a.go.remote()
    print(ray.get(ref, timeout=40))


def async_constructor():
    """A constructor that is a coroutine is awaited."""

    @ray.remote
    class A:
        async def __init__(self):
            await asyncio.sleep(0)
            self.value = "awaited"

        async def get(self):
            return self.value

    print(ray.get(A.remote().get.remote()))


def exit_actor_in_a_coroutine():
    """It ends the actor."""

    @ray.remote
    class A:
        async def leave(self):
            ray.actor.exit_actor()

        async def f(self):
            return 1

    a = A.remote()
    print(
        raised(lambda: ray.get(a.leave.remote()), "RayActorError"),
        raised(lambda: ray.get(a.f.remote()), "RayActorError"),
    )


def loop_of_an_async_actor():
    """Coroutines find the running loop and can start others in the background."""

    @ray.remote
    class A:
        def __init__(self):
            self.n = 0

        async def start(self):
            async def later():
                await asyncio.sleep(0.02)
                self.n += 1

            self.task = asyncio.get_running_loop().create_task(later())

        async def count(self):
            return self.n

    a = A.remote()
    ray.get(a.start.remote())
    print(eventually(lambda: ray.get(a.count.remote()) == 1))


def context_of_calls_beside_each_other():
    """Each coroutine and thread sees the id of its own call."""

    @ray.remote
    class A:
        async def f(self):
            before = ray.get_runtime_context().get_task_id()
            await asyncio.sleep(0.05)
            return before == ray.get_runtime_context().get_task_id(), before

    a = A.remote()
    found = ray.get([a.f.remote() for _ in range(3)])
    print([same for same, _ in found], len({id for _, id in found}))


def threads_use_the_api():
    """Threads that user code starts may call the runtime."""

    @ray.remote
    def f(x):
        return x

    found = []
    threads = [threading.Thread(target=lambda n=n: found.append(ray.get(f.remote(n)))) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    print(sorted(found))


def asyncio_queue_of_actors():
    """A queue has coroutines too."""
    from ray.util.queue import Queue

    async def main():
        queue = Queue()
        await queue.put_async(1)
        return await queue.get_async()

    print(asyncio.run(main()))


def two_callers_and_a_slow_one():
    """A threaded actor serves one caller while another's call runs."""

    @ray.remote(max_concurrency=2)
    class A:
        def __init__(self):
            self.go = False

        def slow(self):
            end = time.monotonic() + 20
            while not self.go and time.monotonic() < end:
                time.sleep(0.01)
            return self.go

        def fast(self):
            self.go = True

    a = A.remote()
    ref = a.slow.remote()
    ray.get(ray.remote(lambda a: ray.get(a.fast.remote())).remote(a))
    print(ray.get(ref))


def a_constructor_has_the_loop():
    """`__init__` of an actor with coroutines runs in its loop, and a task made there runs."""

    @ray.remote
    class A:
        def __init__(self):
            self.loop = asyncio.get_running_loop()
            self.seen = []
            self.task = asyncio.create_task(self.work())

        async def work(self):
            self.seen.append(asyncio.get_running_loop() is self.loop)

        async def f(self):
            await self.task
            return self.seen, asyncio.get_running_loop() is self.loop

    print(ray.get(A.remote().f.remote()))


def a_constructor_of_coroutines_that_raises():
    """Its error is that of a constructor."""

    @ray.remote
    class A:
        def __init__(self):
            raise ValueError("no")

        async def f(self):
            return 1

    print(raised(lambda: ray.get(A.remote().f.remote()), "ActorDiedError"))


def a_constructor_of_coroutines_may_wait():
    """`get` in the constructor waits."""

    @ray.remote
    class A:
        def __init__(self):
            self.x = ray.get(ray.put(5))

        async def f(self):
            return self.x

    print(ray.get(A.remote().f.remote()))
