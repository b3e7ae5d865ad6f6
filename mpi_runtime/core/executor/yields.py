"""Items that calls yield: sent one by one with "streaming", put into the store with "dynamic".

With back-pressure an executor waits until enough items have been consumed before it continues.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator, Iterator
from typing import Any, TypeGuard

from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.generators import DynamicObjectRefGenerator
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.client.submitting import put_written
from mpi_runtime.core.executor.cancels import Cancels
from mpi_runtime.core.executor.results import Results, Written
from mpi_runtime.core.objects import serialize
from mpi_runtime.scheduler.protocol.events import DYNAMIC, STREAMING, Call, Spec, TaskSpec, Value, Yielded

DEMAND_PAUSE_S = 0.002
"""Seconds between two checks of an asynchronous generator whether it may continue."""


class Yields:
    """The items of the calls of one executor."""

    def __init__(self, client: Client, cancels: Cancels, results: Results) -> None:
        self._client = client
        self._cancels = cancels
        self._results = results
        self._emitting = b""
        self._emitted = 0
        """How often the call of `_emitting` has."""

    def emit(self, item: object) -> bool:
        """Send an item of the running task. Return whether any more are wanted.

        With back-pressure it waits until the item was taken. The CPU is not lent meanwhile: the answer arrives soon.

        Raises:
            RuntimeError: the running call is not a task that streams.
        """
        call = self._client.scopes.current().call
        spec = None if call is None else self._client.feed.specs[call.spec]
        if call is None or spec is None or not isinstance(spec.kind, TaskSpec) or spec.num_returns != STREAMING:
            raise RuntimeError(
                "emit() was called outside of a task with num_returns='streaming'. Call such a task as "
                "f.options(num_returns='streaming').remote(), with f decorated with @emits."
            )
        feed = self._client.feed
        if self._emitting != call.id:
            self._begin(call)
        index = self._emitted
        self._give(spec, call, index, item)
        self._emitted = index + 1
        if spec.backpressure:
            self._wait_for_demand(spec, call, index + 1, None, lends=False)
        self._client.outbox.flush()  # items sent before a process dies count
        return not feed.is_abandoned(call.id)

    def all_of(self, spec: Spec, call: Call, result: object) -> object:
        """Return the result of user code. Send the items of a generator, or put them and return references."""
        if _is_to_come(result) or hasattr(result, "__aiter__"):
            return result  # not here: see `all_of_async`
        if spec.num_returns >= 0:
            return self._first(spec, call, result) if inspect.isgenerator(result) and spec.num_returns else result
        items = self._items(spec, result)
        is_alone = isinstance(spec.kind, TaskSpec)  # and may have emitted before it yields
        if not is_alone:
            self._client.feed.begins_to_yield(call.id)
        elif self._emitting != call.id:
            self._begin(call)
        index = 0
        try:
            if spec.num_returns == DYNAMIC:
                return self._dynamic(spec, call, items)
            for item in items:
                if is_alone:
                    index = self._emitted
                    self._emitted += 1
                self._give(spec, call, index, item)
                del item  # else it would be in memory until the next one is made
                index += 1
                if spec.backpressure:
                    self._wait_for_demand(spec, call, index, None)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            self._client.feed.ends_yielding(call.id)
            if is_alone:
                self._emitting = b""
        return None

    def _begin(self, call: Call) -> None:
        feed = self._client.feed
        if self._emitting:
            feed.ends_yielding(self._emitting)  # it raised after it had emitted
        feed.begins_to_yield(call.id)
        self._emitting, self._emitted = call.id, 0

    def _first(self, spec: Spec, call: Call, items: Generator[object, Any, object]) -> Written:
        """Return the first `num_returns` items of a generator. If it raises, each item from there on is the error."""
        values = Written()
        try:
            for item in items:
                values.append(self._written(spec, item))
                del item
                if len(values) == spec.num_returns:
                    return values
            raise ValueError(f"{spec.name} yielded {len(values)} values, but num_returns is {spec.num_returns}")
        except BaseException as error:
            if self._results.fails(spec, call, error):
                self._client.store.abandon(values)
                raise
            while len(values) < spec.num_returns:
                values.append(self._results.error_of(call, spec, error))
            return values
        finally:
            items.close()

    def _dynamic(self, spec: Spec, call: Call, items: Iterator[object]) -> DynamicObjectRefGenerator[object]:
        """Return references to all items. If the generator raises, the last item is the error."""
        refs: list[ObjectRef[object]] = []
        try:
            for item in items:
                refs.append(self._put(spec, item))
                del item
        except BaseException as error:
            if self._results.fails(spec, call, error):
                raise
            refs.append(put_written(self._client, self._results.error_of(call, spec, error)))
        return DynamicObjectRefGenerator(refs)

    def _items(self, spec: Spec, result: Any) -> Iterator[object]:
        try:
            return iter(result)
        except TypeError:
            wanted = "streaming" if spec.num_returns == STREAMING else "dynamic"
            raise TypeError(
                f"{spec.name} was called with num_returns={wanted!r}, and returned {type(result).__name__!r}: it has "
                "to be a generator function, or return an iterable"
            ) from None

    async def all_of_async(self, spec: Spec, call: Call, result: object) -> object:
        """Do as `all_of` for coroutines and asynchronous generators."""
        if _is_to_come(result):
            result = await result
        if spec.num_returns >= 0 or result is None:
            return result
        if not hasattr(result, "__aiter__"):
            return self.all_of(spec, call, result)
        import asyncio  # not at the top: an actor with coroutines has loaded it

        refs = []
        index = 0
        self._client.feed.begins_to_yield(call.id)
        try:
            async for item in result:
                if spec.num_returns == DYNAMIC:
                    refs.append(self._put(spec, item))
                    del item
                    continue
                self._give(spec, call, index, item)
                del item
                index += 1
                while spec.backpressure and not self._wait_for_demand(spec, call, index, 0):
                    await asyncio.sleep(DEMAND_PAUSE_S)
        finally:
            self._client.feed.ends_yielding(call.id)
        return DynamicObjectRefGenerator(refs) if spec.num_returns == DYNAMIC else None

    def _written(self, spec: Spec, item: object) -> Value:
        return self._results.signed(spec, self._client.store.write(serialize.dumps(item, f"an item of {spec.name}")))

    def _put(self, spec: Spec, item: object) -> ObjectRef[object]:
        return put_written(self._client, self._written(spec, item))

    def _wait_for_demand(self, spec: Spec, call: Call, index: int, timeout_s: float | None, lends: bool = True) -> bool:
        """Wait until the item with this index may be yielded. Return whether it may. `lends`: see `Line.wait_until`."""
        feed = self._client.feed

        def complete() -> bool:
            return feed.wants(call.id, index, spec.backpressure)

        return complete() or self._client.line.wait_until(complete, timeout_s, [call.id], lends)

    def _give(self, spec: Spec, call: Call, index: int, item: object) -> None:
        """Send an item of a stream."""
        if self._cancels.has(call):
            raise KeyboardInterrupt
        value = self._written(spec, item)
        self._client.outbox.post(Yielded(call.id, index, self._client.scopes.next_ids(1), value))


def _is_to_come(result: object) -> TypeGuard[Awaitable[object]]:
    """Whether the result of user code is to be awaited. A reference is a result: whoever gets it decides."""
    return inspect.isawaitable(result) and not isinstance(result, ObjectRef)
