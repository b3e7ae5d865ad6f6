"""Actors: making, calling, naming, ending, failing."""

import os
import time

import ray

from tests.ray_docs.helpers import eventually, raised, tally


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


def a_class_cannot_be_called():
    """Instances are made by `.remote`."""

    @ray.remote
    class A:
        pass

    print(raised(A, "TypeError"))


def a_method_cannot_be_called():
    """Methods are called by `.remote`."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.remote()
    print(raised(a.f, "TypeError"))


def attributes_are_not_to_be_read():
    """A handle has methods only."""

    @ray.remote
    class A:
        def __init__(self):
            self.x = 1

    a = A.remote()
    print(raised(lambda: a.x, "AttributeError"), raised(lambda: a.nothing, "AttributeError"))


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


def a_named_actor():
    """`get_actor` finds it by its name."""

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().get_actor_name()

    a = A.options(name="docs-named").remote()
    print(ray.get(ray.get_actor("docs-named").f.remote()), ray.get_actor("docs-named") == a)


def a_name_is_taken_once():
    """A second actor of the same name is refused."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(name="docs-taken").remote()
    ray.get(a.f.remote())
    print(raised(lambda: A.options(name="docs-taken").remote(), "ValueError"))
    del a


def a_name_that_nobody_has():
    """`get_actor` raises ValueError."""
    print(raised(lambda: ray.get_actor("docs-nobody"), "ValueError"))


def get_or_create():
    """`get_if_exists` gives the one that is there, else makes it."""

    @ray.remote
    class A:
        def __init__(self, x):
            self.x = x

        def get(self):
            return self.x

    a = A.options(name="docs-shared", get_if_exists=True).remote(1)
    b = A.options(name="docs-shared", get_if_exists=True).remote(2)
    print(ray.get([a.get.remote(), b.get.remote()]), a == b)


def names_live_in_namespaces():
    """The same name can be taken in another namespace."""

    @ray.remote
    class A:
        def f(self):
            return "here"

    a = A.options(name="docs-there", namespace="elsewhere").remote()
    print(ray.get(a.f.remote()), raised(lambda: ray.get_actor("docs-there"), "ValueError"))
    print(ray.get(ray.get_actor("docs-there", namespace="elsewhere").f.remote()))
    print({"name": "docs-there", "namespace": "elsewhere"} in ray.util.list_named_actors(all_namespaces=True))


def names_are_listed():
    """`list_named_actors` has the names of the namespace."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(name="docs-listed").remote()
    ray.get(a.f.remote())
    print("docs-listed" in ray.util.list_named_actors())


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


def static_and_class_methods():
    """They can be called by the handle like others."""

    @ray.remote
    class A:
        base = 10

        @staticmethod
        def double(x):
            return 2 * x

        @classmethod
        def plus(cls, x):
            return cls.base + x

    a = A.remote()
    print(ray.get([a.double.remote(2), a.plus.remote(1)]))


def attributes_of_the_class():
    """Constants and static methods can be read at the actor class itself."""

    @ray.remote
    class A:
        LIMIT = 10

        @staticmethod
        def double(x):
            return 2 * x

    print(A.LIMIT, A.double(4), raised(lambda: A.nothing, "AttributeError"))


def inherited_methods():
    """An actor of a derived class has the methods of its base, with `super()`."""

    class Base:
        def f(self):
            return "base"

    @ray.remote
    class Derived(Base):
        def f(self):
            return super().f() + " derived"

        def g(self):
            return "g"

    a = Derived.remote()
    print(ray.get([a.f.remote(), a.g.remote()]))


def remote_by_function_call():
    """`ray.remote(Class)` and `ray.remote(num_cpus=1)(Class)` are the decorator."""

    class A:
        def f(self):
            return 1

    print(ray.get(ray.remote(A).remote().f.remote()), ray.get(ray.remote(num_cpus=1)(A).remote().f.remote()))


def classes_of_actors_cannot_be_derived_from():
    """Deriving from what the decorator made is refused."""

    @ray.remote
    class A:
        pass

    def derive():
        class B(A):
            pass

    print(raised(derive, "TypeError"))


def bound_methods_are_arguments():
    """A method of a handle can be given to a task, which calls it."""

    @ray.remote
    class A:
        def f(self, x):
            return x + 1

    @ray.remote
    def call(method):
        return ray.get(method.remote(1))

    a = A.remote()
    ray.get(a.f.remote(0))
    print(ray.get(call.remote(a.f)))


def a_method_named_like_an_attribute():
    """An instance attribute that hides a method is the user's affair: the attribute is called."""

    @ray.remote
    class A:
        def __init__(self):
            self.value = 5

        def get(self):
            return self.value

        def value(self):
            return "method"

    a = A.remote()
    print(ray.get(a.get.remote()))
    print(raised(lambda: ray.get(a.value.remote()), "TypeError", "RayTaskError"))


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


def dunder_del_and_shutdown():
    """`__ray_shutdown__` is called when an actor ends because its last handle is gone."""

    @ray.remote
    class A:
        def __init__(self, path):
            self.path = path

        def f(self):
            return 1

        def __ray_shutdown__(self):
            open(self.path, "ab").write(b"x")

    with tally() as counts:
        a = A.remote(counts.path)
        ray.get(a.f.remote())
        del a
        print(eventually(lambda: counts.count == 1, timeout=10))


def cancel_of_a_waiting_method():
    """A call of a method that has not started can be cancelled; the actor lives on."""

    @ray.remote
    class A:
        def f(self, seconds):
            time.sleep(seconds)
            return seconds

    a = A.remote()
    ray.get(a.f.remote(0))
    first, second = a.f.remote(0.5), a.f.remote(0)
    time.sleep(0.1)
    ray.cancel(second)
    print(raised(lambda: ray.get(second), "TaskCancelledError"), ray.get(first), ray.get(a.f.remote(0)))


def force_is_refused_for_methods():
    """`cancel(force=True)` would end the actor."""

    @ray.remote
    class A:
        def f(self):
            time.sleep(2)

    a = A.remote()
    ref = a.f.remote()
    print(raised(lambda: ray.cancel(ref, force=True), "ValueError"))


def repr_names_the_class():
    """`repr` of a handle tells the class and the id."""

    @ray.remote
    class Special:
        pass

    a = Special.remote()
    print("Special" in repr(a), a._actor_id.hex() in repr(a))


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


def names_of_methods_in_dir():
    """`dir(handle)` has the methods."""

    @ray.remote
    class A:
        def first(self):
            pass

        def second(self):
            pass

    print([name for name in dir(A.remote()) if name in ("first", "second")])


def name_of_one_call():
    """`.options(name=)` of a method names the call."""

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().get_task_name()

    a = A.remote()
    print(ray.get(a.f.options(name="special").remote()), ray.get(a.f.remote()))


def options_that_actors_do_not_have():
    """Unknown ones are refused."""

    @ray.remote
    class A:
        pass

    print(
        raised(lambda: A.options(num_returns=2).remote(), "ValueError"),
        raised(lambda: A.options(nothing=2).remote(), "ValueError"),
    )


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
