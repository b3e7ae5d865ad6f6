"""The lives of actors: how they end, are killed, crash and are started again."""

import os
import time

import ray

from tests.ray_docs.helpers import eventually, raised, tally


def an_actor_ends_with_its_last_handle():
    """When nobody has a handle any more, its process ends."""

    @ray.remote
    class A:
        def pid(self):
            return os.getpid()

    a = A.remote()
    pid = ray.get(a.pid.remote())
    del a
    print(eventually(lambda: not os.path.exists(f"/proc/{pid}")))


def calls_under_way_end_before_the_actor_does():
    """An actor whose last handle is gone runs what was called."""

    @ray.remote
    class A:
        def f(self):
            time.sleep(0.1)
            return "done"

    ref = A.remote().f.remote()
    print(ray.get(ref))


def a_detached_actor_outlives_its_handle():
    """`lifetime="detached"`: it ends by `kill` alone."""

    @ray.remote
    class A:
        def f(self):
            return "alive"

    A.options(name="docs-detached", lifetime="detached").remote()
    time.sleep(0.1)
    a = ray.get_actor("docs-detached")
    print(ray.get(a.f.remote()))
    ray.kill(a)
    print(raised(lambda: ray.get(a.f.remote()), "RayActorError"))


def a_detached_actor_may_do_without_a_name():
    """Without a name nobody could find it; it is made all the same."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(lifetime="detached").remote()
    print(ray.get(a.f.remote()))
    ray.kill(a)


def lifetimes_that_do_not_exist():
    """There are two, and None."""

    @ray.remote
    class A:
        pass

    print(raised(lambda: A.options(lifetime="forever").remote(), "ValueError"))


def kill_ends_an_actor():
    """Later calls raise ActorDiedError, which is a RayActorError."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.remote()
    ray.get(a.f.remote())
    ray.kill(a)
    print(raised(lambda: ray.get(a.f.remote()), "ActorDiedError", "RayActorError", "RayError"))


def kill_wants_a_handle():
    """References and names are refused."""
    print(raised(lambda: ray.kill(ray.put(1)), "ValueError"), raised(lambda: ray.kill("a"), "ValueError"))


