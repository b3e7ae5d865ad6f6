"""Errors: what a call raises is what `get` raises; crashes, retries."""

import os
import pickle
import traceback

import ray

from tests.ray_docs.helpers import raised, tally


def error_of_a_task():
    """`get` raises an error that is a RayTaskError and of the user's class."""

    @ray.remote
    def f():
        raise ValueError("why")

    print(raised(lambda: ray.get(f.remote()), "RayTaskError", "ValueError", "RayError"))


def cause_of_an_error():
    """`cause` is the error that the function raised."""

    @ray.remote
    def f():
        raise ValueError("why", 2)

    try:
        ray.get(f.remote())
    except ray.exceptions.RayTaskError as error:
        print(type(error.cause).__name__, error.cause.args, "why" in str(error))


def text_of_an_error():
    """Its text has the remote traceback with the user's line."""

    @ray.remote
    def a_function_with_a_name():
        raise ValueError("why")

    try:
        ray.get(a_function_with_a_name.remote())
    except ValueError as error:
        print("a_function_with_a_name" in str(error), "raise ValueError" in str(error), "errors.py" in str(error))


def errors_go_through_dependent_calls():
    """A call whose argument failed fails with that error, and does not run."""

    @ray.remote
    def bad():
        raise KeyError("k")

    @ray.remote
    def use(x, path):
        open(path, "ab").write(b"x")

    with tally() as counts:
        print(raised(lambda: ray.get(use.remote(bad.remote(), counts.path)), "KeyError", "RayTaskError"), counts.count)


def errors_of_nested_calls():
    """An error that goes through two calls is still of its class."""

    @ray.remote
    def inner():
        raise LookupError("deep")

    @ray.remote
    def outer():
        return ray.get(inner.remote())

    print(raised(lambda: ray.get(outer.remote()), "LookupError", "RayTaskError"))


def own_classes_of_errors():
    """With attributes that were set."""

    class Own(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    @ray.remote
    def f():
        raise Own(7)

    try:
        ray.get(f.remote())
    except Own as error:
        print("Own", error.code, isinstance(error, ray.exceptions.RayTaskError))
    except ray.exceptions.RayTaskError as error:
        print("RayTaskError", type(error.cause).__name__)


def an_odd_constructor():
    """An error whose constructor takes more than its args is caught as its class."""

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a)
            self.b = b

        def __reduce__(self):
            return Odd, (self.args[0], self.b)

    @ray.remote
    def f():
        raise Odd(1, 2)

    try:
        ray.get(f.remote())
    except Odd as error:
        print("Odd", error.b, error.args[0] if len(error.args) == 1 else len(error.args))


def read_only_args():
    """An error with `args` that cannot be set is caught as its class."""

    class Fixed(Exception):
        @property
        def args(self):
            return ("fixed",)

    @ray.remote
    def f():
        raise Fixed

    print(raised(lambda: ray.get(f.remote()), "RayTaskError"))
    try:
        ray.get(f.remote())
    except Fixed:
        print("Fixed")


def classes_of_base_exceptions():
    """An error that is no Exception is the user's class too."""

    class Base(BaseException):
        pass

    @ray.remote
    def f():
        raise Base("x")

    try:
        ray.get(f.remote())
    except Base:
        print("Base")
    except ray.exceptions.RayTaskError:
        print("RayTaskError")


def keyboard_interrupt_of_a_task():
    """A task that raises KeyboardInterrupt was not cancelled by anybody."""

    @ray.remote(max_retries=0)
    def f():
        raise KeyboardInterrupt

    print(
        raised(
            lambda: ray.get(f.remote()), "TaskCancelledError", "KeyboardInterrupt", "RayTaskError", "WorkerCrashedError"
        )
    )


def system_exit_of_a_task():
    """`sys.exit` in a task ends its process."""

    @ray.remote(max_retries=0)
    def f():
        raise SystemExit(1)

    print(raised(lambda: ray.get(f.remote()), "WorkerCrashedError", "RayTaskError", "SystemExit"))


