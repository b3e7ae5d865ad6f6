"""Programs of the documentation of Ray Core that run in one job."""

import asyncio
import os
import signal
import sys
import time

import numpy as np
import ray
import ray.dag
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tests.ray_docs.helpers import eventually, raised, tally


def an_actor_that_its_controller_starts_again():
    """The controller keeps the state of the last good call, and gives it to the next actor."""

    @ray.remote(num_cpus=1)
    class Worker:
        def __init__(self):
            self.done = 0

        def work(self, crash):
            if crash:
                sys.exit(1)
            self.done += 1

        def state(self):
            return self.done

        def restore(self, done):
            self.done = done

    worker, saved, seen = Worker.remote(), 0, []
    for turn in range(4):
        try:
            ray.get(worker.work.remote(turn % 2 == 0))
            saved = ray.get(worker.state.remote())
        except ray.exceptions.RayActorError as error:
            seen.append(type(error).__name__)
            worker = Worker.remote()
            ray.get(worker.restore.remote(saved))
    print(saved, seen)


def an_actor_that_leaves_and_comes_back():
    """With restarts and retries without a limit, `sys.exit` in a method is one of them."""

    @ray.remote(max_restarts=-1, max_task_retries=-1)
    class Immortal:
        def leave_once(self, add):
            if add() == 1:
                sys.exit(1)
            return "here"

    with tally() as calls:
        print(raised(lambda: ray.get(Immortal.remote().leave_once.remote(calls.add), timeout=30), "RayActorError"))
        print(calls.count)


def the_creator_of_actors_dies():
    """A detached actor lives on."""

    @ray.remote(max_restarts=-1, num_cpus=0)
    class Actor:
        def ping(self):
            return "hello"

    @ray.remote(num_cpus=0)
    class Parent:
        def make(self):
            self.detached = Actor.options(name="actor", lifetime="detached").remote()
            return self.detached, os.getpid()

    parent = Parent.remote()
    detached, pid = ray.get(parent.make.remote())
    os.kill(pid, signal.SIGKILL)
    print(ray.get(detached.ping.remote()), ray.get(ray.get_actor("actor").ping.remote()))


def references_of_tasks_that_have_ended():
    """A task returns the reference of what it has stored, or of a task that it has called."""

    @ray.remote
    def stored():
        return ray.put(1)

    @ray.remote
    def called():
        return stored.remote()

    print(ray.get(ray.get(stored.remote())), ray.get(ray.get(ray.get(called.remote()))))


def references_in_files():
    """A reference that was pickled with Ray's cloudpickle keeps its value."""
    from ray import cloudpickle

    ref = ray.put({"hello": "world"})
    text = cloudpickle.dumps(ref)
    del ref
    again = cloudpickle.loads(text)
    print(ray.get(again))


def what_a_failed_task_says():
    """The error has the traceback of the task, and that of the task whose result it needed."""

    @ray.remote
    def fails():
        raise Exception("the real error")

    @ray.remote
    def needs(value):
        return value

    for ref in (fails.remote(), needs.remote(fails.remote())):
        try:
            ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            text = str(error)
            print("the real error" in text, "raise Exception" in text, "fails()" in text, "pid=" in text)


def errors_that_cannot_be_derived_from():
    """Then the error is Ray's alone, with the cause."""

    class Final(Exception):
        def __init_subclass__(cls, /, *args, **kwargs):
            raise TypeError("no")

    @ray.remote
    def fails():
        raise Final("final")

    try:
        ray.get(fails.remote())
    except ray.exceptions.RayTaskError as error:
        print(type(error).__name__, isinstance(error.cause, Exception), type(error.cause).__name__, error.cause)


def streams_read_by_coroutines():
    """Two of them at once, and streams of all kinds of actors."""

    @ray.remote
    def numbers():
        for number in range(3):
            time.sleep(0.05)
            yield number

    @ray.remote(num_cpus=0)
    class Plain:
        def numbers(self):
            for number in range(3):  # Ray cannot `yield from` what is no generator
                yield number

    @ray.remote(num_cpus=0)
    class Coroutines:
        async def numbers(self):
            for number in range(3):
                yield number

    async def read():
        return [await ref async for ref in numbers.remote()]

    async def both():
        return await asyncio.gather(read(), read())

    print(asyncio.run(both()))
    for actor in (Plain.remote(), Coroutines.remote(), Plain.options(max_concurrency=5).remote()):
        print([ray.get(ref) for ref in actor.numbers.remote()])


