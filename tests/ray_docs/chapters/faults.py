"""Fault tolerance: of tasks, of actors, of objects, and whose they are."""

import os
import signal
import time

import ray

from tests.ray_docs.helpers import eventually, raised, tally


def a_task_is_run_again_after_a_crash():
    """A task whose process dies is run again, three times by default."""
    with tally() as runs:
        add = runs.add

        @ray.remote
        def f():
            if add() < 3:
                os._exit(1)
            return "done"

        print(ray.get(f.remote()), runs.count)


def max_retries_zero():
    """`max_retries=0`: it is run once."""
    with tally() as runs:
        add = runs.add

        @ray.remote(max_retries=0)
        def f():
            add()
            os._exit(1)

        print(raised(lambda: ray.get(f.remote()), "WorkerCrashedError"), runs.count)


def a_signal_is_a_crash():
    """SIGKILL from anybody counts as any crash."""

    @ray.remote(max_retries=0)
    def f():
        os.kill(os.getpid(), signal.SIGKILL)

    print(raised(lambda: ray.get(f.remote()), "WorkerCrashedError"))


def an_error_is_not_run_again():
    """An exception of the function is a result: it is not run again by itself."""
    with tally() as runs:
        add = runs.add

        @ray.remote(max_retries=5)
        def f():
            add()
            raise ValueError("no")

        print(raised(lambda: ray.get(f.remote()), "ValueError"), runs.count)


def retry_exceptions_true():
    """`retry_exceptions=True`: any exception is a reason."""
    with tally() as runs:
        add = runs.add

        @ray.remote(max_retries=2, retry_exceptions=True)
        def f():
            add()
            raise ValueError("no")

        print(raised(lambda: ray.get(f.remote()), "ValueError"), runs.count)


def retry_exceptions_of_a_list():
    """`retry_exceptions=[...]`: only these."""
    with tally() as runs:
        add = runs.add

        @ray.remote(max_retries=3, retry_exceptions=[ConnectionError])
        def f(kind):
            if add() < 3:
                raise kind("no")
            return "done"

        print(ray.get(f.remote(ConnectionResetError)), runs.count)
        print(raised(lambda: ray.get(f.options(retry_exceptions=[KeyError]).remote(OSError)), "OSError"), runs.count)


def an_attempt_knows_its_number():
    """`RuntimeContext` of a second attempt is that of the same task."""
    with tally() as runs:
        path = runs.path

        @ray.remote
        def f():
            id = ray.get_runtime_context().get_task_id()
            if not os.path.exists(path):
                with open(path, "w") as file:
                    file.write(id)
                os._exit(1)
            with open(path) as file:
                return file.read() == id

        print(ray.get(f.remote()))


def an_actor_is_not_started_again_by_default():
    """`max_restarts` is 0: a dead actor stays dead."""

    @ray.remote
    class A:
        def die(self):
            os._exit(1)

        def f(self):
            return 1

    a = A.remote()
    print(raised(lambda: ray.get(a.die.remote()), "ActorDiedError", "RayActorError"))
    print(raised(lambda: ray.get(a.f.remote()), "ActorDiedError"))


def a_restarted_actor_begins_anew():
    """`max_restarts`: its constructor runs again, and what it had is lost."""

    @ray.remote(max_restarts=1, max_task_retries=-1)
    class A:
        def __init__(self):
            self.value = 0

        def add(self):
            self.value += 1
            return self.value

        def pid(self):
            return os.getpid()

    a = A.remote()
    ray.get([a.add.remote() for _ in range(3)])
    pid = ray.get(a.pid.remote())
    os.kill(pid, signal.SIGKILL)
    print(ray.get(a.add.remote()), ray.get(a.pid.remote()) != pid)


def a_call_in_flight_is_lost_without_task_retries():
    """`max_task_retries=0`: the call that ran raises, later ones reach the restarted actor."""

    @ray.remote(max_restarts=1)
    class A:
        def die(self):
            os._exit(1)

        def f(self):
            return 1

    a = A.remote()
    ray.get(a.f.remote())
    print(raised(lambda: ray.get(a.die.remote()), "RayActorError"))
    print(eventually(lambda: raised(lambda: ray.get(a.f.remote()), "RayActorError") == "nothing"))


