"""Values: `get`, `put` and `wait`. They check their arguments; the client of this process does the work."""

from __future__ import annotations

import operator
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from mpi_runtime.core import published
from mpi_runtime.core.client.generators import ObjectRefGenerator
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.client.submitting import put as put_serialized
from mpi_runtime.core.driver import running
from mpi_runtime.core.objects import serialize
from mpi_runtime.errors import MpiRuntimeError
from mpi_runtime.errors.arguments import seconds
from mpi_runtime.errors.remote import bare
from mpi_runtime.show import bars

T = TypeVar("T")
Stream = TypeVar("Stream", bound="ObjectRefGenerator[Any]")
Waitable = TypeVar("Waitable", bound="ObjectRef[Any] | ObjectRefGenerator[Any]")

_READERS: Mapping[str | None, Callable[..., object]] = {
    None: pickle.loads, "cpu": serialize.loads_on_host, "gpu": serialize.loads_on_device,
}  # fmt: skip
"""The function by which `get` reads a pickled value, by `device`."""
_ID_OF, _CLIENT_OF = operator.attrgetter("_id"), operator.attrgetter("_client")


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None, device: None = None, copy: bool = False) -> T: ...
@overload
def get(
    refs: Sequence[ObjectRef[T]], *, timeout: float | None = None, device: None = None, copy: bool = False
) -> list[T]: ...
@overload
def get(refs: Stream, *, timeout: float | None = None, device: None = None, copy: bool = False) -> Stream: ...
@overload
def get(
    refs: ObjectRef[object], *, timeout: float | None = None, device: Literal["cpu", "gpu"] | None, copy: bool = False
) -> Any: ...
@overload
def get(
    refs: Sequence[ObjectRef[object]],
    *,
    timeout: float | None = None,
    device: Literal["cpu", "gpu"] | None,
    copy: bool = False,
) -> list[Any]: ...


@published()
def get(
    refs: object, *, timeout: float | None = None, device: Literal["cpu", "gpu"] | None = None, copy: bool = False
) -> Any:
    """Wait for values and return them: one value for a reference, a list of values for a list of references.

    Arrays are read-only: large ones are views of shared memory, where other processes read the same bytes. Writing into
    one raises `ValueError: assignment destination is read-only`; `copy=True` gives arrays that may be written into. Of
    several references the first error that is known is raised at once.

    Args:
        refs: an `ObjectRef` or a list of them. A generator is returned as it is.
        timeout: the most seconds to wait; None waits without a limit, 0 or less does not wait.
        device: where to place arrays of cupy and torch that were on a GPU. "gpu": on this process's current GPU, as
            arrays of their library. "cpu": in host memory, as read-only numpy arrays; this needs neither a GPU nor the
            library. None: "gpu" in tasks and actors, and in a driver that already uses a GPU; else "cpu".
        copy: whether arrays are copies that may be written into.

    Returns:
        The value, or the list of values.

    Raises:
        GetTimeoutError: not all values arrived in time.
        TaskError: a task raised. The error is also an instance of the class that the task raised.
        DeviceUnavailableError: the value holds an array of a GPU, and this process can use no GPU; see `device`.
        MpiRuntimeError: the value does not exist for another reason: a crash, a dead actor, a full object store.
        TypeError: with `device="cpu"`, numpy does not have the element type of an array; or `timeout` is not a number.
        ValueError: `refs` is not a reference or a list of references, or `device` is not one of the above.
    """
    timeout = seconds(timeout)
    if not isinstance(device, str | None) or device not in _READERS:
        raise ValueError(f'get(device={device!r}): it must be None, "cpu" or "gpu"')
    try:
        read = _READERS[device]
        return _get(refs, timeout, serialize.copying(read) if copy else read)
    except MpiRuntimeError as error:
        raise bare(error)


def _get(refs: object, timeout: float | None, read: Callable[..., object]) -> object:
    if type(refs) is ObjectRef:
        refs.check_job()
        return running.client().waiting.get((refs.binary(),), timeout, read)[0]
    if isinstance(refs, ObjectRefGenerator):
        return refs
    if not isinstance(refs, (list, tuple)):
        raise ValueError(
            f"Invalid type of object refs, {type(refs)}, is given. 'refs' must either be an ObjectRef or a list of "
            "ObjectRefs."
        )
    # There may be many: no Python code runs for each, unless one is wrong.
    if set(map(type, refs)) != {ObjectRef} or any(client.has_ended for client in set(map(_CLIENT_OF, refs))):
        for ref in refs:
            if type(ref) is not ObjectRef:
                raise TypeError(
                    f"Invalid type of object refs, {type(ref)}, is given in a list. Each element must be an ObjectRef."
                )
            ref.check_job()
    client, ids = running.client(), list(map(_ID_OF, refs))
    if len(ids) < 2 or "IPython" not in sys.modules:
        return client.waiting.get(ids, timeout, read)
    values = client.references.values
    bar = bars.new("values", lambda: (sum(id in values for id in ids), len(ids)))
    try:
        with bars.shown(client.stalls, bar):
            return client.waiting.get(ids, timeout, read)
    finally:
        if bar is not None:
            bar.turn(is_last=True)


