"""Programs in the manner of the pages of Ray's guide of its core: each names its page."""

import asyncio
import os
import random
import tempfile
import time
from itertools import chain

import numpy as np
import ray
from ray.util.actor_pool import ActorPool
from ray.util.queue import Empty, Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tests.ray_docs.helpers import eventually, raised, tally


def gotchas_variables_of_the_driver():
    """Page "Gotchas": what the driver changes after the first call does not reach the function."""
    state = {"value": 1}

    @ray.remote
    def read():
        return state["value"]

    print(ray.get(read.remote()))
    state["value"] = 2
    print(ray.get(read.remote()), ray.get(read.remote()))


def gotchas_environment_of_the_driver():
    """Page "Gotchas": a variable that the driver sets later is not one of its tasks; `runtime_env` sets it."""
    os.environ["SET_LATE"] = "1"

    @ray.remote
    def read():
        return os.environ.get("SET_LATE", "none")

    try:
        print(ray.get(read.options(runtime_env={"env_vars": {"SET_LATE": "2"}}).remote()))
    finally:
        del os.environ["SET_LATE"]


def gotchas_global_of_each_process():
    """Page "Gotchas": an actor is where a count is kept that all tasks change."""

    @ray.remote
    class Count:
        def __init__(self):
            self.value = 0

        def add(self, by):
            self.value += by
            return self.value

    @ray.remote
    def work(count, by):
        return ray.get(count.add.remote(by))

    count = Count.remote()
    found = ray.get([work.remote(count, by) for by in range(5)])
    print(max(found), ray.get(count.add.remote(0)))


def monte_carlo():
    """Page "Monte Carlo estimation of pi": tasks count, and an actor has their progress."""

    @ray.remote
    class Progress:
        def __init__(self, total):
            self.total, self.done = total, {}

        def report(self, number, done):
            self.done[number] = done

        def share(self):
            return sum(self.done.values()) / self.total

    @ray.remote
    def sample(number, count, progress):
        drawn = random.Random(number)
        inside = sum(drawn.random() ** 2 + drawn.random() ** 2 <= 1 for _ in range(count))
        progress.report.remote(number, count)
        return inside

    progress = Progress.remote(4 * 500)
    inside = sum(ray.get([sample.remote(number, 500, progress) for number in range(4)]))
    print(2.9 < 4 * inside / 2000 < 3.4, eventually(lambda: ray.get(progress.share.remote()) == 1.0))


def sort_by_a_tree_of_tasks():
    """Page "Pattern: using nested tasks to achieve nested parallelism": a sort divides itself."""

    def halves(values):
        pivot, rest = values[0], values[1:]
        return [one for one in rest if one < pivot], pivot, [one for one in rest if one >= pivot]

    @ray.remote
    def sort(values):
        if len(values) < 20:
            return sorted(values)
        low, pivot, high = halves(values)
        parts = [sort.remote(low), sort.remote(high)]
        return [*ray.get(parts[0]), pivot, *ray.get(parts[1])]

    values = random.Random(1).sample(range(1000), 200)
    print(ray.get(sort.remote(values)) == sorted(values))


def map_reduce():
    """Page "A simple MapReduce example": each map returns a part for each reduce."""
    words = ["a b a", "b c b", "a c"]

    @ray.remote(num_returns=2)
    def count(text):
        found = [{}, {}]
        for word in text.split():
            part = found[ord(word) % 2]
            part[word] = part.get(word, 0) + 1
        return found

    @ray.remote
    def merge(*parts):
        total = {}
        for part in parts:
            for word, number in part.items():
                total[word] = total.get(word, 0) + number
        return total

    maps = [count.remote(text) for text in words]
    print([sorted(ray.get(merge.remote(*(parts[which] for parts in maps))).items()) for which in range(2)])


