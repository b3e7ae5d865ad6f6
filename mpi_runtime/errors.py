"""Every exception that this package raises, and the errors of user code as they cross processes.

    MpiRuntimeError                   all of them                                                  (RayError)
    |  you broke a rule
    +-- RuntimeNotInitializedError    called before init() or after shutdown()
    +-- LaunchError                   the ranks were started in a way that cannot work
    |   +-- GpuDiscoveryError         GPUs that init() was told of are not there
    +-- InfeasibleResourceError       no node can ever serve the request; also a ValueError
    +-- SerializationError            a value cannot be pickled, or what was pickled cannot be read
    +-- DeviceUnavailableError        a value lives on a GPU, and was read in a process that can use none
    |  you asked for it
    +-- GetTimeoutError               get() with a timeout gave up; also a TimeoutError
    +-- TaskCancelledError            the task was cancelled
    +-- TaskTimeoutError              the task ran longer than its time_limit; also a TimeoutError
    +-- PendingCallsLimitExceeded     a call that max_pending_calls does not allow
    +-- PlacementGroupRemovedError    the placement group in which it was to run was removed
    +-- RuntimeEnvSetupError          the files of a runtime_env cannot be put where a call is to find them
    |  user code raised
    +-- TaskError                     with the original as `cause`, and of its class where possible (RayTaskError)
    |   +-- GpuOutOfMemoryError       a library found too little memory on a GPU
    |  the world broke something
    +-- WorkerCrashedError            the process that ran the task died
    |   +-- GpuExecutorDiedError      or ended, because CUDA would have answered it with the same error for good
    +-- OutOfMemoryError              it was killed because the host ran out of memory
    +-- ActorError                    the actor cannot answer                                      (RayActorError)
    |   +-- ActorDiedError            and never will
    |   +-- ActorUnavailableError     for now; a later call may succeed
    +-- ObjectLostError               the value is gone, and cannot be made again
    +-- ObjectStoreFullError          there is no room for the value
    +-- HeadDiedError                 the scheduler's process is gone, and the job with it
    |  we did
    +-- InternalError                 a bug of this package: please report it                      (RaySystemError)

All but `TaskError` and its kind are made from one message, so that the scheduler can name them by class name and text.
"""

import builtins
import contextlib
import functools
import pickle
import re
import traceback
from typing import Any, TypeVar

from mpi_runtime import tracebacks

_Error = TypeVar("_Error", bound=BaseException)

_DEVICE_LIBRARIES = ("cupy", "cupy_backends")
"""Whose errors mean that a device is missing. They are not imported here."""


class MpiRuntimeError(Exception):
    """Base of all exceptions of this package, errors of user code included."""


class RuntimeNotInitializedError(MpiRuntimeError):
    """Something that needs the running system was called before `init()` or after `shutdown()`."""

    def __init__(self, message: str = "mpi_runtime is not running here: call mpi_runtime.init() first") -> None:
        super().__init__(message)


class LaunchError(MpiRuntimeError):
    """The ranks were started in a way that cannot work; the message names the cure."""


class GpuDiscoveryError(LaunchError):
    """There are fewer GPUs than `init(num_gpus=...)` says, or the driver does not answer; the message says which."""


class InfeasibleResourceError(MpiRuntimeError, ValueError):
    """No node could ever serve this request, however long it waited; the message names the largest that exists."""


class SerializationError(MpiRuntimeError):
    """A value cannot be pickled, or what was pickled cannot be read back."""


class DeviceUnavailableError(MpiRuntimeError):
    """A value holds an array of a GPU, and the process that reads it can use none. See `get(ref, device="cpu")`."""


class GetTimeoutError(MpiRuntimeError, TimeoutError):
    """The values were not there within the time allowed. The tasks go on; `get` may be called again."""


class TaskCancelledError(MpiRuntimeError):
    """The task was cancelled before it ended."""


class TaskTimeoutError(MpiRuntimeError, TimeoutError):
    """The task ran longer than its `time_limit`, with `enforce_time_limit=True`: says how long, and where."""


class PendingCallsLimitExceeded(MpiRuntimeError):
    """As many calls of a handle are under way as `max_pending_calls` allows; this one was not made."""


class PlacementGroupRemovedError(MpiRuntimeError):
    """The placement group was removed: one that was waited for, or in which the task ran or was to run."""


class RuntimeEnvSetupError(MpiRuntimeError):
    """The files of a `runtime_env` could not be put where the call was to find them; says where, and why."""