def an_error_without_a_text():
    """Also errors without arguments."""

    @ray.remote
    def f():
        raise RuntimeError

    print(raised(lambda: ray.get(f.remote()), "RuntimeError"))


def an_error_that_cannot_be_pickled():
    """It is an error of the call all the same, with its text."""

    class Locked(Exception):
        def __init__(self):
            import threading

            super().__init__("text of it")
            self.lock = threading.Lock()

    @ray.remote
    def f():
        raise Locked

    try:
        ray.get(f.remote())
    except ray.exceptions.RayError as error:
        print("RayError", "text of it" in str(error))


def causes_are_kept():
    """`raise ... from ...` is told in the text."""

    @ray.remote
    def f():
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    try:
        ray.get(f.remote())
    except ValueError as error:
        print("KeyError" in str(error), "first" in str(error), isinstance(error.cause.__cause__, KeyError))


def the_traceback_ends_in_the_driver():
    """The frames of the error are those of the driver; the remote ones stand in the text."""

    @ray.remote
    def f():
        raise ValueError

    try:
        ray.get(f.remote())
    except ValueError as error:
        print(traceback.extract_tb(error.__traceback__)[0].name)


def errors_can_be_pickled():
    """What `get` raised can be sent on."""

    @ray.remote
    def f():
        raise ValueError("x")

    try:
        ray.get(f.remote())
    except ValueError as error:
        again = pickle.loads(ray.cloudpickle.dumps(error))
        print(isinstance(again, ValueError), isinstance(again, ray.exceptions.RayTaskError))


def errors_can_be_returned():
    """An error that is returned is a value."""

    @ray.remote
    def f():
        return ValueError("value")

    print(repr(ray.get(f.remote())))


def crash_of_a_task():
    """A process that ends is WorkerCrashedError where nothing is tried again."""

    @ray.remote(max_retries=0)
    def f():
        os._exit(3)

    print(raised(lambda: ray.get(f.remote()), "WorkerCrashedError", "RayError", "RayTaskError"))


def crashes_are_tried_again():
    """By default three times more."""

    @ray.remote
    def f(path):
        open(path, "ab").write(b"x")
        os._exit(1)

    with tally() as counts:
        print(raised(lambda: ray.get(f.remote(counts.path)), "WorkerCrashedError"), counts.count)