def kill_frees_the_name():
    """After its end the name can be taken again."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(name="docs-again").remote()
    ray.get(a.f.remote())
    ray.kill(a)

    def made():
        try:
            return A.options(name="docs-again").remote()
        except ValueError:
            return None

    print(eventually(made))


def kill_and_restart():
    """With `no_restart=False` it is started again where `max_restarts` allows."""

    @ray.remote(max_restarts=1, max_task_retries=-1)
    class A:
        def __init__(self):
            self.n = 0

        def add(self):
            self.n += 1
            return self.n

    a = A.remote()
    ray.get([a.add.remote(), a.add.remote()])
    ray.kill(a, no_restart=False)
    time.sleep(1)  # in Ray it takes a moment, and calls may be run before
    print(ray.get(a.add.remote()))


def an_actor_restarts_after_a_crash():
    """`max_restarts` runs the constructor again; its state is new."""

    @ray.remote(max_restarts=2, max_task_retries=2)
    class A:
        def __init__(self, start):
            self.n = start

        def add(self):
            self.n += 1
            return self.n

        def crash(self, path):
            if os.path.exists(path):
                return "after"
            open(path, "w").close()
            os._exit(1)

    a = A.remote(5)
    with tally() as mark:
        print(ray.get(a.add.remote()), ray.get(a.crash.remote(mark.path)), ray.get(a.add.remote()))


def without_retries_the_call_is_lost():
    """The call during which the actor died raises; the next one finds it started again."""

    @ray.remote(max_restarts=1)
    class A:
        def crash(self):
            os._exit(1)

        def f(self):
            return ray.get_runtime_context().was_current_actor_reconstructed

    a = A.remote()
    print(raised(lambda: ray.get(a.crash.remote()), "RayActorError"))

    def answer():
        try:
            return [ray.get(a.f.remote())]
        except ray.exceptions.RayActorError:
            return None

    print(eventually(answer), answer())


def no_more_restarts():
    """When they are used up, calls raise ActorDiedError."""

    @ray.remote(max_restarts=0)
    class A:
        def crash(self):
            os._exit(1)

        def f(self):
            return 1

    a = A.remote()
    print(
        raised(lambda: ray.get(a.crash.remote()), "ActorDiedError"),
        raised(lambda: ray.get(a.f.remote()), "ActorDiedError"),
    )


def retry_of_errors_of_methods():
    """`retry_exceptions` with `max_task_retries` runs a method again in the same actor."""

    @ray.remote(max_task_retries=3)
    class A:
        def __init__(self):
            self.n = 0

        @ray.method(retry_exceptions=True)
        def flaky(self):
            self.n += 1
            if self.n < 3:
                raise ValueError
            return self.n

        @ray.method(retry_exceptions=[KeyError])
        def other(self):
            self.n += 1
            raise ValueError

        def count(self):
            return self.n

    a = A.remote()
    print(ray.get(a.flaky.remote()), raised(lambda: ray.get(a.other.remote()), "ValueError"), ray.get(a.count.remote()))


def options_of_retries_of_one_call():
    """`.options(max_task_retries=, retry_exceptions=)` of a method."""

    @ray.remote
    class A:
        def __init__(self):
            self.n = 0

        def flaky(self):
            self.n += 1
            if self.n < 2:
                raise ValueError
            return self.n

    a = A.remote()
    print(ray.get(a.flaky.options(max_task_retries=1, retry_exceptions=True).remote()))


def exit_actor_ends_it():
    """`exit_actor()` in a method ends the actor; it is not started again."""

    @ray.remote(max_restarts=3)
    class A:
        def leave(self):
            ray.actor.exit_actor()

        def f(self):
            return 1

    a = A.remote()
    print(
        raised(lambda: ray.get(a.leave.remote()), "RayActorError"),
        raised(lambda: ray.get(a.f.remote()), "RayActorError"),
    )


def exit_actor_outside_of_an_actor():
    """It is for actors only."""
    print(raised(ray.actor.exit_actor, "TypeError"))


def exit_actor_runs_what_was_registered():
    """Functions registered with `atexit` are run."""

    @ray.remote
    class A:
        def __init__(self, path):
            import atexit

            atexit.register(lambda: open(path, "ab").write(b"x"))

        def leave(self):
            ray.actor.exit_actor()

    with tally() as counts:
        a = A.remote(counts.path)
        raised(lambda: ray.get(a.leave.remote()), "RayActorError")
        print(eventually(lambda: counts.count == 1))


def exit_actor_is_not_swallowed():
    """A method that catches everything does not keep the actor alive."""

    @ray.remote
    class A:
        def leave(self):
            try:
                ray.actor.exit_actor()
            except Exception:
                return "swallowed"

    a = A.remote()
    print(raised(lambda: ray.get(a.leave.remote()), "RayActorError"))


def ray_terminate_ends_after_the_calls_before():
    """`__ray_terminate__` ends an actor when what was called before has run."""

    @ray.remote
    class A:
        def f(self):
            time.sleep(0.1)
            return "ran"

    a = A.remote()
    ref = a.f.remote()
    a.__ray_terminate__.remote()
    print(ray.get(ref), eventually(lambda: raised(lambda: ray.get(a.f.remote()), "RayActorError") == "RayActorError"))


def names_of_classes():
    """Errors have the names that programs know from Ray, and name their actor."""

    @ray.remote
    def fails():
        raise ValueError("on purpose")

    @ray.remote
    class Actor:
        def dies(self):
            os._exit(1)

    @ray.remote
    class Unmade:
        def __init__(self):
            raise ValueError("on purpose")

        def method(self):
            return 1

    def error_of(ref):
        try:
            ray.get(ref)
        except Exception as error:
            return error

    error = error_of(fails.remote())
    print(type(error).__name__, type(error).__mro__[1].__name__, repr(error).startswith("RayTaskError("))
    for actor, name in ((Actor.remote(), "dies"), (Unmade.remote(), "method")):
        error = error_of(getattr(actor, name).remote())
        print(type(error).__name__, type(error).__mro__[1].__name__, error.actor_id == actor._actor_id.hex())
        print(error.preempted)
    print([getattr(ray.exceptions, name).__name__ for name in ("RayError", "RaySystemError")])
