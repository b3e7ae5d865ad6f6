"""Patterns: the programs of Ray's chapter of design patterns and anti-patterns."""

import time

import numpy as np
import ray

from tests.ray_docs.helpers import eventually, raised


def nested_tasks_sort():
    """Pattern: nested tasks run in parallel what a task has divided."""

    def sequential(items):
        return sorted(items)

    @ray.remote
    def quick_sort(items):
        if len(items) <= 50:
            return sequential(items)
        pivot = items[0]
        lesser = quick_sort.remote([item for item in items if item < pivot])
        greater = quick_sort.remote([item for item in items if item > pivot])
        return [*ray.get(lesser), pivot, *ray.get(greater)]

    items = [(7919 * number) % 1009 for number in range(300)]
    print(ray.get(quick_sort.remote(items)) == sorted(items))


def generators_for_large_results():
    """Pattern: a generator yields what would take too much memory at once."""

    @ray.remote(num_returns=4)
    def blocks():
        for number in range(4):
            yield np.full(50_000, number)

    print([int(ray.get(ref).sum()) for ref in blocks.remote()])


def limit_of_pending_tasks():
    """Pattern: `wait` limits how many calls are under way."""

    @ray.remote
    def work(number):
        return number

    pending, done, most = [], [], 0
    for number in range(20):
        if len(pending) >= 4:
            ready, pending = ray.wait(pending, num_returns=1)
            done += ray.get(ready)
        pending.append(work.remote(number))
        most = max(most, len(pending))
    done += ray.get(pending)
    print(most, sorted(done) == list(range(20)))


def resources_limit_concurrency():
    """Pattern: a call that asks for much of a resource limits how many run at a time."""

    @ray.remote
    class Gauge:
        def __init__(self):
            self.now, self.most = 0, 0

        def enter(self):
            self.now += 1
            self.most = max(self.most, self.now)

        def leave(self):
            self.now -= 1

        def peak(self):
            return self.most

    gauge = Gauge.remote()

    @ray.remote(num_cpus=1, resources={"special": 1})
    def work():
        ray.get(gauge.enter.remote())
        time.sleep(0.1)
        ray.get(gauge.leave.remote())

    ray.get([work.remote() for _ in range(6)])
    print(ray.get(gauge.peak.remote()) <= 2)


def a_tree_of_actors():
    """Pattern: a supervisor creates workers and collects their results."""

    @ray.remote(num_cpus=0.5)
    class Worker:
        def work(self, number):
            return number * number

    @ray.remote(num_cpus=0.5)
    class Supervisor:
        def __init__(self, size):
            self.workers = [Worker.remote() for _ in range(size)]

        def work(self):
            return ray.get([worker.work.remote(number) for number, worker in enumerate(self.workers)])

    supervisors = [Supervisor.remote(2) for _ in range(2)]
    print(ray.get([supervisor.work.remote() for supervisor in supervisors]))


def an_actor_synchronises_others():
    """Pattern: an actor stands for an event that tasks wait for."""

    @ray.remote(num_cpus=0)
    class Signal:
        def __init__(self):
            import asyncio

            self.event = asyncio.Event()

        def send(self, clear=False):
            self.event.set()
            if clear:
                self.event.clear()

        async def wait(self, should_wait=True):
            if should_wait:
                await self.event.wait()

    signal = Signal.remote()

    @ray.remote(num_cpus=0)
    def wait_and_go():
        ray.get(signal.wait.remote())
        return "gone"

    refs = [wait_and_go.remote() for _ in range(3)]
    early, _ = ray.wait(refs, timeout=0.2)
    ray.get(signal.send.remote())
    print(len(early), ray.get(refs))


def a_pipeline_overlaps():
    """Pattern: a worker asks for its next item before it works on this one."""

    @ray.remote(num_cpus=0)
    class Items:
        def __init__(self):
            self.items = list(range(5))

        def next(self):
            return self.items.pop(0) if self.items else None

    @ray.remote
    class Worker:
        def __init__(self, items):
            self.items = items

        def run(self):
            done = []
            upcoming = self.items.next.remote()
            while True:
                item = ray.get(upcoming)
                if item is None:
                    return done
                upcoming = self.items.next.remote()
                done.append(item * 10)

    print(ray.get(Worker.remote(Items.remote()).run.remote()))