class TaskError(MpiRuntimeError):
    """User code raised in a task or an actor.

    What `get` raises is, where Python allows it, an instance of the class of the original exception too, so that
    `except ZeroDivisionError` works across processes. Its text is the remote traceback; `args` and all attributes
    are those of the original.
    """

    def __init__(self, cause: BaseException, traceback_str: str) -> None:
        _fill(self, cause, traceback_str)

    @property
    def cause(self) -> BaseException:
        """The exception that user code raised first, without its traceback."""
        cause: BaseException = vars(self)["cause"]
        return cause

    @property
    def traceback_str(self) -> str:
        """The remote traceback, below a line with function, pid, rank and host."""
        text: str = vars(self)["traceback_str"]
        return text

    def as_instanceof_cause(self) -> "TaskError":
        """Return a new error of the same content that is also an instance of the cause's class, where that can be."""
        return task_error(self.cause, self.traceback_str)

    def __str__(self) -> str:
        return self.traceback_str

    def __repr__(self) -> str:
        return f"TaskError({self.cause!r})"

    def __getattr__(self, name: str) -> Any:
        # Whatever the original computes on demand. Not double underscores: they say what an object *is*.
        if name.startswith("__") or "cause" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.cause, name)

    def __reduce__(self) -> tuple[Any, ...]:
        cause = self.cause
        if type(cause).__reduce__ is BaseException.__reduce__ and type(cause).__reduce_ex__ is object.__reduce_ex__:
            # pickle would call the class with `args`, which fails for each __init__ with parameters of its own.
            return _load_task_error, (type(cause), _args_of(cause), vars(cause), self.traceback_str, _slots(cause))
        return task_error, (cause, self.traceback_str)


class GpuOutOfMemoryError(TaskError):
    """cupy, torch or the like found too little memory on a GPU: the text says who has how much of the device.

    Like any `TaskError` it is of the library's own class too: `except cupy.cuda.memory.OutOfMemoryError` works.
    """


class WorkerCrashedError(MpiRuntimeError):
    """The process that ran the task died, more often than the task may be retried; the message names the signal."""


class GpuExecutorDiedError(WorkerCrashedError):
    """CUDA's context was dead in the process that ran the task, as after an illegal address or a fault of the device.

    The process was ended, since each further call in it would have failed; the task was run again in others as often
    as `max_retries` says. The message names the error of CUDA and the GPU, and has the traceback.
    """


class OutOfMemoryError(MpiRuntimeError):
    """The process that ran the task was killed because its host ran out of memory."""


class ActorError(MpiRuntimeError):
    """The actor cannot answer this call: `ActorDiedError` or `ActorUnavailableError`."""

    @property
    def actor_id(self) -> str | None:
        """The id of the actor as hexadecimal digits, as the message has it; None: it says none."""
        found = re.search(r"\b[0-9a-f]{32}\b", str(self))
        return found[0] if found else None


class ActorDiedError(ActorError):
    """The actor's process has ended and will not be started again; the message says why."""


class ActorUnavailableError(ActorError):
    """The actor cannot be reached now, for example because it is being restarted; the call may or may not have run."""


class ObjectLostError(MpiRuntimeError):
    """All copies of the value are gone, and it could not be made again."""


class ObjectStoreFullError(MpiRuntimeError):
    """The value does not fit into the object store: it is too large, or the rest is in use."""


class HeadDiedError(MpiRuntimeError):
    """The process with the scheduler is gone, or cannot be reached. The job cannot go on."""


class InternalError(MpiRuntimeError):
    """A rule that this package sets itself was broken: a bug, please report it."""


RayError = MpiRuntimeError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = InternalError
TaskPlacementGroupRemoved = PlacementGroupRemovedError
ActorPlacementGroupRemoved = ActorDiedError
TaskUnschedulableError = InfeasibleResourceError
ActorUnschedulableError = ActorDiedError

_BY_CODE: dict[str, type[MpiRuntimeError]] = {
    kind.__name__: kind
    for kind in (
        RuntimeNotInitializedError,
        DeviceUnavailableError,
        GpuDiscoveryError,
        LaunchError,
        InfeasibleResourceError,
        SerializationError,
        GetTimeoutError,
        TaskCancelledError,
        TaskTimeoutError,
        PlacementGroupRemovedError,
        RuntimeEnvSetupError,
        WorkerCrashedError,
        GpuExecutorDiedError,
        OutOfMemoryError,
        ActorError,
        ActorDiedError,
        ActorUnavailableError,
        ObjectLostError,
        ObjectStoreFullError,
        HeadDiedError,
        InternalError,
        PendingCallsLimitExceeded,
    )
}


