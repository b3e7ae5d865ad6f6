"""Actors: making, calling, naming, ending, failing."""

import os
import time

import ray

from tests.ray_docs.helpers import eventually, raised


def an_actor_keeps_its_state():
    """Methods see what earlier ones left."""

    @ray.remote
    class Counter:
        def __init__(self, start=0):
            self.value = start

        def add(self, n=1):
            self.value += n
            return self.value

    counter = Counter.remote(start=10)
    print(ray.get([counter.add.remote(), counter.add.remote(5), counter.add.remote(n=2)]))


def actors_are_apart():
    """Each instance has a process of its own."""

    @ray.remote
    class A:
        def pid(self):
            return os.getpid()

    pids = ray.get([A.remote().pid.remote() for _ in range(2)] + [A.remote().pid.remote()])
    print(len(set(pids)), os.getpid() in pids)


def calls_of_one_caller_are_run_in_order():
    """An actor runs the calls of one process in the order in which they were made."""

    @ray.remote
    class A:
        def __init__(self):
            self.seen = []

        def add(self, n):
            self.seen.append(n)

        def all(self):
            return self.seen

    a = A.remote()
    for n in range(20):
        a.add.remote(n)
    print(ray.get(a.all.remote()) == list(range(20)))


def a_call_waits_for_its_argument_and_later_ones_for_it():
    """In an ordinary actor a call whose argument comes late holds up those behind it."""

    @ray.remote
    def late():
        time.sleep(0.2)
        return "late"

    @ray.remote
    class A:
        def __init__(self):
            self.seen = []

        def add(self, n):
            self.seen.append(n)
            return list(self.seen)

    a = A.remote()
    a.add.remote(late.remote())
    print(ray.get(a.add.remote("soon")))


def handles_are_passed_on():
    """Tasks and actors call methods by a handle that they were given."""

    @ray.remote
    class Counter:
        def __init__(self):
            self.value = 0

        def add(self):
            self.value += 1
            return self.value

    @ray.remote
    def work(counter):
        return ray.get(counter.add.remote())

    counter = Counter.remote()
    print(sorted(ray.get([work.remote(counter) for _ in range(3)])))


def handles_are_equal_and_hashable():
    """Handles to one actor are equal."""

    @ray.remote
    class A:
        def me(self):
            return ray.get_runtime_context().current_actor

        def same(self, other):
            return other == ray.get_runtime_context().current_actor

    a, b = A.remote(), A.remote()
    print(ray.get(a.me.remote()) == a, a == b, len({a, b, a}), ray.get(a.same.remote(a)))


def constructor_with_wrong_arguments():
    """They are checked where the actor is made."""

    @ray.remote
    class A:
        def __init__(self, x):
            pass

    print(raised(lambda: A.remote(), "TypeError"), raised(lambda: A.remote(1, 2), "TypeError"))


def methods_with_wrong_arguments():
    """They are checked where the call is made."""

    @ray.remote
    class A:
        def f(self, x, *, y=1):
            return x + y

    a = A.remote()
    for call in (lambda: a.f.remote(), lambda: a.f.remote(1, 2), lambda: a.f.remote(1, z=2)):
        print(raised(call, "TypeError"))
    print(ray.get(a.f.remote(1, y=3)))


def an_error_in_a_method():
    """It is the error of that call; the actor lives on."""

    @ray.remote
    class A:
        def bad(self):
            raise ValueError("bad")

        def good(self):
            return "good"

    a = A.remote()
    print(
        raised(lambda: ray.get(a.bad.remote()), "RayTaskError", "ValueError", "RayActorError"), ray.get(a.good.remote())
    )


def an_error_in_the_constructor():
    """Every call of the actor raises an error of actors that tells of it."""

    @ray.remote
    class A:
        def __init__(self):
            raise ValueError("no start")

        def f(self):
            return 1

    a = A.remote()
    try:
        ray.get(a.f.remote())
    except ray.exceptions.ActorDiedError as error:
        print("ActorDiedError", "no start" in str(error))