def streams_that_wait_tells_about():
    """A stream is ready when its next item is."""

    @ray.remote
    def numbers():
        for number in range(2):
            time.sleep(1)
            yield number

    stream = numbers.remote()
    print([len(part) for part in ray.wait([stream], timeout=0)], [len(part) for part in ray.wait([stream])])
    print(ray.get(next(stream)), [len(part) for part in ray.wait([stream], timeout=0)])


def nodes_of_the_context():
    """The old names of the context are ids that an affinity takes."""

    @ray.remote
    def node():
        return ray.get_runtime_context().get_node_id()

    here = ray.get_runtime_context().get_node_id()
    for soft in (False, True):
        strategy = NodeAffinitySchedulingStrategy(node_id=here, soft=soft)
        print(ray.get(node.options(scheduling_strategy=strategy).remote()) == here)
    print(ray.get(node.options(scheduling_strategy="SPREAD").remote()) == here)
    print(ray.get(node.options(scheduling_strategy="DEFAULT").remote()) == here)


def arguments_are_read_only():
    """A function that writes into its argument fails, with what numpy says."""

    @ray.remote
    def writes(array):
        array[0] = 1

    for size in (10, 1_000_000):
        try:
            ray.get(writes.remote(np.zeros(size)))
        except ValueError as error:
            print("assignment destination is read-only" in str(error))


def compiled_graphs_step_by_step():
    """A graph of one actor, of two, of several outputs; an actor that dies ends it, and the others live on."""

    @ray.remote(num_cpus=0)
    class Echo:
        def echo(self, value):
            return value

    first, second = Echo.remote(), Echo.remote()
    with ray.dag.InputNode() as given:
        graph = second.echo.bind(first.echo.bind(given))
    compiled = graph.experimental_compile()
    print([ray.get(compiled.execute(number)) for number in range(3)])
    compiled.teardown()
    actors = [Echo.remote() for _ in range(3)]
    with ray.dag.InputNode() as given:
        graph = ray.dag.MultiOutputNode([actor.echo.bind(given) for actor in actors])
    compiled = graph.experimental_compile()
    print(ray.get(compiled.execute("hello")))
    ray.kill(actors[0])
    print(raised(lambda: ray.get(compiled.execute(1)), "ActorDiedError"))
    alive = [actor for actor in actors if raised(lambda: ray.get(actor.echo.remote(1)), "RayActorError") == "nothing"]
    print(alive == actors[1:])


def modules_of_graphs():
    """Nodes are in modules of their own too."""
    from ray.dag.input_node import InputNode
    from ray.dag.output_node import MultiOutputNode

    @ray.remote
    def add_one(value):
        return value + 1

    with InputNode() as given:
        graph = MultiOutputNode([add_one.bind(given["x"]), add_one.bind(given["y"])])
    print(ray.get(graph.execute({"x": 1, "y": 2})))


def bars_of_progress():
    """Tasks show how far they are, and go over the same items."""
    from ray.experimental.tqdm_ray import tqdm

    @ray.remote
    def counted():
        return sum(tqdm(range(5), desc="counted"))

    print(ray.get(counted.remote()))


def generators_with_a_number_of_values():
    """What was yielded before the error has its value, and the rest the error."""

    @ray.remote
    def two():
        yield 0
        yield 1
        raise ValueError("error")

    refs = two.options(num_returns=4).remote()
    print(ray.get(refs[:2]), [raised(lambda ref=ref: ray.get(ref), "ValueError") for ref in refs[2:]])
    dynamic = list(ray.get(two.options(num_returns="dynamic").remote()))
    print(len(dynamic), ray.get(dynamic[:2]), raised(lambda: ray.get(dynamic[2]), "ValueError"))
    print(ray.get(two.options(num_returns=2).remote()))


def an_actor_that_checks_others():
    """Coroutines of one actor ping others while they work, and one that died is replaced."""

    @ray.remote(num_cpus=0)
    class Replica:
        def ping(self):
            return "pong"

    @ray.remote(num_cpus=0)
    class Control:
        async def __init__(self):
            self.replicas = [Replica.remote() for _ in range(2)]
            self.replaced = 0
            self.pings = asyncio.get_running_loop().create_task(self._ping())

        async def _ping(self):
            while True:
                for place, replica in enumerate(self.replicas):
                    try:
                        await replica.ping.remote()
                    except ray.exceptions.RayActorError:
                        self.replicas[place] = Replica.remote()
                        self.replaced += 1
                await asyncio.sleep(0.05)

        async def kill_one(self):
            ray.kill(self.replicas[0])

        async def count(self):
            return self.replaced

    control = Control.remote()
    print(raised(lambda: ray.get(control.kill_one.remote()), "RayActorError", "TypeError"))
    print(eventually(lambda: raised(lambda: ray.get(control.count.remote()) == 1 or 1 / 0) == "nothing"))