def from_code(code: str, message: str) -> MpiRuntimeError:
    """Return the runtime's own error as it was sent: by class name and text."""
    kind = _BY_CODE.get(code)
    return kind(message) if kind else InternalError(f"unknown error code {code!r}: {message}")


# Errors of user code.

_TEXT_CHARACTERS_MAX = 20_000
"""A chain of a thousand tasks that pass on one error would else carry a thousand tracebacks; both ends tell most."""

_BRIEF_CHARACTERS_MAX = 300

_NEVER_DUAL = (
    *(StopIteration, StopAsyncIteration),  # an iteration around get() would end as if it were complete
    *(SystemExit, KeyboardInterrupt, GeneratorExit),  # it is not the caller that is to end
)
"""Not to be raised by get() as themselves."""

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
"""Came with Python 3.11."""

_HEAP_TYPE = 1 << 9
"""Flag of classes that were made at run time, not in C for good (Py_TPFLAGS_HEAPTYPE)."""


def describe(function_name: str, pid: int, rank: int, host: str, exc: BaseException, title: str = "") -> str:
    """Return the text of a remote error: where it happened, and the traceback without this package's own frames.

    `title` is what the actor calls itself in which it happened.
    """
    internal = isinstance(exc, InternalError)  # where it was raised is all that matters then
    lines = traceback.format_exception(exc) if internal else tracebacks.lines(exc, _is_told)
    actor = f", repr={title}" if title else ""
    text = f"{function_name}() failed: pid={pid}, rank={rank}, host={host}{actor}\n{''.join(lines)}".rstrip()
    if len(text) > _TEXT_CHARACTERS_MAX:
        half = _TEXT_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _is_told(error: BaseException) -> bool:
    return isinstance(error, MpiRuntimeError) and not isinstance(error, InternalError)


def brief(exc: BaseException) -> str:
    """Return class and text of an exception, as at the end of a traceback, in one line of moderate length."""
    if isinstance(exc, TaskError):
        exc = exc.cause
    text = " ".join("".join(traceback.format_exception_only(type(exc), exc)).split())
    return text if len(text) <= _BRIEF_CHARACTERS_MAX else f"{text[: _BRIEF_CHARACTERS_MAX - 3]}..."


def bare(error: _Error) -> _Error:
    """Return the error without the frames through which it came here: they are ours, and of interest in bugs only."""
    if _is_told(error):
        BaseException.with_traceback(error, None)  # not its own, which its class may have replaced
    return error


def make_task_error(
    exc: BaseException, function_name: str, pid: int, rank: int, host: str, title: str = "", note: str = ""
) -> TaskError:
    """Return the error for an exception that escaped from user code; `note` is what there is to say besides.

    An error of another task that a task lets pass keeps its first cause; only the text grows by one traceback.
    """
    cause = exc.cause if isinstance(exc, TaskError) else exc
    text = describe(function_name, pid, rank, host, exc, title)
    return task_error(cause, f"{text}\n{note}" if note else text)


def task_error(cause: BaseException, traceback_str: str) -> TaskError:
    """Return a `TaskError` that is also an instance of the class of `cause`, or a plain one where that cannot be."""
    plain = GpuOutOfMemoryError if is_gpu_out_of_memory(cause) else TaskError
    kind: type[TaskError] = _dual_class(type(cause), plain)  # type: ignore[arg-type]  # typeshed: not hashable
    if kind is not plain:
        try:
            error = _bare_instance(kind, cause)
            _fill(error, cause, traceback_str)
        except Exception:
            # The class resists; what it says still has to arrive.
            return plain(cause, traceback_str)
        return error
    return plain(cause, traceback_str)


def portable(error: TaskError) -> TaskError:
    """Return the error if another process can unpickle it; else one like it with its cause put into words."""
    import cloudpickle  # not at the top: only a failing task pays for it

    cause = error.cause
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception as reason:
        said = "".join(traceback.format_exception_only(type(cause), cause)).strip()
        why = f"{type(reason).__name__}: {reason}"
        substitute = SerializationError(f"{said}\n(in words: the exception cannot be pickled and read back: {why})")
        return task_error(substitute, error.traceback_str)
    return error