@published()
def put(value: T) -> ObjectRef[T]:
    """Store a value in the object store, so that many calls can use it.

    Args:
        value: any value that can be serialised.

    Returns:
        A reference to the value.

    Raises:
        TypeError: the value cannot be serialised, or is an `ObjectRef`.
        ObjectStoreFullError: the object store has no room for it.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ObjectRef is not allowed: it refers to a stored value already. To store the reference "
            "itself, put it into a list and store that."
        )
    return put_serialized(running.client(), serialize.dumps(value))


@published()
def wait(
    refs: Sequence[Waitable], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Waitable], list[Waitable]]:
    """Wait until some values are ready. A value that is an error is ready.

    Args:
        refs: different references. They may include generators: a generator is ready if `next` would not wait.
        num_returns: how many to wait for.
        timeout: the most seconds to wait; None waits without a limit, 0 does not wait.
        fetch_local: accepted as in Ray, without effect: `get` transfers values.

    Returns:
        Two lists in the order of `refs`: at most `num_returns` references that are ready, and the rest.

    Raises:
        TypeError: `refs` is not a list of references.
        ValueError: a reference is in the list twice, or `num_returns` or `timeout` is out of bounds.
    """
    del fetch_local
    ids, streams = _what_to_wait_for(refs)
    timeout = seconds(timeout)
    if not isinstance(num_returns, int):
        raise TypeError(f"num_returns must be a whole number, not {num_returns!r}")
    if timeout is not None and timeout < 0:
        raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    if not refs:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}.")
    if num_returns > len(refs):
        raise ValueError(f"num_returns cannot be greater than the number of objects: {num_returns} > {len(refs)}")
    waiting = running.client().waiting
    places = waiting.first_ready(ids, num_returns) if not streams else []
    if len(places) == num_returns:  # the frequent case: a loop that takes one at a time
        return _parted(refs, places)
    flags = waiting.wait(ids, num_returns, timeout, streams)
    of_refs, of_generators = iter(flags), iter(flags[len(ids) :])
    ready: list[Waitable] = []
    rest: list[Waitable] = []
    for ref in refs:
        flag = next(of_refs if type(ref) is ObjectRef else of_generators)
        (ready if flag and len(ready) < num_returns else rest).append(ref)
    return ready, rest


def _parted(refs: Sequence[Waitable], places: list[int]) -> tuple[list[Waitable], list[Waitable]]:
    rest: list[Waitable] = []
    begin = 0
    for place in places:
        rest += refs[begin:place]
        begin = place + 1
    rest += refs[begin:]
    return [refs[place] for place in places], rest


def _what_to_wait_for(refs: object) -> tuple[list[bytes], list[bytes]]:
    """The ids of the references, and the ids of the generators' calls.

    Raises:
        TypeError: `refs` is not a list of references.
        ValueError: a reference is in the list twice.
    """
    if isinstance(refs, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"wait() expected a list of ObjectRef, got a single {type(refs).__name__}")
    if not isinstance(refs, (list, tuple)):
        raise TypeError(f"wait() expected a list of ObjectRef, got {type(refs)}")
    ids: list[bytes] = []
    streams: list[bytes] = []
    if set(map(type, refs)) == {ObjectRef}:  # there may be many: no Python code runs for each
        ids, clients = list(map(_ID_OF, refs)), set(map(_CLIENT_OF, refs))
        if len(set(ids)) == len(ids) and not any(client.has_ended for client in clients):
            return ids, streams
        ids.clear()
    for ref in refs:
        if type(ref) is ObjectRef:
            ref.check_job()
            ids.append(ref.binary())
        elif type(ref) is ObjectRefGenerator:
            ref.completed().check_job()
            streams.append(ref.completed().binary())
        else:
            raise TypeError(f"wait() expected a list of ObjectRef, got a list that contains {type(ref)}")
    if len(set(ids)) + len(set(streams)) != len(refs):
        raise ValueError("Wait requires a list of unique object refs.")
    return ids, streams