def tree_of_actors():
    """Page "Pattern: using a supervisor actor to manage a tree of actors": each supervisor has workers."""

    @ray.remote(num_cpus=0)
    class Worker:
        def run(self, value):
            return value * value

    @ray.remote(num_cpus=0)
    class Supervisor:
        def __init__(self, count):
            self.workers = [Worker.remote() for _ in range(count)]

        def run(self, start):
            return sum(ray.get([one.run.remote(start + number) for number, one in enumerate(self.workers)]))

    supervisors = [Supervisor.remote(2) for _ in range(2)]
    print(ray.get([one.run.remote(10 * number) for number, one in enumerate(supervisors)]))


def signal_actor():
    """Page "Actor synchronization": tasks wait for an event in an actor with coroutines."""

    @ray.remote(num_cpus=0)
    class Signal:
        def __init__(self):
            self.event = asyncio.Event()

        def send(self):
            self.event.set()

        async def wait(self):
            await self.event.wait()

    @ray.remote
    def go(signal):
        ray.get(signal.wait.remote())
        return "went"

    signal = Signal.remote()
    waiting = [go.remote(signal) for _ in range(3)]
    print(len(ray.wait(waiting, timeout=0.3)[0]))
    ray.get(signal.send.remote())
    print(ray.get(waiting))


def actors_and_tasks_of_one_handle():
    """Page "Actors": a handle goes to tasks, and all of them call the same actor."""

    @ray.remote
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

        def get(self):
            return self.count

    @ray.remote
    def add_three(counter):
        return [ray.get(counter.add.remote()) for _ in range(3)]

    counter = Counter.remote()
    found = ray.get([add_three.remote(counter) for _ in range(2)])
    print(sorted(chain(*found)), ray.get(counter.get.remote()))


def actor_from_a_checkpoint():
    """Page "Actor fault tolerance": an actor writes its state, and one that is started again reads it."""
    with tempfile.TemporaryDirectory() as folder:

        @ray.remote(max_restarts=1, max_task_retries=-1)
        class Saved:
            def __init__(self, path):
                self.path, self.count = path, 0
                if os.path.exists(path):
                    with open(path) as file:
                        self.count = int(file.read())

            def add(self, crashes=False):
                if crashes and self.count == 2:
                    self.save(3)
                    os._exit(1)
                self.save(self.count + 1)
                return self.count

            def save(self, count):
                self.count = count
                with open(self.path, "w") as file:
                    file.write(str(count))

        actor = Saved.remote(os.path.join(folder, "state"))
        print([ray.get(actor.add.remote()) for _ in range(2)])
        print(ray.get(actor.add.remote(crashes=True)), ray.get(actor.add.remote()))


def actor_by_name_or_a_new_one():
    """Page "Named actors": `get_if_exists` makes an actor once, and finds it afterwards."""

    @ray.remote
    class Greeter:
        def __init__(self, word):
            self.word = word

        def say(self):
            return self.word

    first = Greeter.options(name="greeter_of_pages", get_if_exists=True).remote("old")
    print(ray.get(first.say.remote()))
    second = Greeter.options(name="greeter_of_pages", get_if_exists=True).remote("new")
    print(ray.get(second.say.remote()), first == second)
    ray.kill(first)


def names_in_namespaces():
    """Page "Using namespaces": the same name in two namespaces names two actors."""

    @ray.remote(num_cpus=0)
    class Holder:
        def __init__(self, value):
            self.value = value

        def get(self):
            return self.value

    made = [Holder.options(name="holder_of_pages", namespace=space).remote(space) for space in ("one", "two")]
    print([ray.get(ray.get_actor("holder_of_pages", namespace=space).get.remote()) for space in ("one", "two")])
    print(raised(lambda: ray.get_actor("holder_of_pages"), "ValueError"))
    del made


def references_in_values():
    """Page "Objects": a reference inside of a value is not read; at the top level it is."""

    @ray.remote
    def kinds(value, inside):
        return type(value).__name__, type(inside[0]).__name__, ray.get(inside[0])

    reference = ray.put([1, 2])
    print(ray.get(kinds.remote(reference, [reference])))