def several_results_of_a_method():
    """By the decorator `method`, and by `.options`."""

    @ray.remote
    class A:
        @ray.method(num_returns=2)
        def two(self):
            return 1, 2

        def one(self):
            return 3, 4

    a = A.remote()
    print(ray.get(a.two.remote()), ray.get(a.one.options(num_returns=2).remote()), ray.get(a.one.remote()))


def ray_ready_and_ray_call():
    """Every actor answers to `__ray_ready__` and `__ray_call__`."""

    @ray.remote
    class A:
        def __init__(self):
            self.x = 4

    a = A.remote()
    print(ray.get(a.__ray_ready__.remote()), ray.get(a.__ray_call__.remote(lambda self, n: self.x + n, 3)))


def an_actor_calls_itself_by_its_handle():
    """`current_actor` is a handle that an actor can give to others."""

    @ray.remote
    class A:
        def me(self):
            return ray.get_runtime_context().current_actor

        def f(self):
            return "called"

    a = A.remote()
    print(ray.get(ray.get(a.me.remote()).f.remote()))


def resources_of_actors():
    """By default an actor holds no CPU while it lives; with `num_cpus` it does."""

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().get_assigned_resources()

    a, b = A.remote(), A.options(num_cpus=2, resources={"special": 1}).remote()
    print(ray.get(a.f.remote()), sorted(ray.get(b.f.remote()).items()), ray.available_resources()["CPU"])


def an_actor_with_a_cpu_keeps_it_while_it_waits():
    """In `get` an actor with `num_cpus` keeps what it holds: nobody else runs on it."""

    @ray.remote(num_cpus=4)
    class A:
        def f(self, refs):
            ready, rest = ray.wait(refs, timeout=0.5)
            return len(ready)

    @ray.remote
    def task():
        return 1

    a = A.remote()
    ray.get(a.__ray_ready__.remote())
    print(ray.get(a.f.remote([task.remote()])))


def pending_calls_can_be_limited():
    """With `max_pending_calls` a caller that is too fast gets an error."""

    @ray.remote(max_pending_calls=2)
    class A:
        def f(self):
            time.sleep(0.3)

    a = A.remote()
    ray.get(a.__ray_ready__.remote())
    refs = []
    print(raised(lambda: [refs.append(a.f.remote()) for _ in range(20)], "PendingCallsLimitExceeded"))


def actors_in_actors():
    """An actor makes actors of its own."""

    @ray.remote
    class Inner:
        def f(self):
            return "inner"

    @ray.remote
    class Outer:
        def __init__(self):
            self.inner = Inner.remote()

        def f(self):
            return ray.get(self.inner.f.remote())

    print(ray.get(Outer.remote().f.remote()))


def children_die_with_their_owner():
    """Actors that an actor made die when it is killed, unless they are detached."""

    @ray.remote
    class Inner:
        def pid(self):
            return os.getpid()

    @ray.remote
    class Outer:
        def __init__(self):
            self.inner = Inner.remote()

        def pid(self):
            return ray.get(self.inner.pid.remote())

    outer = Outer.remote()
    pid = ray.get(outer.pid.remote())
    ray.kill(outer)
    print(eventually(lambda: not os.path.exists(f"/proc/{pid}"), timeout=10))


def ids_of_actors():
    """An actor knows its id; it is the one of the handle."""

    @ray.remote
    class A:
        def id(self):
            return ray.get_runtime_context().get_actor_id()

    a = A.remote()
    print(ray.get(a.id.remote()) == a._actor_id.hex(), ray.get_runtime_context().get_actor_id())


def a_dead_actor_tells_its_id():
    """The error of a dead actor has its id."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.remote()
    ray.get(a.f.remote())
    ray.kill(a)
    try:
        ray.get(a.f.remote())
    except ray.exceptions.ActorDiedError as error:
        print(error.actor_id == a._actor_id.hex())


def restarts_out_of_bounds():
    """-1 means without end."""

    @ray.remote
    class A:
        def f(self):
            return 1

    print(
        ray.get(A.options(max_restarts=-1).remote().f.remote()),
        raised(lambda: A.options(max_restarts=-2).remote(), "ValueError"),
    )