def a_crash_that_does_not_come_again():
    """The second attempt gives the value."""

    @ray.remote(max_retries=1)
    def f(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "second"

    with tally() as mark:
        print(ray.get(f.remote(mark.path)))


def errors_are_not_tried_again():
    """Unless it is asked for, an error of the function is final."""

    @ray.remote(max_retries=3)
    def f(path):
        open(path, "ab").write(b"x")
        raise ValueError

    with tally() as counts:
        print(raised(lambda: ray.get(f.remote(counts.path)), "ValueError"), counts.count)


def errors_are_tried_again_where_asked_for():
    """`retry_exceptions=True` counts errors as crashes."""

    @ray.remote(max_retries=2, retry_exceptions=True)
    def f(path):
        open(path, "ab").write(b"x")
        raise ValueError

    with tally() as counts:
        print(raised(lambda: ray.get(f.remote(counts.path)), "ValueError"), counts.count)


def only_some_errors_are_tried_again():
    """A list of classes, with their derived classes."""

    @ray.remote(max_retries=2, retry_exceptions=[LookupError])
    def f(path, kind):
        open(path, "ab").write(b"x")
        raise kind

    with tally() as a, tally() as b:
        print(raised(lambda: ray.get(f.remote(a.path, KeyError)), "KeyError"), a.count)
        print(raised(lambda: ray.get(f.remote(b.path, ValueError)), "ValueError"), b.count)


def retry_exceptions_are_classes():
    """Other things are refused.

    Differs: by TypeError, as all options of the wrong type.
    """

    @ray.remote
    def f():
        return 1

    print(raised(lambda: f.options(retry_exceptions=[1]).remote(), "TypeError", "ValueError"))


def get_of_a_list_raises_the_first_error():
    """One bad value of many."""

    @ray.remote
    def f(n):
        if n == 1:
            raise ValueError(n)
        return n

    print(raised(lambda: ray.get([f.remote(n) for n in range(3)]), "ValueError"))


def families_of_errors():
    """Which error is which."""
    e = ray.exceptions
    pairs = [
        (e.RayTaskError, e.RayError), (e.ActorDiedError, e.RayActorError), (e.ActorUnavailableError, e.RayActorError),
        (e.GetTimeoutError, TimeoutError), (e.OwnerDiedError, e.ObjectLostError),
        (e.ObjectReconstructionFailedError, e.ObjectLostError), (e.ReferenceCountingAssertionError, e.ObjectLostError),
        (e.ObjectFetchTimedOutError, e.ObjectLostError), (e.ObjectFreedError, e.ObjectLostError),
        (e.TaskCancelledError, e.RayError), (e.WorkerCrashedError, e.RayError), (e.NodeDiedError, e.RayError),
        (e.OutOfMemoryError, e.RayError), (e.OutOfDiskError, e.RayError), (e.ObjectStoreFullError, e.RayError),
        (e.RuntimeEnvSetupError, e.RayError), (e.PendingCallsLimitExceeded, e.RayError),
        (e.LocalRayletDiedError, e.RayError), (e.CrossLanguageError, e.RayError), (e.AsyncioActorExit, e.RayError),
        (e.TaskUnschedulableError, e.RayError), (e.ActorUnschedulableError, e.RayError),
        (e.TaskPlacementGroupRemoved, e.RayError), (e.ActorPlacementGroupRemoved, e.RayError),
        (e.RaySystemError, e.RayError), (e.UnserializableException, e.RayError), (e.UserCodeException, e.RayError),
        (e.PlasmaObjectNotAvailable, e.RayError), (e.ObjectRefStreamEndOfStreamError, e.RayError),
        (e.RayChannelError, e.RaySystemError), (e.RayChannelTimeoutError, TimeoutError),
        (e.RayCgraphCapacityExceeded, e.RaySystemError), (e.ActorAlreadyExistsError, ValueError),
        (e.ActorHandleNotFoundError, ValueError), (e.AuthenticationError, e.RayError), (e.RpcError, e.RayError),
    ]  # fmt: skip
    print([(a.__name__, b.__name__) for a, b in pairs if not issubclass(a, b)], len(pairs))


def actor_error_in_a_dependent_call():
    """A task whose argument comes from a dead actor fails with the actor's error."""

    @ray.remote
    class A:
        def f(self):
            os._exit(1)

    @ray.remote
    def use(x):
        return x

    a = A.remote()
    print(raised(lambda: ray.get(use.remote(a.f.remote())), "RayActorError"))


def error_and_finally():
    """`finally` of a cancelled task runs."""
    import time

    from tests.ray_docs.helpers import eventually

    @ray.remote
    def f(path):
        try:
            open(path, "ab").write(b"x")
            for _ in range(1000):  # Ray does not interrupt a single long sleep
                time.sleep(0.05)
        finally:
            open(path, "ab").write(b"x")

    with tally() as counts:
        ref = f.remote(counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError")
        print(eventually(lambda: counts.count == 2))


def assertion_errors():
    """Assertions are errors like others."""

    @ray.remote
    def f():
        assert 1 == 2, "unequal"

    print(raised(lambda: ray.get(f.remote()), "AssertionError"))


def stop_iteration_of_a_task():
    """Also an error that Python treats in its own way.

    Differs: it is a `TaskError` alone, or an iteration around `get` would end as if it were complete.
    """

    @ray.remote
    def f():
        raise StopIteration(5)

    print(raised(lambda: ray.get(f.remote()), "StopIteration", "RayTaskError"))
