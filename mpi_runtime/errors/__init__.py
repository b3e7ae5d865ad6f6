"""Every exception of this package. `remote.py` carries those of user code between processes.

    MpiRuntimeError                   base of all                                                  (RayError)
    |  the program broke a rule
    +-- RuntimeNotInitializedError    called before init() or after shutdown()
    +-- LaunchError                   the ranks were started in a way that cannot work
    |   +-- GpuDiscoveryError         GPUs that init() names do not exist
    +-- JournalError                  the directory of init(journal=...) cannot be used, or another job uses it
    +-- InfeasibleResourceError       no node can ever serve the request; also a ValueError
    +-- SerializationError            the error of a call cannot be pickled: its `cause`, in words
    +-- DeviceUnavailableError        a value is on a GPU, and was read in a process without a GPU
    |  the program asked for it
    +-- GetTimeoutError               get() with a timeout gave up; also a TimeoutError
    +-- TaskCancelledError            the task was cancelled
    +-- TaskTimeoutError              the task ran longer than its time_limit; also a TimeoutError
    +-- PendingCallsLimitExceeded     a handle has max_pending_calls unfinished calls
    +-- PlacementGroupRemovedError    the placement group of the task was removed
    +-- RuntimeEnvSetupError          files of a runtime_env could not be unpacked, or its hook failed
    |  user code raised
    +-- TaskError                     the original is `cause`; also an instance of its class      (RayTaskError)
    |   +-- GpuOutOfMemoryError       a library found too little memory on a GPU
    |  a process, a host or a device failed
    +-- WorkerCrashedError            the process that ran the task died
    |   +-- GpuExecutorDiedError      CUDA failed in it for good
    +-- OutOfMemoryError              it was ended because the host ran out of memory
    +-- ActorError                    the actor cannot answer                                      (RayActorError)
    |   +-- ActorDiedError            for good
    |   +-- ActorUnavailableError     now; a later call may succeed
    +-- ObjectLostError               all copies of the value are gone
    |   +-- OwnerDiedError            the driver of the call that was to make it has left
    +-- ObjectStoreFullError          memory and disk have no room for the value
    +-- HeadDiedError                 the scheduler's process died, and the job with it
    |   +-- SessionEndedError         the session of this program has ended
    |  this package has a bug
    +-- InternalError                 please report it                                             (RaySystemError)

All but `TaskError` and its subclasses are made from one message, so that the scheduler can send class name and text.

- `arguments.py`: checks of arguments of public functions: TypeError and ValueError in one wording
- `remote.py`: errors of user code in another process: their text, and their bytes
- `copies.py`: copies of exceptions, made without code of their classes
- `frames.py`: tracebacks with frames of user code only
- `hints.py`: what to do about errors of Python that references and handles cause
- `optional.py`: loads optional libraries, or names the one that is missing
- `ray.py`: errors of Ray that nothing raises here
"""

import contextlib
import copyreg
import functools
import re
from typing import Any

from mpi_runtime.errors.copies import args_of, copy_content, instance_of, is_group, rebuilt, slots_of

__all__ = [
    "ActorDiedError", "ActorError", "ActorPlacementGroupRemoved", "ActorUnavailableError",
    "ActorUnschedulableError", "DeviceUnavailableError", "GetTimeoutError", "GpuDiscoveryError",
    "GpuExecutorDiedError", "GpuOutOfMemoryError", "HeadDiedError", "InfeasibleResourceError", "InternalError",
    "JournalError", "LaunchError", "MpiRuntimeError", "ObjectLostError", "ObjectStoreFullError", "OutOfMemoryError",
    "OwnerDiedError", "PendingCallsLimitExceeded", "PlacementGroupRemovedError", "RayActorError", "RayError",
    "RaySystemError", "RayTaskError", "RuntimeEnvSetupError", "RuntimeNotInitializedError", "SerializationError",
    "SessionEndedError",
    "TaskCancelledError", "TaskError", "TaskPlacementGroupRemoved", "TaskTimeoutError", "TaskUnschedulableError",
    "WorkerCrashedError",
]  # fmt: skip

_DEVICE_LIBRARIES = ("cupy", "cupy_backends")
"""Libraries whose missing modules mean that a device is missing. They are not imported here."""


class MpiRuntimeError(Exception):
    """Base of all exceptions of this package, errors of user code included."""

    def _render_traceback_(self) -> list[str]:
        """For IPython: the lines to show."""
        from mpi_runtime.errors import frames  # not at the top: notebooks alone need it

        return frames.in_notebook(self, keeps_ours=isinstance(self, InternalError))


class RuntimeNotInitializedError(MpiRuntimeError):
    """A call needs a job, and no job runs: in a forked child, or in a pool of an ended job."""

    def __init__(self, message: str = "mpi_runtime is not running here: call mpi_runtime.init() first") -> None:
        super().__init__(message)


class LaunchError(MpiRuntimeError):
    """The ranks were started in a way that cannot work. The message names the cure."""


class GpuDiscoveryError(LaunchError):
    """`init(num_gpus=...)` asks for more GPUs than exist, or the driver does not answer. The message says which."""