def references_in_closures():
    """Page "Objects": a function may hold a reference, and reads it."""
    reference = ray.put(7)

    @ray.remote
    def read():
        return ray.get(reference)

    print(ray.get(read.remote()))


def objects_by_several_paths():
    """Page "Objects": one reference in several arguments, and in the attribute of an object."""

    class Box:
        def __init__(self, content):
            self.content = content

    @ray.remote
    def sums(first, second, box):
        return first + second + ray.get(box.content)

    reference = ray.put(2)
    print(ray.get(sums.remote(reference, reference, Box(reference))))


def arrays_cannot_be_written():
    """Page "Serialization": arrays from the store are read-only; a copy is not."""

    @ray.remote
    def change(array, copies):
        array = array.copy() if copies else array
        array[0] = 1
        return int(array[0])

    reference = ray.put(np.zeros(100_000))
    print(
        ray.get(change.remote(reference, True)), raised(lambda: ray.get(change.remote(reference, False)), "ValueError")
    )


def serializer_of_a_class():
    """Page "Serialization": a class with a lock says how it is pickled."""
    import threading

    class Guarded:
        def __init__(self, value):
            self.value, self.lock = value, threading.Lock()

        def __reduce__(self):
            return Guarded, (self.value,)

    @ray.remote
    def read(guarded):
        with guarded.lock:
            return guarded.value

    print(ray.get(read.remote(Guarded(5))))