def a_reference_is_not_waited_for_when_it_is_passed_on():
    """Anti-pattern: `get` before a result is passed to another task."""

    @ray.remote
    def first():
        time.sleep(0.2)
        return np.ones(1000)

    @ray.remote
    def second(array):
        return float(array.sum())

    begin = time.monotonic()
    ref = second.remote(first.remote())
    print(time.monotonic() - begin < 0.2, ray.get(ref))


def get_in_the_order_of_completion():
    """Anti-pattern: results taken in the order of submission wait for the slowest."""

    @ray.remote
    def work(number):
        time.sleep(0.5 if number == 0 else 0)
        return number

    pending = [work.remote(number) for number in range(3)]
    order = []
    while pending:
        (ready,), pending = ray.wait(pending)
        order.append(ray.get(ready))
    print(order[-1], sorted(order))


def a_large_argument_is_stored_once():
    """Anti-pattern: the same large value passed again and again."""

    @ray.remote
    def use(array):
        return array.nbytes, array.flags.writeable

    ref = ray.put(np.zeros(200_000))
    print(set(ray.get([use.remote(ref) for _ in range(5)])))


def a_large_value_in_a_closure():
    """Anti-pattern: a closure over a large value; it is part of the function."""
    array = np.ones(100_000)

    @ray.remote
    def use():
        return float(array.sum())

    print(ray.get([use.remote(), use.remote()]))


def global_variables_are_not_shared():
    """Anti-pattern: a global variable is each process's own; an actor shares it."""
    state = {"value": 1}

    @ray.remote
    def change():
        state["value"] = 2
        return state["value"]

    @ray.remote
    class Shared:
        def __init__(self):
            self.value = 1

        def set(self, value):
            self.value = value

        def get(self):
            return self.value

    shared = Shared.remote()
    print(ray.get(change.remote()), state["value"])
    ray.get(shared.set.remote(3))
    print(ray.get(shared.get.remote()))


def redefining_a_function_in_a_loop():
    """Anti-pattern: a remote function made anew in each turn of a loop; each is another one."""
    results = []
    for number in range(3):

        @ray.remote
        def f(number=number):
            return number

        results.append(f.remote())
    print(ray.get(results))


def returning_a_put_reference():
    """Anti-pattern: `return ray.put(value)`; the caller gets a reference to a reference's value."""

    @ray.remote
    def f():
        return ray.put(np.ones(3))

    inner = ray.get(f.remote())
    print(isinstance(inner, ray.ObjectRef), ray.get(inner).tolist())


def references_of_references_outlive_their_task():
    """What a task has stored lives while somebody has its reference."""

    @ray.remote
    def f():
        return [ray.put(number) for number in range(3)]

    refs = ray.get(f.remote())
    print(ray.get(refs))


def batches_of_tiny_tasks():
    """Anti-pattern: a task for each tiny item; batches do the same."""

    @ray.remote
    def batch(items):
        return [item + 1 for item in items]

    parts = ray.get([batch.remote(list(range(first, first + 10))) for first in range(0, 50, 10)])
    print([item for part in parts for item in part] == list(range(1, 51)))


def cancelling_what_is_not_needed():
    """The rest of a search is cancelled when one has found it."""

    @ray.remote(max_retries=0)
    def search(number):
        if number:
            time.sleep(100)
        return number

    refs = [search.remote(number) for number in range(3)]
    (found,), rest = ray.wait(refs)
    for ref in rest:
        ray.cancel(ref)
    print(ray.get(found), [raised(lambda ref=ref: ray.get(ref), "TaskCancelledError") for ref in rest])


def results_are_freed_with_their_references():
    """A large result is gone when nobody has a reference any more."""
    before = ray.available_resources().get("object_store_memory")

    @ray.remote
    def f():
        return np.zeros(1_000_000)

    ref = f.remote()
    ray.wait([ref])
    del ref
    print(eventually(lambda: ray.available_resources().get("object_store_memory") >= before))
