"""What calls yield: items of a stream, which are sent one by one, or of "dynamic", which are put.

With back-pressure an executor waits before it goes on until enough items have been taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from mpi_runtime.generators import DynamicObjectRefGenerator
from mpi_runtime.objects import serialize
from mpi_runtime.processes.cancels import Cancels
from mpi_runtime.processes.client import Client
from mpi_runtime.scheduler.events import DYNAMIC, STREAMING, Call, Spec, Yielded

DEMAND_PAUSE_S = 0.002
"""How often an asynchronous generator looks whether more is wanted of it."""


class Yields:
    """What the calls of one executor yield."""

    def __init__(self, client: Client, cancels: Cancels) -> None:
        self._client = client
        self._cancels = cancels

    def all_of(self, spec: Spec, call: Call, result: Any) -> Any:
        """What user code has returned, or if that is to be gone through: send all of it, or keep references to it."""
        if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
            return result  # not here: see `all_of_async`
        items = self._items(spec, result)
        self._client.streams.demands[call.id] = 0
        try:
            if spec.num_returns == DYNAMIC:
                return DynamicObjectRefGenerator([self._client.store.put(item) for item in items])
            for index, item in enumerate(items):
                self._give(spec, call, index, item)
                if spec.backpressure:
                    self._client.streams.await_demand(call.id, index + 2 - spec.backpressure, None)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            self._client.streams.demands.pop(call.id)
        return None

    def _items(self, spec: Spec, result: Any) -> Iterator[Any]:
        try:
            return iter(result)
        except TypeError:
            wanted = "streaming" if spec.num_returns == STREAMING else "dynamic"
            raise TypeError(
                f"{spec.name} was called with num_returns={wanted!r}, and returned {type(result).__name__!r}: it has "
                "to be a generator function, or return something that can be gone through"
            ) from None

    async def all_of_async(self, spec: Spec, call: Call, result: Any) -> Any:
        """The same for what coroutines return, and asynchronous generators yield."""
        if inspect.isawaitable(result):
            result = await result
        if spec.num_returns >= 0 or result is None:
            return result
        if not hasattr(result, "__aiter__"):
            return self.all_of(spec, call, result)
        import asyncio  # not at the top: whoever comes here has loaded it

        refs = []
        index = 0
        self._client.streams.demands[call.id] = 0
        try:
            async for item in result:
                if spec.num_returns == DYNAMIC:
                    refs.append(self._client.store.put(item))
                    continue
                self._give(spec, call, index, item)
                index += 1
                while spec.backpressure and not self._client.streams.await_demand(
                    call.id, index + 1 - spec.backpressure, 0
                ):
                    await asyncio.sleep(DEMAND_PAUSE_S)
        finally:
            self._client.streams.demands.pop(call.id)
        return DynamicObjectRefGenerator(refs) if spec.num_returns == DYNAMIC else None

    def _give(self, spec: Spec, call: Call, index: int, item: Any) -> None:
        """Send an item of a stream."""
        if call.id in self._cancels.ids:
            raise KeyboardInterrupt
        value = self._client.store.write(serialize.dumps(item, f"an item of {spec.name}"))
        self._client.outbox.post(Yielded(call.id, index, self._client.next_ids(1), value))