def error_of_a_task_is_of_its_class():
    """Page "Task exceptions": `get` raises an error of the user's class, with what it knows."""

    class OwnError(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    @ray.remote
    def fails():
        raise OwnError(7)

    try:
        ray.get(fails.remote())
    except OwnError as error:
        print(error.code, isinstance(error, ray.exceptions.RayTaskError), "code 7" in str(error))


def errors_are_retried_by_class():
    """Page "Task fault tolerance": errors of a class in a list are tried again."""
    with tally() as counted:
        add = counted.add

        @ray.remote(max_retries=3, retry_exceptions=[OSError])
        def flaky(kind):
            number = add()
            if number % 3:
                raise (OSError if kind == "disk" else KeyError)("on purpose")
            return number

        print(ray.get(flaky.remote("disk")), raised(lambda: ray.get(flaky.remote("key")), "KeyError"), counted.count)


def pending_tasks_are_limited():
    """Page "Pattern: using ray.wait to limit the number of pending tasks": never more than three are under way."""

    @ray.remote
    def work(number):
        time.sleep(0.01)
        return number

    pending, most, done = [], 0, []
    for number in range(10):
        if len(pending) >= 3:
            ready, pending = ray.wait(pending, num_returns=1)
            done += ray.get(ready)
        pending.append(work.remote(number))
        most = max(most, len(pending))
    done += ray.get(pending)
    print(most, sorted(done) == list(range(10)))


def running_tasks_are_limited():
    """Page "Pattern: using resources to limit the number of concurrently running tasks"."""

    @ray.remote(num_cpus=0)
    class Watch:
        def __init__(self):
            self.now = self.most = 0

        def enter(self):
            self.now += 1
            self.most = max(self.most, self.now)

        def leave(self):
            self.now -= 1
            return self.most

    @ray.remote(num_cpus=0, resources={"special": 1})
    def work(watch):
        ray.get(watch.enter.remote())
        time.sleep(0.05)
        return ray.get(watch.leave.remote())

    watch = Watch.remote()
    print(max(ray.get([work.remote(watch) for _ in range(6)])) <= 2)


def pipeline_of_a_worker():
    """Page "Pattern: using pipelining to increase throughput": the next item is asked for beforehand."""

    @ray.remote(num_cpus=0)
    class Work:
        def __init__(self):
            self.items = list(range(5))

        def next(self):
            return self.items.pop(0) if self.items else None

    @ray.remote
    class Worker:
        def run(self, work):
            found, coming = [], work.next.remote()
            while (item := ray.get(coming)) is not None:
                coming = work.next.remote()
                found.append(item * 2)
            return found

    print(ray.get(Worker.remote().run.remote(Work.remote())))


def generator_instead_of_a_list():
    """Page "Pattern: using generators to reduce heap memory usage": items are values of their own."""

    @ray.remote(num_returns=3)
    def parts():
        for number in range(3):
            yield np.full(1000, number)

    references = parts.remote()
    print([int(ray.get(one).sum()) for one in references])


def stream_of_results():
    """Page "Ray generators": a stream is read while it is made, and in the order in which it is."""

    @ray.remote
    def numbers(count):
        for number in range(count):
            yield number * number

    print([ray.get(one) for one in numbers.remote(5)])

    @ray.remote
    def total(values):
        return sum(values)

    print(ray.get(total.remote([ray.get(one) for one in numbers.remote(4)])))


def stream_beside_other_results():
    """Page "Ray generators": `wait` takes streams and references together."""

    @ray.remote
    def stream():
        yield 1

    @ray.remote
    def late():
        time.sleep(30)

    slow, fast = late.remote(), stream.remote()
    ready, rest = ray.wait([slow, fast], num_returns=1)
    print(ready == [fast], rest == [slow])
    ray.cancel(slow, force=True)


def pool_of_actors():
    """Page "Utility classes": a pool gives work to the actor that is free."""

    @ray.remote(num_cpus=0)
    class Worker:
        def double(self, value):
            return value * 2

    pool = ActorPool([Worker.remote() for _ in range(2)])
    print(list(pool.map(lambda worker, value: worker.double.remote(value), [1, 2, 3, 4])))
    print(sorted(pool.map_unordered(lambda worker, value: worker.double.remote(value), range(4))))


def queue_between_tasks():
    """Page "Utility classes": several tasks take from one queue until it is empty."""
    queue = Queue(maxsize=20)

    @ray.remote
    def consume(source):
        found = []
        while True:
            try:
                found.append(source.get(block=True, timeout=0.5))
            except Empty:
                return found

    for number in range(10):
        queue.put(number)
    print(sorted(chain(*ray.get([consume.remote(queue) for _ in range(2)]))), queue.empty(), queue.size())
    queue.shutdown()


def coroutines_wait_for_results():
    """Page "AsyncIO and concurrency for actors": a coroutine of the driver waits for references."""

    @ray.remote
    def add(a, b):
        return a + b

    async def main():
        first = await add.remote(1, 2)
        return first, await asyncio.gather(*(add.remote(number, 1) for number in range(3)))

    print(asyncio.run(main()))


def threads_of_an_actor():
    """Page "AsyncIO and concurrency for actors": calls of an actor with threads overlap."""
    import threading

    @ray.remote(max_concurrency=2)
    class Both:
        def __init__(self):
            self.barrier = threading.Barrier(2)

        def meet(self):
            self.barrier.wait(30)
            return "met"

    both = Both.remote()
    print(ray.get([both.meet.remote() for _ in range(2)]))


def groups_of_concurrency():
    """Page "Limiting concurrency per method with concurrency groups"."""

    @ray.remote(concurrency_groups={"io": 2, "compute": 4})
    class Grouped:
        @ray.method(concurrency_group="io")
        async def read(self):
            return "io"

        @ray.method(concurrency_group="compute")
        async def work(self):
            return "compute"

        async def other(self):
            return "default"

    actor = Grouped.remote()
    print(ray.get([actor.read.remote(), actor.work.remote(), actor.other.remote()]))
    print(ray.get(actor.work.options(concurrency_group="io").remote()))


def actor_ends_itself():
    """Page "Terminating actors": `exit_actor` ends it after what ran before; later calls are errors."""

    @ray.remote
    class Ends:
        def work(self):
            return 1

        def end(self):
            ray.actor.exit_actor()

    actor = Ends.remote()
    done = actor.work.remote()
    actor.end.remote()
    print(ray.get(done), raised(lambda: ray.get(actor.work.remote()), "RayActorError"))


def actor_is_killed():
    """Page "Terminating actors": `kill` ends it at once, and its calls raise an error of actors."""

    @ray.remote
    class Sleeps:
        def sleep(self):
            time.sleep(60)

    actor = Sleeps.remote()
    call = actor.sleep.remote()
    ray.kill(actor)
    print(raised(lambda: ray.get(call), "RayActorError"))


def results_of_nested_calls():
    """Page "Nested remote functions": a task returns references, which the driver reads."""

    @ray.remote
    def inner(value):
        return value + 1

    @ray.remote
    def outer():
        return [inner.remote(number) for number in range(3)]

    print(ray.get(ray.get(outer.remote())))


def results_that_were_stored_by_a_task():
    """Page "Anti-pattern: returning ray.put()": several results are better returned as such."""

    @ray.remote(num_returns=2)
    def two():
        return 1, 2

    @ray.remote
    def stored():
        return ray.put(1), ray.put(2)

    print(ray.get(two.remote()), ray.get(list(ray.get(stored.remote()))))


def references_leave_their_job():
    """Page "Anti-pattern: serialize ray.ObjectRef out of band": it is read while somebody else has it."""
    reference = ray.put({"a": 1})
    data = ray.cloudpickle.dumps(reference)
    print(ray.get(ray.cloudpickle.loads(data)) == {"a": 1})


def processes_of_a_task():
    """Page "Lifetimes of a user-spawn process": a task starts a program, and reads what it prints."""

    @ray.remote
    def run():
        import subprocess

        return subprocess.run(["echo", "out"], capture_output=True, text=True, check=True).stdout

    print(repr(ray.get(run.remote())))


def amounts_can_be_fractions():
    """Page "Fractional resource requirements": halves of a CPU, and whole ones above one."""

    @ray.remote(num_cpus=0.5)
    def half():
        return ray.get_runtime_context().get_assigned_resources()

    print(ray.get(half.remote()))
    print(raised(lambda: half.options(num_gpus=1.5).remote(), "ValueError"))


def task_on_a_certain_node():
    """Page "Scheduling": an affinity names the node by its id."""

    @ray.remote
    def where():
        return ray.get_runtime_context().get_node_id()

    here = ray.get_runtime_context().get_node_id()
    soft = NodeAffinitySchedulingStrategy(node_id=here, soft=False)
    print(ray.get(where.options(scheduling_strategy=soft).remote()) == here)
    print(ray.get(where.options(scheduling_strategy="SPREAD").remote()) in {one["NodeID"] for one in ray.nodes()})


def timeouts_of_get():
    """Page "Objects": `get` with a timeout raises, and the result is there later."""

    @ray.remote
    def slow():
        time.sleep(0.5)
        return 3

    reference = slow.remote()
    print(raised(lambda: ray.get(reference, timeout=0.01), "GetTimeoutError", "TimeoutError"), ray.get(reference))


def graph_of_tasks():
    """Page "Lazy computation graphs": a graph with an input is run several times."""
    from ray.dag.input_node import InputNode

    @ray.remote
    def double(value):
        return value * 2

    @ray.remote
    def add(a, b):
        return a + b

    with InputNode() as given:
        graph = add.bind(double.bind(given), given)
    print([ray.get(graph.execute(number)) for number in (1, 2)])


def graph_of_actors():
    """Page "Lazy computation graphs": an actor in a graph, and attributes of the input."""
    from ray.dag.input_node import InputNode

    @ray.remote
    class Base:
        def __init__(self, base):
            self.base = base

        def add(self, value):
            return self.base + value

    with InputNode() as given:
        graph = Base.bind(10).add.bind(given["value"])
    print(ray.get(graph.execute({"value": 3})))