def to_bytes(error: MpiRuntimeError) -> bytes:
    """Return the error as bytes that any process can read, if it lacks the class then in words."""
    import cloudpickle

    if isinstance(error, TaskError):
        error = portable(error)
    plain = GpuOutOfMemoryError if isinstance(error, GpuOutOfMemoryError) else TaskError
    return pickle.dumps((cloudpickle.dumps(error, protocol=5), str(error), plain), 5)


def from_bytes(data: bytes | memoryview) -> MpiRuntimeError:
    """Return the error that `to_bytes` packed."""
    pickled, text, plain = pickle.loads(data)
    try:
        error: MpiRuntimeError = pickle.loads(pickled)
    except Exception as reason:
        why = f"the exception cannot be read in this process: {type(reason).__name__}: {reason}"
        in_words: TaskError = plain(SerializationError(why), f"{text}\n(in words: {why})")
        return in_words
    return error


def is_about_device(error: Exception) -> bool:
    """Whether reading a value failed because it is an array of a GPU, and the library or the device is not there.

    A device that is there and fails is another matter: what its library says of that is passed on as it is.
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
    """Return a class that is both `plain`, a `TaskError`, and `kind`; `plain` itself if there can be none.

    Exceptions that end a process (SystemExit, KeyboardInterrupt) must not end the caller's.
    """
    if issubclass(kind, (TaskError, *_NEVER_DUAL)) or kind.__module__ == "asyncio.exceptions":
        return plain
    name = f"{plain.__name__}({kind.__qualname__})"
    contents: dict[str, Any] = {"__module__": __name__, "__doc__": kind.__doc__}
    if issubclass(kind, _GROUP):  # what `except*` makes of a part of it is the user's class
        contents["derive"] = lambda self, members: self.cause.derive(members)
    try:
        return type(name, (plain, kind), contents)
    except Exception:  # final, a metaclass or an __init_subclass__ that refuses, a layout of its own
        return plain


def _builtin_base(kind: type[BaseException]) -> Any:
    """Return the base, made in C, that decides how an instance lies in memory: of several the one that Python chose."""
    base: Any = kind
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    return base


def _bare_instance(kind: type[TaskError], cause: Any) -> TaskError:
    """Return an instance on which no `__new__` and no `__init__` of user code was called."""
    members = (cause.message, cause.exceptions) if isinstance(cause, _GROUP) else ()  # a group has its from the start
    error: TaskError = _builtin_base(kind).__new__(kind, *members)
    return error


def _fill(error: TaskError, cause: BaseException, traceback_str: str) -> None:
    """Give the error what the original has: args, attributes, and fields that C classes and slots keep elsewhere."""
    _set_args(error, _args_of(cause))
    for kind in type(cause).__mro__:
        if kind in (BaseException, object):
            continue
        for name, member in vars(kind).items():
            if type(member).__name__ in ("member_descriptor", "getset_descriptor") and not name.startswith("__"):
                try:
                    member.__set__(error, member.__get__(cause, kind))
                except (AttributeError, TypeError, ValueError):
                    continue  # an empty slot, a field that is derived, or a class that `error` is not
    state = vars(error)
    state.update(vars(cause))
    state.pop("__notes__", None)  # the text has them
    state["cause"] = cause
    state["traceback_str"] = traceback_str


_args = vars(BaseException)["args"]
"""The field itself: a class may have a property of that name, or refuse assignments as frozen data classes do."""


def _set_args(error: BaseException, args: tuple[Any, ...]) -> None:
    _args.__set__(error, args)


def _args_of(error: BaseException) -> tuple[Any, ...]:
    found: tuple[Any, ...] = _args.__get__(error)
    return found


def _load_task_error(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any], traceback_str: str, slots: dict[str, Any]
) -> TaskError:
    """Unpickle an error whose cause is made again without calling its class."""
    base = _builtin_base(kind)
    cause: BaseException = base.__new__(kind, *args)
    base.__init__(cause, *args)
    _set_args(cause, args)
    vars(cause).update(state)
    for name, value in slots.items():
        BaseException.__setattr__(cause, name, value)  # as for `args`
    return task_error(cause, traceback_str)


def _slots(cause: BaseException) -> dict[str, Any]:
    """What classes written in Python keep in `__slots__`."""
    members = [
        (name, member)
        for kind in type(cause).__mro__
        if kind.__flags__ & _HEAP_TYPE
        for name, member in vars(kind).items()
        if type(member).__name__ == "member_descriptor"
    ]
    found = {}
    for name, member in members:
        with contextlib.suppress(AttributeError):  # an empty one
            found[name] = member.__get__(cause)
    return found
