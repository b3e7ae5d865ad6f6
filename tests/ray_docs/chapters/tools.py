"""Tools on top of actors: pools and queues."""

import ray

from tests.ray_docs.helpers import raised


def actor_pool_map():
    """`ActorPool.map` gives results in order, `map_unordered` as they come."""

    @ray.remote
    class A:
        def double(self, x):
            return 2 * x

    pool = ray.util.ActorPool([A.remote(), A.remote()])
    print(
        list(pool.map(lambda a, x: a.double.remote(x), range(4))),
        sorted(pool.map_unordered(lambda a, x: a.double.remote(x), range(4))),
    )


def actor_pool_step_by_step():
    """submit, has_next, get_next, get_next_unordered, has_free, pop_idle, push."""

    @ray.remote
    class A:
        def f(self, x):
            return x

    a = A.remote()
    pool = ray.util.ActorPool([a])
    pool.submit(lambda a, x: a.f.remote(x), 1)
    pool.submit(lambda a, x: a.f.remote(x), 2)
    print(
        pool.has_next(), pool.has_free(), pool.get_next(), pool.get_next_unordered(), pool.has_next(), pool.has_free()
    )
    print(raised(pool.get_next, "StopIteration"), pool.pop_idle() == a, pool.pop_idle())
    pool.push(a)
    print(pool.has_free(), raised(lambda: pool.push(a), "ValueError"))


def a_queue_between_processes():
    """`Queue` has the interface of the standard library's."""
    from ray.util.queue import Empty, Full, Queue

    queue = Queue(maxsize=2)
    queue.put(1)
    queue.put_nowait(2)
    print(queue.full(), queue.qsize(), queue.size(), queue.empty())
    try:
        queue.put(3, timeout=0.05)
    except Full:
        print("full")
    ray.get(ray.remote(lambda q: q.get()).remote(queue))
    print(queue.get(), queue.empty())
    for get in (queue.get_nowait, lambda: queue.get(timeout=0.05)):
        try:
            get()
        except Empty:
            print("empty")
    queue.put_nowait_batch([4, 5])
    print(queue.get_nowait_batch(2))
    queue.shutdown()


def queue_refuses_what_makes_no_sense():
    """Negative timeouts and batches that are no lists."""
    from ray.util.queue import Full, Queue

    queue = Queue(maxsize=1)
    print(raised(lambda: queue.get(timeout=-1), "ValueError"), raised(lambda: queue.put(1, timeout=-1), "ValueError"))
    print(raised(lambda: queue.put_nowait_batch(3), "TypeError"))
    try:
        queue.put_nowait_batch([1, 2])
    except Full:
        print("full", queue.qsize())
    queue.shutdown(force=True)
    print(queue.actor)
