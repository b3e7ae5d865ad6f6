"""A pool as in the standard library's `multiprocessing`, with actors of the job as its processes.

from mpi_runtime.util.multiprocessing import Pool

def square(x):
    return x * x

with Pool() as pool:
    print(pool.map(square, range(100)))
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import current_process as current_process
from multiprocessing import freeze_support as freeze_support
from typing import Any, NoReturn, TypeVar

from mpi_runtime import ActorHandle, ObjectRef, cluster_resources, get, kill, put, remote
from mpi_runtime.errors import ActorError, MpiRuntimeError, TaskError
from mpi_runtime.errors.arguments import PROCESSES_MAX, check_whole
from mpi_runtime.show.numbers import plural
from mpi_runtime.util.background_calls import Dispatcher, Pending
from mpi_runtime.util.pool_process import PoolProcess
from mpi_runtime.util.pool_results import AsyncResult, IMapIterator, TimeoutError, Work, terminated

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError", "cpu_count"]

S = TypeVar("S")
T = TypeVar("T")

_CHUNKS_PER_PROCESS = 4
"""The number of chunks for each process in `map`. Fewer make processes wait for the last one; more cost messages."""
_AHEAD_PER_PROCESS = 4
"""The number of chunks of `imap` that have started and were not read."""

_PROCESSES_PER_CPU = 256
_PROCESSES_LEAST = 1024
"""However few CPUs there are, a pool may have this many processes."""

_RUNNING, _CLOSED, _TERMINATED = "running", "closed", "terminated"


class _Slot:
    """A process of the pool: an actor, which is replaced when it has died or served its time."""

    def __init__(self, make: Callable[[], ActorHandle], tasks_max: float) -> None:
        self._make = make
        self._tasks_max = tasks_max
        self._tasks = 0
        self._actor: ActorHandle | None = make()
        self._lock = threading.Lock()
        self._is_killed = False

    def call(self, method: str, function: object, *args: object) -> ObjectRef[object]:
        with self._lock:
            if self._is_killed:
                raise terminated()
            if self._actor is None:
                self._actor = self._make()
            actor = self._actor
        ref: ObjectRef[object] = getattr(actor, method).remote(function, *args)
        return ref

    def ready(self) -> ObjectRef[object]:
        """Return a reference that is ready when the initializer has run."""
        assert self._actor is not None
        ref: ObjectRef[object] = self._actor.__getattr__("__ray_ready__").remote()
        return ref

    def ended(self, error: BaseException | None) -> None:
        """Note that a call has ended."""
        with self._lock:
            self._tasks += 1
            # User code may have raised the error of another actor: that is not about this process.
            is_dead = isinstance(error, ActorError) and not isinstance(error, TaskError)
            if is_dead or self._tasks >= self._tasks_max:
                self._actor, self._tasks = None, 0

    def dismiss(self) -> None:
        """Release the actor, which then ends."""
        with self._lock:
            self._actor = None

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            actor, self._actor = self._actor, None
        if actor is not None:
            kill(actor)


def cpu_count() -> int:
    """Return the number of CPUs of the job, at least 1: `Pool()` has this many processes.

    Without a job, one with defaults is started.
    """
    return max(1, int(cluster_resources().get("CPU", 1)))


class Pool:
    """A pool of processes on all nodes of the job, with the interface and meaning of `multiprocessing.Pool`.

    Besides: if a process dies, its call raises `ActorDiedError`, and the process is replaced. Errors of functions have
    the remote traceback as their `__cause__`. After `terminate` unfinished results raise `TaskCancelledError`. Arrays
    in results may be read-only.

    Each process has its own global variables. A function of the main program brings the global variables that it uses,
    with their present values, when it first arrives in a process. Later calls see the changes of earlier calls.

    A pool should be closed or terminated, or used in a `with` block, which terminates it.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[object] = (),
        maxtasksperchild: int | None = None,
        context: object = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, object] | None = None,
    ) -> None:
        """Start the processes in the running job. Without a job, one with defaults is started.

        Args:
            processes: the number of processes; None: one for each CPU of the job.
            initializer: called as `initializer(*initargs)` in each process first. The constructor waits for it. In
                a process that replaces another, an error of it is raised by the calls sent there, as `ActorDiedError`.
            initargs: its arguments.
            maxtasksperchild: the number of tasks (chunks of calls) after which a process is replaced; None: no limit.
            context: accepted as in the standard library, without effect.
            ray_address: accepted as in Ray: None, "local" or "auto", without effect.
            ray_remote_args: options of the actors, as for `remote`: `num_gpus`, `resources` and others. Without
                `num_cpus` they hold no CPU, so there may be more of them than CPUs.

        Raises:
            ValueError: `processes` or `maxtasksperchild` is below 1, an option does not exist, or there is an address;
                or there would be more than 1024 processes, and more than 256 for each CPU of the job.
            TypeError: the initializer is not callable, or cannot be serialised.
            ActorDiedError: the initializer raised. The message has its traceback.
        """
        del context
        if ray_address not in (None, "local", "auto"):
            raise ValueError(
                f"ray_address={ray_address!r}: an MPI job has no address. Omit it: the pool is of this job."
            )
        cpus = cpu_count()
        if processes is None:
            processes = cpus
        check_whole("processes", processes, 1, PROCESSES_MAX)
        if processes > max(_PROCESSES_LEAST, _PROCESSES_PER_CPU * cpus):
            raise ValueError(
                f"processes={processes}: the job has {plural(cpus, 'CPU')}, and a pool at most {_PROCESSES_PER_CPU} "
                f"processes for each, or {_PROCESSES_LEAST}. It is the number of processes, not of calls: `map` "
                "divides any number of calls among them."
            )
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild < 1):
            raise ValueError(f"maxtasksperchild must be a whole number, at least 1, or None, not {maxtasksperchild!r}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be callable, not {initializer!r}")
        actor = remote(PoolProcess).options(**(ray_remote_args or {}))
        make = partial(actor.remote, None if initializer is None else put((initializer, tuple(initargs))))
        self._slots = [_Slot(make, maxtasksperchild or math.inf) for _ in range(processes)]
        if initializer is not None:
            try:
                get([slot.ready() for slot in self._slots])
            except BaseException:
                for slot in self._slots:
                    slot.kill()
                raise
        self._dispatcher = Dispatcher("pool", self._slots, _Slot.ended)
        self._state = _RUNNING
        self._terminated = threading.Event()
        self._lock = threading.Lock()
        self._iterators: weakref.WeakSet[IMapIterator[Any]] = weakref.WeakSet()  # their threads keep them

    def apply(self, func: Callable[..., T], args: Iterable[object] = (), kwds: Mapping[str, object] | None = None) -> T:
        """Call `func(*args, **kwds)` in one of the processes, and wait for the result.

        Raises:
            ValueError: the pool is not running.
            Exception: the error of the call.
        """
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., T],
        args: Iterable[object] = (),
        kwds: Mapping[str, object] | None = None,
        callback: Callable[[T], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[T]:
        """Submit the call `func(*args, **kwds)`, and return at once.

        Args:
            callback: called with the result, in the one thread of this process that serves all results.
            error_callback: called with the exception if there is one, in the same thread.

        Raises:
            ValueError: the pool is not running.
        """
        if not isinstance(kwds, Mapping | None):
            raise TypeError(f"kwds must be a dictionary of keyword arguments, not {kwds!r}")
        work = ("apply", func, tuple(args), dict(kwds or {}))
        return self._submit_all([work], lambda results: results[0], callback, error_callback)

    def map(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int | None = None) -> list[T]:
        """Call `func(item)` for each item, and return the results in order.

        Args:
            iterable: the items; read to its end first.
            chunksize: the number of items in a chunk; None: a fourth of each process's share.

        Raises:
            ValueError: the pool is not running, or `chunksize` is below 1.
            TypeError: the function cannot be serialised.
            Exception: the error of a call; of several the first in order, when all calls have ended.
        """
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[S], T],
        iterable: Iterable[S],
        chunksize: int | None = None,
        callback: Callable[[list[T]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[T]]:
        """Like `map`, but return at once. The callbacks are those of `apply_async`: they get the list, or one error."""
        return self._map_async("map", func, iterable, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., T], iterable: Iterable[Iterable[object]], chunksize: int | None = None
    ) -> list[T]:
        """Like `map`, with calls `func(*item)`."""
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[object]],
        chunksize: int | None = None,
        callback: Callable[[list[T]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[T]]:
        """Like `map_async`, with calls `func(*item)`."""
        return self._map_async("starmap", func, iterable, chunksize, callback, error_callback)

    def imap(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int = 1) -> IMapIterator[T]:
        """Like `map`, but return an iterator over the results. The iterable may be endless.

        Args:
            iterable: the items. Another thread reads them, some chunks for each process ahead of the results that were
                read. After `join` it reads all.
            chunksize: the number of items in a chunk. They succeed or fail together.

        Raises:
            ValueError: the pool is not running, or `chunksize` is below 1.
            TypeError: the function cannot be serialised.
        """
        return self._imap(func, iterable, chunksize, is_ordered=True)

    def imap_unordered(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int = 1) -> IMapIterator[T]:
        """Like `imap`, but the results are in the order in which the calls end."""
        return self._imap(func, iterable, chunksize, is_ordered=False)

    def close(self) -> None:
        """Accept no more calls. Submitted calls run to their end."""
        with self._lock:
            if self._state == _RUNNING:
                self._state = _CLOSED

    def terminate(self) -> None:
        """Kill the processes at once.

        Unfinished results raise `TaskCancelledError`. Their callbacks are not called.
        """
        with self._lock:
            self._state = _TERMINATED
        self._terminated.set()
        self._dispatcher.close()
        for iterator in list(self._iterators):
            iterator._stop()
        self._dispatcher.cancel_waiting()
        for slot in self._slots:
            # The job may have ended before the pool, and its processes with it.
            with suppress(MpiRuntimeError):
                slot.kill()

    def join(self) -> None:
        """Wait until all calls have ended, then end the processes.

        Raises:
            ValueError: neither `close` nor `terminate` was called before.
        """
        if self._state == _RUNNING:
            raise ValueError("The pool is still running: call close() or terminate() before join()")
        for iterator in list(self._iterators):
            iterator._feed_all()
        self._dispatcher.join()
        for slot in self._slots:
            slot.dismiss()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("a pool cannot be passed to another process; make one there")

    def _check_running(self) -> None:
        if self._state != _RUNNING:
            raise ValueError(f"The pool is not running: it was {self._state}")

    def _submit_all(
        self,
        works: list[Work],
        assemble: Callable[[list[Any]], T],
        callback: Callable[[T], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> AsyncResult[T]:
        """Submit calls of methods of the actors, each to any of them."""
        self._check_running()
        for name, one in (("callback", callback), ("error_callback", error_callback)):
            if one is not None and not callable(one):
                raise TypeError(f"{name} must be callable, not {one!r}")
        futures: list[Pending] = [Future() for _ in works]
        result = AsyncResult(assemble, futures, self._terminated, callback, error_callback)
        for future, work in zip(futures, works, strict=True):
            self._submit(future, work)
        return result

    def _submit(self, future: Pending, work: Work) -> None:
        try:
            self._dispatcher.submit(future, lambda slot: slot.call(*work))
        except RuntimeError:  # terminated since the check above
            future.cancel()

    def _map_async(
        self,
        method: str,
        func: Callable[..., T],
        iterable: Iterable[object],
        chunksize: int | None,
        callback: Callable[[list[T]], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> AsyncResult[list[T]]:
        self._check_running()
        items = list(iterable)
        if chunksize is None:
            chunksize = max(1, math.ceil(len(items) / (_CHUNKS_PER_PROCESS * len(self._slots))))
        works = list(_works(method, func, items, chunksize))
        return self._submit_all(works, lambda lists: list(itertools.chain(*lists)), callback, error_callback)

    def _imap(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int, is_ordered: bool) -> IMapIterator[T]:
        self._check_running()
        works = _works("map", func, iterable, chunksize)
        iterator: IMapIterator[T] = IMapIterator(self._submit, works, is_ordered, _AHEAD_PER_PROCESS * len(self._slots))
        self._iterators.add(iterator)
        return iterator


def _works(method: str, func: Callable[..., object], items: Iterable[object], size: int) -> Iterator[Work]:
    """The items in chunks, each with its function, which is serialised once."""
    check_whole("chunksize", size, 1)
    shared, iterator = put(func), iter(items)
    return ((method, shared, chunk) for chunk in iter(lambda: list(itertools.islice(iterator, size)), []))
