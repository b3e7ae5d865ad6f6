"""An actor that takes several calls at a time: in threads, or, when it has coroutines, in asyncio loops.

Each concurrency group has a limit of its own, and a loop of its own. Calls of one group start in the order in which
they came.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from mpi_runtime.client import scope
from mpi_runtime.client.scope import Scope
from mpi_runtime.scheduler.events import Call, Spec
from mpi_runtime.scheduler.ids import attempt_of

Work = tuple[Spec, Call, list[Any]]


class Saves(Protocol):
    """What saves the state of the actor."""

    def begins(self) -> None:
        """A call begins, and others may run."""

    def ends(self) -> None:
        """A call has ended, and its end was said."""


class Runs(Protocol):
    """What runs the calls: the executor."""

    def perform(self, spec: Spec, call: Call, arguments: list[Any]) -> Any:
        """Run user code: what it returns."""

    async def complete(self, spec: Spec, call: Call, result: Any) -> Any:
        """Wait for what coroutines return, and send what generators yield: what is left."""

    def ended(self, spec: Spec, call: Call, start_us: int, result: Any) -> None:
        """User code has returned."""

    def failed(self, spec: Spec, call: Call, start_us: int, error: BaseException) -> None:
        """User code has raised."""


class Lanes:
    """Runs the calls of one actor beside each other."""

    def __init__(self, executor: Runs, specs: dict[int, Spec], creation: Spec) -> None:
        self._executor = executor
        self._specs = specs
        self._creation = creation
        self.saver: Saves | None = None
        """Of an actor whose state is saved."""
        # Each group of coroutines has a loop of its own: who holds it up holds up no others.
        make = (
            (lambda n: _Loop(executor).group(n, self)) if creation.is_async else (lambda n: _Threads(executor, n, self))
        )
        self._groups: dict[str, _Threads | _Coroutines] = {
            name: make(limit) for name, limit in creation.concurrency.items()
        }

    def construct(self, cls: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """An instance of a class whose constructor is a coroutine: it is awaited in the loop of the default group."""
        actor = cls.__new__(cls, *positional, **named) if cls.__new__ is not object.__new__ else object.__new__(cls)
        group = self._groups[""]
        assert isinstance(group, _Coroutines)
        group.run(cls.__init__(actor, *positional, **named))
        return actor

    def put(self, call: Call, arguments: list[Any]) -> None:
        """Run a call as soon as its group has room."""
        spec = self._specs[call.spec]
        group = self._groups.get(spec.group)
        if group is not None:
            group.put((spec, call, arguments))
            return
        known = ", ".join(repr(name) for name in self._groups if name) or "none"
        error = ValueError(f"{self._creation.name} has no concurrency group {spec.group!r}; it has: {known}")
        self._executor.failed(spec, call, time.monotonic_ns() // 1000, error)

    def cancel(self, attempts: Sequence[bytes]) -> None:
        """Interrupt those of the attempts of calls that are coroutines under way."""
        for group in self._groups.values():
            group.cancel(attempts)


class _Threads:
    """Up to so many calls, each in a thread. Threads are made as they are needed, and end with the process."""

    def __init__(self, executor: Runs, limit: int, lanes: Lanes) -> None:
        self._executor = executor
        self._lanes = lanes
        self._limit = limit
        self._waiting: SimpleQueue[Work] = SimpleQueue()
        self._free = threading.Semaphore(0)
        """How many threads wait for a call that nobody has given them yet."""
        self._made = 0

    def put(self, work: Work) -> None:
        self._waiting.put(work)
        if not self._free.acquire(blocking=False) and self._made < self._limit:
            self._made += 1
            threading.Thread(target=self._serve, name=f"mpi_runtime lane {self._made}", daemon=True).start()

    def cancel(self, attempts: Sequence[bytes]) -> None:
        """A thread cannot be interrupted; calls that have not started are looked at when they are."""

    def _serve(self) -> None:
        while True:
            spec, call, arguments = self._waiting.get()
            scope.beside.set(Scope(call.id, call.attempt, call, spec.name))
            saver = self._lanes.saver
            if saver is not None:
                saver.begins()
            start_us = time.monotonic_ns() // 1000
            try:
                result = self._executor.perform(spec, call, arguments)
            except BaseException as error:
                self._executor.failed(spec, call, start_us, error)
            else:
                self._executor.ended(spec, call, start_us, result)
                del result
            if saver is not None:
                saver.ends()
            del spec, call, arguments
            self._free.release()


class _Loop:
    """An asyncio loop in a thread of its own."""

    def __init__(self, executor: Runs) -> None:
        self._executor = executor
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="mpi_runtime asyncio", daemon=True).start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def group(self, limit: int, lanes: Lanes) -> _Coroutines:
        return _Coroutines(self._executor, self._loop, limit, lanes)


class _Coroutines:
    """Up to so many calls under way in the loop. Methods that are no coroutines hold it up while they run."""

    def __init__(self, executor: Runs, loop: asyncio.AbstractEventLoop, limit: int, lanes: Lanes) -> None:
        self._executor = executor
        self._lanes = lanes
        self._loop = loop
        self._room = asyncio.Semaphore(limit)
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        """Those that have begun: one that is cancelled before would never say how it ended."""

    def put(self, work: Work) -> None:
        self._loop.call_soon_threadsafe(self._start, work)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run one to its end, from outside of the loop."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _start(self, work: Work) -> None:
        self._loop.create_task(self._run(*work))

    async def _run(self, spec: Spec, call: Call, arguments: list[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        attempt = attempt_of(call.id, call.attempt)
        self._tasks[attempt] = task
        scope.beside.set(Scope(call.id, call.attempt, call, spec.name))
        start_us = time.monotonic_ns() // 1000
        saver = None
        try:
            async with self._room:
                if (saver := self._lanes.saver) is not None:
                    saver.begins()
                start_us = time.monotonic_ns() // 1000
                result = self._executor.perform(spec, call, arguments)
                result = await self._executor.complete(spec, call, result)
        except BaseException as error:
            self._executor.failed(spec, call, start_us, error)
        else:
            self._executor.ended(spec, call, start_us, result)
        finally:
            del self._tasks[attempt]
            if saver is not None:
                saver.ends()

    def cancel(self, attempts: Sequence[bytes]) -> None:
        for attempt in attempts:
            self._loop.call_soon_threadsafe(self._cancel, attempt)

    def _cancel(self, attempt: bytes) -> None:
        task = self._tasks.get(attempt)
        if task is not None:
            task.cancel()
