"""An actor that runs several calls at a time: in threads, or in asyncio loops if it has coroutines.

Each concurrency group has its own limit and its own loop. Calls of one group start in the order of their arrival.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mpi_runtime.core.client import scope
from mpi_runtime.core.client.scope import Scope
from mpi_runtime.scheduler.protocol.effects import Entry
from mpi_runtime.scheduler.protocol.events import ActorSpec, Call, Spec
from mpi_runtime.scheduler.protocol.ids import attempt_of

if TYPE_CHECKING:
    from mpi_runtime.core.executor.results import Results
    from mpi_runtime.core.executor.yields import Yields

Work = tuple[Spec, Call, list[Entry]]


Perform = Callable[[Spec, Call, list[Entry]], object]
"""Runs user code, and returns its result."""


class Lanes:
    """Runs calls of one actor concurrently."""

    def __init__(
        self,
        perform: Perform,
        yields: Yields,
        results: Results,
        specs: dict[int, Spec],
        name: str,
        actor: ActorSpec,
    ) -> None:
        self._results = results
        self._specs = specs
        self._name = name
        kind = _Coroutines if actor.is_async else _Threads
        self._groups = {name: kind(perform, yields, results, limit) for name, limit in actor.concurrency.items()}

    def call(self, function: Callable[..., object], *args: object) -> object:
        """Return the result of a function. If the actor has coroutines, it runs in the loop of the default group."""
        group = self._groups[""]
        return group.run(function, *args) if isinstance(group, _Coroutines) else function(*args)

    def put(self, call: Call, arguments: list[Entry]) -> None:
        """Run a call as soon as its group has room."""
        spec = self._specs[call.spec]
        group = self._groups.get(spec.group)
        if group is not None:
            group.put((spec, call, arguments))
            return
        known = ", ".join(repr(name) for name in self._groups if name) or "none"
        error = ValueError(f"{self._name} has no concurrency group {spec.group!r}; it has: {known}")
        self._results.failed(spec, call, time.monotonic_ns() // 1000, error)

    def cancel(self, attempts: Sequence[bytes]) -> None:
        """Cancel those of these attempts that are running coroutines."""
        for group in self._groups.values():
            group.cancel(attempts)


class _Threads:
    """A group whose calls run in threads, up to a limit. Threads start when needed, and end with the process."""

    def __init__(self, perform: Perform, yields: Yields, results: Results, limit: int) -> None:
        self._perform = perform
        self._results = results
        self._limit = limit
        self._waiting: SimpleQueue[Work] = SimpleQueue()
        self._free = threading.Semaphore(0)
        """Counts the threads that wait for a call."""
        self._made = 0

    def put(self, work: Work) -> None:
        self._waiting.put(work)
        if not self._free.acquire(blocking=False) and self._made < self._limit:
            self._made += 1
            threading.Thread(target=self._serve, name=f"mpi_runtime lane {self._made}", daemon=True).start()

    def cancel(self, attempts: Sequence[bytes]) -> None:
        """Do nothing: threads cannot be interrupted, and a call that has not started is checked when it does."""

    def _serve(self) -> None:
        while True:
            spec, call, arguments = self._waiting.get()
            scope.beside.set(Scope(call.id, call.attempt, call, spec.name))
            saver = self._results.saver
            if saver is not None:
                saver.begins()
            start_us = time.monotonic_ns() // 1000
            try:
                result = self._perform(spec, call, arguments)
            except BaseException as error:
                self._results.failed(spec, call, start_us, error)
            else:
                self._results.ended(spec, call, start_us, result)
                del result
            if saver is not None:
                saver.ends()
            del spec, call, arguments
            self._free.release()


class _Coroutines:
    """A group whose calls run in an asyncio loop, up to a limit. A method that is not a coroutine blocks the loop.

    The loop is the group's own, in a thread of its own, so that such a method blocks no other group.
    """

    def __init__(self, perform: Perform, yields: Yields, results: Results, limit: int) -> None:
        self._perform = perform
        self._yields = yields
        self._results = results
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(limit)
        self._tasks: dict[bytes, tuple[asyncio.Task[None], Scope]] = {}
        """Tasks that have begun. One that is cancelled before would never send its end."""
        threading.Thread(target=self._serve, name="mpi_runtime asyncio", daemon=True).start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:  # user code may stop the loop
            try:
                self._loop.run_forever()
            except SystemExit as request:  # noqa: PERF203  (of a callback, or of a task that user code has created)
                self._results.exits(request)
            except KeyboardInterrupt:
                continue

    def put(self, work: Work) -> None:
        self._loop.call_soon_threadsafe(self._start, work)

    def run(self, function: Callable[..., object], *args: object) -> object:
        """Call a function in the loop, from another thread, and return its result."""

        async def call() -> tuple[object, BaseException | None]:
            try:
                result = function(*args)
                return (await result if inspect.iscoroutine(result) else result), None
            except BaseException as error:  # SystemExit would end the loop
                return None, error

        result, error = asyncio.run_coroutine_threadsafe(call(), self._loop).result()
        if error is not None:
            raise error
        return result

    def _start(self, work: Work) -> None:
        self._loop.create_task(self._run(*work))

    async def _run(self, spec: Spec, call: Call, arguments: list[Entry]) -> None:
        task = asyncio.current_task()
        assert task is not None
        attempt = attempt_of(call.id, call.attempt)
        own = Scope(call.id, call.attempt, call, spec.name)
        self._tasks[attempt] = task, own
        scope.beside.set(own)
        start_us = time.monotonic_ns() // 1000
        saver = None
        try:
            async with self._room:
                if (saver := self._results.saver) is not None:
                    saver.begins()
                start_us = time.monotonic_ns() // 1000
                result = self._perform(spec, call, arguments)
                result = await self._yields.all_of_async(spec, call, result)
        except BaseException as error:
            self._results.failed(spec, call, start_us, error)
        else:
            self._results.ended(spec, call, start_us, result)
        finally:
            del self._tasks[attempt]
            if saver is not None:
                saver.ends()

    def cancel(self, attempts: Sequence[bytes]) -> None:
        for attempt in attempts:
            self._loop.call_soon_threadsafe(self._cancel, attempt)

    def _cancel(self, attempt: bytes) -> None:
        if attempt in self._tasks:
            task, own = self._tasks[attempt]
            own.clean_up()
            task.cancel()