class JournalError(MpiRuntimeError):
    """The journal cannot be used, or another job uses it. The message says which, and what to do."""


class InfeasibleResourceError(MpiRuntimeError, ValueError):
    """No node can ever serve this request. The message names the largest amount that a node has."""


class SerializationError(MpiRuntimeError):
    """Stands for an error of user code that cannot be pickled and read back, as the `cause` of its `TaskError`.

    A value that cannot be pickled raises TypeError where it is stored or passed. One that cannot be read back raises
    what its class raises.
    """


class DeviceUnavailableError(MpiRuntimeError):
    """A value holds an array of a GPU, and the reading process has no GPU. `get(ref, device="cpu")` reads it."""


class GetTimeoutError(MpiRuntimeError, TimeoutError):
    """`get` gave up after its timeout. The calls continue; `get` may be called again."""


class TaskCancelledError(MpiRuntimeError):
    """The call was cancelled before it ended."""

    task_id: None = None
    """None, as that of the error which Ray's `get` raises: the reference has the id."""


class TaskTimeoutError(MpiRuntimeError, TimeoutError):
    """The task ran longer than its `time_limit`, with `enforce_time_limit=True`: the message has time and place."""


class PendingCallsLimitExceeded(MpiRuntimeError):
    """The handle has as many unfinished calls as `max_pending_calls` allows. This call was not submitted."""


class PlacementGroupRemovedError(MpiRuntimeError):
    """The placement group was removed while it was waited for, or before the task in it had ended."""


class RuntimeEnvSetupError(MpiRuntimeError):
    """Files of a `runtime_env` are too large or could not be unpacked on a host, or its hook has failed.

    The message says why.
    """


class TaskError(MpiRuntimeError):
    """User code raised in a task or an actor.

    The error that `get` raises is also an instance of the class that was raised, if Python allows it. So
    `except ZeroDivisionError` works across processes. Its text is the remote traceback. `args` and all attributes are
    those of the original exception.
    """

    def __init__(self, cause: BaseException, traceback_str: str) -> None:
        _fill(self, cause, traceback_str)

    @property
    def cause(self) -> BaseException:
        """The exception that user code raised, without its traceback."""
        cause: BaseException = vars(self)["cause"]
        return cause

    @property
    def traceback_str(self) -> str:
        """The remote traceback, after a line with function, process, rank and host."""
        text: str = vars(self)["traceback_str"]
        return text

    def as_instanceof_cause(self) -> "TaskError":
        """Return a new error with the same content that is also an instance of the cause's class, if possible."""
        return task_error(self.cause, self.traceback_str)

    def __str__(self) -> str:
        return self.traceback_str

    def __repr__(self) -> str:
        return f"{TaskError.__name__}({self.cause!r})"

    def __getattr__(self, name: str) -> Any:
        # Attributes that the original computes. Names like __len__ define what an object is, and are not passed on.
        if name.startswith("__") or "cause" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.cause, name)

    def __reduce__(self) -> tuple[object, ...]:
        cause, kind = self.cause, type(self.cause)
        has_own = kind in copyreg.dispatch_table or kind.__reduce_ex__ is not object.__reduce_ex__
        if kind.__reduce__ is BaseException.__reduce__ and not has_own:
            # pickle would call the class with `args`, which fails for each __init__ with parameters of its own.
            content = args_of(cause), vars(cause), self.traceback_str, slots_of(cause)
            return _load_task_error, (kind, *content)
        return task_error, (cause, self.traceback_str)


class GpuOutOfMemoryError(TaskError):
    """cupy, torch or another library found too little memory on a GPU.

    The message says which processes use how much of the device. Like any `TaskError` it is also an instance of the
    library's class: `except cupy.cuda.memory.OutOfMemoryError` works.
    """


class WorkerCrashedError(MpiRuntimeError):
    """The process that ran the task died, more often than `max_retries` allows.

    The message names the signal and the host. If user code wrote to a descriptor of mpi_runtime, the process was ended,
    and the message says "sent a frame that cannot be read".
    """


class GpuExecutorDiedError(WorkerCrashedError):
    """CUDA failed for good in the process that ran the task, for example after an illegal address.

    The process was ended, because every later use of CUDA in it would have failed. The task was run again in other
    processes as often as `max_retries` allows. The message names the error of CUDA and the GPU, and has the traceback.
    """


class OutOfMemoryError(MpiRuntimeError):
    """The process that ran the task was ended because its host, or its control group, had nearly no memory left.

    Or the kernel killed it for its memory. The message names sizes, limit, and the largest processes and values.
    """


class ActorError(MpiRuntimeError):
    """The actor cannot answer this call: `ActorDiedError` or `ActorUnavailableError`."""

    @property
    def actor_id(self) -> str | None:
        """The id of the actor as hexadecimal digits, from the message; None: the message has none."""
        found = re.search(r"\b[0-9a-f]{32}\b", str(self))
        return found[0] if found else None

    @property
    def preempted(self) -> bool:
        """False: no host is taken away after a warning."""
        return False


class ActorDiedError(ActorError):
    """The actor has ended and will not be restarted. The message says why."""


