"""An executor as in `concurrent.futures` that runs calls as tasks of the job.

from concurrent.futures import as_completed
from mpi_runtime.util.futures import Executor

with Executor() as executor:
    for future in as_completed([executor.submit(pow, n, 2) for n in range(100)]):
        print(future.result())
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from mpi_runtime import ObjectRef, cluster_resources, get, put, remote
from mpi_runtime.errors.arguments import PROCESSES_MAX, check_whole
from mpi_runtime.extend import BlockingFuture, job
from mpi_runtime.scheduler.protocol.questions import Explain
from mpi_runtime.util.background_calls import Dispatcher
from mpi_runtime.util.pool_process import Initializer, PoolProcess

P = ParamSpec("P")
T = TypeVar("T")

_IN_FLIGHT_PER_CPU = 2
"""Calls in the runtime for each CPU: one runs, one waits. The others can still be cancelled."""


def _call(function: Callable[..., T], /, *args: object, **kwargs: object) -> T:
    return function(*args, **kwargs)


def _map(function: Callable[..., T], arguments: list[tuple[object, ...]]) -> list[T]:
    return list(itertools.starmap(function, arguments))


_prepared: dict[bytes, PoolProcess] = {}
"""In executors: the processes of pools whose initializer has run here, by the id of the initializer."""


def _call_prepared(
    setup: list[ObjectRef[Initializer]], function: Callable[..., T], /, *args: Any, **kwargs: object
) -> T | list[T]:
    """Make a call, after the initializer if it has not run in this process. The list keeps its reference one."""
    process = _prepared.get(key := setup[0].binary())
    if process is None:
        _forget_ended()
        try:
            process = _prepared[key] = PoolProcess(get(setup[0]))
        except Exception as error:
            raise concurrent.futures.BrokenExecutor(f"the initializer has failed: {error!r}") from error
    return process.starmap(*args) if function is _map else process.apply(function, args, kwargs)


def _forget_ended() -> None:
    """Forget pools that have ended, with the variables of their initializers: nobody has a reference to these."""
    questions = job().questions
    for key in list(_prepared):
        if questions.ask(Explain(key)).state == "unknown":
            del _prepared[key]


_open: weakref.WeakSet[Dispatcher[int]] = weakref.WeakSet()
"""The dispatchers of the executors that this process has made."""


@functools.cache
def _wait_at_end() -> None:
    """From now on the end of the program waits for calls of executors, as the end of `concurrent.futures` does.

    A function of `atexit` would be too late: from Python 3.12 on no thread can begin then.
    """
    threading._register_atexit(_finish)  # type: ignore[attr-defined]  # as `concurrent.futures` does itself


def _finish() -> None:
    """Take no more calls, and wait for those that there are. After Ctrl-C nobody waits."""
    for dispatcher in list(_open):
        dispatcher.close()
        if getattr(sys, "last_type", None) is KeyboardInterrupt:
            dispatcher.cancel_waiting()
        else:
            dispatcher.join()


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of this many items; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _flat(lists: Iterable[list[T]]) -> Iterator[T]:
    """The items of all lists. What was returned is not kept."""
    for one in lists:
        one.reverse()
        while one:
            yield one.pop()


class Executor(concurrent.futures.Executor):
    """A `concurrent.futures.Executor` that runs calls as tasks of the job.

    The futures work with `concurrent.futures.wait` and `as_completed`, and with asyncio's `wrap_future` and
    `run_in_executor`. Their callbacks run in a thread of this process. Errors of the function are raised unchanged,
    with the remote traceback as their `__cause__`. If the process of a call dies more often than `max_retries` allows,
    the future fails with `WorkerCrashedError`. Arrays in results may be read-only. The end of the program waits for all
    futures, unless it was interrupted by Ctrl-C.

    An executor cannot be passed to a call: make another one there. A task that waits in `result`, `exception` or
    `shutdown` lends its CPU, as in `get`. In `concurrent.futures.wait`, `as_completed` and `await` it does not: if
    tasks that wait this way hold all CPUs, nothing progresses.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[object] = (),
        **options: object,
    ) -> None:
        """Use the running job. Without a job, one with defaults is started.

        Args:
            max_workers: the largest number of calls in the runtime, running or waiting for resources. The others can be
                cancelled. None: twice the CPUs of the job.
            initializer: called as `initializer(*initargs)` in each process before its first call. If it raises, the
                calls there fail with `concurrent.futures.BrokenExecutor`.
            initargs: its arguments.
            **options: options of the tasks, as for `remote`: `num_cpus`, `num_gpus`, `resources`, `max_retries` and
                others.

        Raises:
            ValueError: `max_workers` is below 1, or an option does not exist.
            TypeError: an option is of the wrong type, or the initializer is not callable.
        """
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be callable, not {initializer!r}")
        if max_workers is None:
            max_workers = max(1, _IN_FLIGHT_PER_CPU * int(cluster_resources().get("CPU", 0)))
        check_whole("max_workers", max_workers, 1, PROCESSES_MAX)
        if options.get("num_returns", 1) != 1:
            raise ValueError("num_returns must be 1: a future has one result")
        self._task: Any = remote(_call if initializer is None else _call_prepared).options(**options)
        self._dispatcher = Dispatcher("executor", range(max_workers))
        _wait_at_end()
        _open.add(self._dispatcher)
        self._setup = () if initializer is None else ([put((initializer, tuple(initargs)))],)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Submit the call `fn(*args, **kwargs)`.

        The arguments are serialised when the runtime gets the call, which may be later. An `ObjectRef` among them
        stands for its value. If they cannot be serialised, the future fails with `TypeError`.

        Returns:
            A future. It can be cancelled until the runtime gets the call.

        Raises:
            RuntimeError: the executor was shut down.
        """
        future: concurrent.futures.Future[T] = BlockingFuture()
        self._dispatcher.submit(future, lambda _: self._task.remote(*self._setup, fn, *args, **kwargs))
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[object], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Like the built-in `map`, but all calls are submitted at once and run in parallel.

            for total in executor.map(sum, [[1, 2], [3, 4]], chunksize=2): ...

        Args:
            fn: the function. It is serialised once.
            *iterables: the arguments, read to the end of the shortest before `map` returns. An `ObjectRef` among them
                stays a reference.
            timeout: the most seconds from now until the last result; None waits without a limit. `map` itself reads and
                submits all arguments first, however long that takes, as in `concurrent.futures`.
            chunksize: the number of calls in one task.

        Returns:
            The results in the order of the arguments. The iteration raises the error of a call, or
            `concurrent.futures.TimeoutError`; calls that have not started are then cancelled.

        Raises:
            RuntimeError: the executor was shut down.
            ValueError: `chunksize` is below 1.
            TypeError: `fn` cannot be serialised.
        """
        check_whole("chunksize", chunksize, 1)
        lists = super().map(
            _map, itertools.repeat(put(fn)), _chunks(zip(*iterables, strict=False), chunksize), timeout=timeout
        )
        return _flat(lists)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. May be called again. The end of a `with` block does this, and waits.

        Args:
            wait: return when all futures are done; otherwise at once. In a callback of a future it never waits.
            cancel_futures: cancel calls that the runtime does not have yet. The others run to their end.
        """
        self._dispatcher.close()
        if cancel_futures:
            self._dispatcher.cancel_waiting()
        if wait:
            self._dispatcher.join()