def a_call_in_flight_is_run_again_with_task_retries():
    """`max_task_retries`: at least once."""
    with tally() as runs:
        add = runs.add

        @ray.remote(max_restarts=-1, max_task_retries=2)
        class A:
            def f(self):
                if add() < 2:
                    os._exit(1)
                return "done"

        print(ray.get(A.remote().f.remote()), runs.count)


def exceptions_of_methods_and_task_retries():
    """`max_task_retries` with `retry_exceptions` of a method."""
    with tally() as runs:
        add = runs.add

        @ray.remote
        class A:
            @ray.method(max_task_retries=2, retry_exceptions=[ValueError])
            def f(self):
                if add() < 2:
                    raise ValueError("again")
                return "done"

        a = A.remote()
        print(ray.get(a.f.remote()), runs.count)


def exit_actor_is_not_a_crash():
    """`exit_actor()`: it is not started again, whatever `max_restarts` says."""

    @ray.remote(max_restarts=-1)
    class A:
        def leave(self):
            ray.actor.exit_actor()

        def f(self):
            return 1

    a = A.remote()
    print(raised(lambda: ray.get(a.leave.remote()), "RayActorError"))
    print(raised(lambda: ray.get(a.f.remote()), "ActorDiedError"))


def kill_without_no_restart():
    """`kill(no_restart=False)` is a crash: the actor is started again."""

    @ray.remote(max_restarts=1, max_task_retries=-1)
    class A:
        def pid(self):
            return os.getpid()

    a = A.remote()
    pid = ray.get(a.pid.remote())
    ray.kill(a, no_restart=False)
    print(eventually(lambda: ray.get(a.pid.remote()) != pid))
    ray.kill(a)
    print(raised(lambda: ray.get(a.pid.remote()), "ActorDiedError"))


def values_of_a_dead_worker_live_on():
    """What a worker has returned is there when its process is gone."""

    @ray.remote(max_restarts=0)
    class A:
        def make(self):
            return list(range(100_000))

        def leave(self):
            ray.actor.exit_actor()

    a = A.remote()
    ref = a.make.remote()
    ray.wait([ref])
    raised(lambda: ray.get(a.leave.remote()), "RayActorError")
    print(len(ray.get(ref)))


def errors_pass_through_tasks():
    """A task whose argument is an error raises that error, and does not run."""
    with tally() as runs:
        add = runs.add

        @ray.remote
        def bad():
            raise KeyError("first")

        @ray.remote
        def use(value):
            add()

        print(raised(lambda: ray.get(use.remote(use.remote(bad.remote()))), "KeyError"), runs.count)


def a_crash_passes_through_tasks():
    """So does the crash of the call that was to make it."""

    @ray.remote(max_retries=0)
    def bad():
        os._exit(1)

    @ray.remote
    def use(value):
        return value

    print(raised(lambda: ray.get(use.remote(bad.remote())), "WorkerCrashedError"))


def others_are_not_disturbed_by_a_crash():
    """Calls of the same function go on when the process of one dies."""

    @ray.remote(max_retries=0)
    def f(number):
        if number == 5:
            os._exit(1)
        time.sleep(0.01)
        return number

    refs = [f.remote(number) for number in range(10)]
    good = []
    for ref in refs:
        try:
            good.append(ray.get(ref))
        except ray.exceptions.WorkerCrashedError:
            print("one has crashed")
    print(good)


def errors_have_a_cause():
    """The error of a task is of the user's class and of `RayTaskError`, and names the function."""

    @ray.remote
    def fails():
        raise ZeroDivisionError("by zero")

    try:
        ray.get(fails.remote())
    except ray.exceptions.RayTaskError as error:
        print(isinstance(error, ZeroDivisionError), isinstance(error.cause, ZeroDivisionError))
        print(isinstance(error.as_instanceof_cause(), ZeroDivisionError), "fails" in str(error))


def a_dead_actor_frees_its_name():
    """The name of an actor that is dead can be given again."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(name="mortal").remote()
    ray.get(a.f.remote())
    ray.kill(a)
    print(eventually(lambda: raised(lambda: ray.get_actor("mortal"), "ValueError") == "ValueError"))
    b = A.options(name="mortal").remote()
    print(ray.get(b.f.remote()))
    ray.kill(b)