class ActorUnavailableError(ActorError):
    """The actor cannot be reached now, for example during a restart. The call may or may not have run."""


class ObjectLostError(MpiRuntimeError):
    """All copies of the value are gone, its rank cannot be reached, or its job has ended."""


class OwnerDiedError(ObjectLostError):
    """The driver to which the call belonged has left the job before the call had ended."""


class ObjectStoreFullError(MpiRuntimeError):
    """The object store has no room for the value: it is too large, or other values cannot leave their room.

    Values that a process reads, and arguments of running calls, stay in memory; others are spilled, if a disk has room.
    """


class HeadDiedError(MpiRuntimeError):
    """The head, the process with the scheduler, died or cannot be reached. The job ends.

    It is also raised once in the main thread, even while that computes or sleeps, so that `except` and `finally` can
    run. If it died because the launcher was killed, the program has 5 seconds.
    """


class SessionEndedError(HeadDiedError):
    """The session that this program is connected to has ended. The message has the reason.

    It was stopped, its time is over, its batch job was cancelled, nobody used it, or its head was killed.
    """


class InternalError(MpiRuntimeError):
    """A bug of this package. Please report it."""


RayError = MpiRuntimeError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = InternalError
TaskPlacementGroupRemoved = PlacementGroupRemovedError
ActorPlacementGroupRemoved = ActorDiedError
TaskUnschedulableError = InfeasibleResourceError
ActorUnschedulableError = ActorDiedError

_BY_CODE = {
    kind.__name__: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, MpiRuntimeError)
    if kind is not MpiRuntimeError and not issubclass(kind, TaskError)
}


def from_code(code: str, message: str) -> MpiRuntimeError:
    """Return the error of the runtime with this class name and text."""
    kind = _BY_CODE.get(code)
    return kind(message) if kind else InternalError(f"unknown error code {code!r}: {message}")


# Errors of user code.

_NEVER_DUAL = (
    *(StopIteration, StopAsyncIteration),  # an iteration around get() would end as if it were complete
    *(SystemExit, KeyboardInterrupt, GeneratorExit),  # they would end the caller
)
"""Classes that `get` does not raise as themselves."""


def task_error(cause: BaseException, traceback_str: str) -> TaskError:
    """Return a `TaskError` that is also an instance of the class of `cause`, or a plain one if that is impossible."""
    plain = GpuOutOfMemoryError if is_gpu_out_of_memory(cause) else TaskError
    kind: type[TaskError] = _dual_class(type(cause), plain)  # type: ignore[arg-type]  # typeshed: not hashable
    if kind is not plain:
        with contextlib.suppress(Exception):  # the class cannot be instantiated this way: its text still has to arrive
            error = instance_of(kind, cause)
            _fill(error, cause, traceback_str)
            return error
    return plain(cause, traceback_str)


def is_about_device(error: Exception) -> bool:
    """Whether reading a value failed because it is an array of a GPU, and the library or the device is missing.

    Errors of a device that exists do not count: they are raised unchanged.
    """
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").partition(".")[0] in _DEVICE_LIBRARIES
    if type(error).__module__ == "builtins" and type(error) is not RuntimeError:
        return False  # as most are
    from mpi_runtime.gpu import faults

    return faults.is_absent(error)


def is_gpu_out_of_memory(error: BaseException) -> bool:
    """Whether a library has found too little memory on a GPU."""
    if type(error).__module__ == "builtins" and type(error) is not RuntimeError:
        return False  # as most are
    from mpi_runtime.gpu import faults

    return faults.is_out_of_memory(error)


@functools.lru_cache(maxsize=1024)
def _dual_class(kind: type[BaseException], plain: type[TaskError]) -> type[TaskError]:
    """Return a class derived from `plain`, a `TaskError`, and from `kind`; `plain` itself if that is impossible.

    Exceptions that end a process (SystemExit, KeyboardInterrupt) must not end the caller's.
    """
    if issubclass(kind, (TaskError, *_NEVER_DUAL)) or kind.__module__ == "asyncio.exceptions":
        return plain
    name = f"{plain.__name__}({kind.__qualname__})"
    contents: dict[str, object] = {"__module__": __name__, "__doc__": kind.__doc__}
    if is_group(kind):  # `except*` derives parts of the user's class
        contents["derive"] = lambda self, members: self.cause.derive(members)
    try:
        return type(name, (plain, kind), contents)
    except Exception:  # final, a metaclass or an __init_subclass__ that refuses, a layout of its own
        return plain


def _fill(error: TaskError, cause: BaseException, traceback_str: str) -> None:
    """Give the error the content of the original exception."""
    copy_content(cause, error)
    state = vars(error)
    state.pop("__notes__", None)  # the text has them
    state["cause"] = cause
    state["traceback_str"] = traceback_str


def _load_task_error(
    kind: type[BaseException],
    args: tuple[object, ...],
    state: dict[str, object],
    traceback_str: str,
    slots: dict[str, object],
) -> TaskError:
    """Unpickle an error. Its cause is made without calling its class."""
    return task_error(rebuilt(kind, args, state, slots), traceback_str)
