"""Generators of references to items: one by one while the call runs, or all at its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from mpi_runtime.core import published
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.object_ref import ObjectRef, check_loop
from mpi_runtime.errors import GetTimeoutError
from mpi_runtime.errors.arguments import seconds

if TYPE_CHECKING:
    from concurrent.futures import Future

T_co = TypeVar("T_co", covariant=True)


@published()
class ObjectRefGenerator(Generic[T_co]):
    """An iterator over references to the items that a call yields, each as soon as it is yielded.

    Calls with `num_returns="streaming"`, the default of generator functions, return it. If the call raises, `get` of
    the last reference raises that error. Items that were not read are freed with the generator; the call itself
    continues. `close()` ends it. Only the process that made the call can read its items: a generator cannot be passed
    on.

        @mpi_runtime.remote
        def count(n):
            for i in range(n):
                yield i

        for ref in count.remote(3):
            print(mpi_runtime.get(ref))  # 0, 1, 2

        async for ref in count.remote(3):  # in a coroutine
            print(await ref)
    """

    def __init__(self, ref: ObjectRef[Any], client: Client) -> None:
        """Iterate over the items of a call that the client has registered as yielding."""
        self._ref = ref
        self._client = client
        self._ended = False
        self._arrival: Future[None] | None = None
        """Done when there is something to take, for coroutines that wait."""

    def __iter__(self) -> Iterator[ObjectRef[T_co]]:
        return self

    def __next__(self) -> ObjectRef[T_co]:
        """Wait for the next item and return a reference to it. If the call raised, it refers to the error."""
        ref = self.next_ref(None)
        if ref is None:
            raise StopIteration
        return ref

    def next_ref(self, timeout: float | None, resume: bool = True) -> ObjectRef[T_co] | None:
        """Wait for the next item and return a reference to it, or None at the end.

        Args:
            timeout: the most seconds to wait; None waits without a limit.
            resume: whether a call that waits for its consumer may continue now. False: it waits for `resume()`.

        Raises:
            GetTimeoutError: the item was not yielded in time.
        """
        if self._ended:
            return None
        self._ref.check_job()
        id = self._client.waiting.next_item(self._ref.binary(), seconds(timeout), resume)
        if id is not None:
            return ObjectRef(id, self._client)
        self._ended = True
        # The value of a call that did not raise is None, which is always inline.
        return self._ref if self._client.waiting.may_be_error(self._ref.binary()) else None

    def resume(self) -> None:
        """Let a call continue that waits for its consumer: after `next_ref(timeout, resume=False)`."""
        if not self._ended:
            self._client.items.resume(self._ref.binary())

    def __aiter__(self) -> AsyncIterator[ObjectRef[T_co]]:
        return self

    async def __anext__(self) -> ObjectRef[T_co]:
        """Wait for the next item while other coroutines run. A wait that is cancelled takes no item."""
        import asyncio  # not at the top: most programs use none

        check_loop()
        while True:
            with contextlib.suppress(GetTimeoutError):
                ref = self.next_ref(0)
                if ref is None:
                    raise StopAsyncIteration
                return ref
            await asyncio.wrap_future(self._expect())

    def _expect(self) -> Future[None]:
        """Return the future of the next arrival. Waits that follow a cancelled one have the same, and its thread."""
        from concurrent.futures import Future  # not at the top: slow to load

        if self._arrival is None or self._arrival.done():
            self._arrival = Future()
            self._arrival.set_running_or_notify_cancel()  # not cancelled with the coroutine
            # Not a thread of the loop's own: the loop would wait for it at its end.
            arguments = self._client, self._ref.binary(), self._arrival  # not the generator: it may be dropped
            threading.Thread(target=_wait_for_item, args=arguments, name="mpi_runtime item", daemon=True).start()
        return self._arrival

    def next_ready(self, look: bool = True) -> bool:
        """Whether `next` would return an item, or the call's error, without waiting. False at the end.

        Args:
            look: whether to read messages that have arrived since the last wait, after sending posted ones.
        """
        if self._ended:
            return False
        id = self._ref.binary()
        is_ready = self._client.waiting.wait([], 1, 0, [id])[0] if look else self._client.items.is_ready(id)
        return is_ready and (not self._client.items.is_drained(id) or self._client.waiting.may_be_error(id))

    def completed(self) -> ObjectRef[Any]:
        """A reference that is ready when the call has ended. `get` of it returns None, or raises the call's error."""
        return self._ref

    def is_finished(self) -> bool:
        """Whether all items were taken, and the error of the call, if it raised."""
        id = self._ref.binary()
        return self._ended or (self._client.items.is_drained(id) and not self._client.waiting.may_be_error(id))

    def close(self) -> None:
        """Stop iterating, and cancel the call if it has not ended."""
        if not self._ended:
            self._ended = True
            self._client.items.forget(self._ref.binary(), cancel=True)

    def __del__(self) -> None:
        try:
            client, ref = self._client, self._ref
        except AttributeError:
            return  # Ctrl-C interrupted its constructor
        client.items.forget(ref.binary())

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._ref.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An ObjectRefGenerator cannot be passed on: only the caller's process takes its items. Pass the references "
            "that it returns, or call with num_returns='dynamic' and pass the one reference that is returned."
        )


def _wait_for_item(client: Client, call: bytes, arrival: Future[None]) -> None:
    try:
        client.waiting.wait([], 1, None, [call])
    except BaseException as error:
        arrival.set_exception(error.with_traceback(None))
    else:
        arrival.set_result(None)


@published()
class DynamicObjectRefGenerator(Generic[T_co]):
    """References to all items that a call has yielded: the value of a call with `num_returns="dynamic"`.

    It can be iterated over, indexed and passed on.
    """

    def __init__(self, refs: Sequence[ObjectRef[T_co]]) -> None:
        """Make a generator of these references."""
        self._refs = list(refs)
        self._next = 0

    def __iter__(self) -> Iterator[ObjectRef[T_co]]:
        return iter(self._refs)

    def __next__(self) -> ObjectRef[T_co]:
        if self._next == len(self._refs):
            raise StopIteration
        self._next += 1
        return self._refs[self._next - 1]

    def __len__(self) -> int:
        return len(self._refs)

    def __getitem__(self, index: int) -> ObjectRef[T_co]:
        return self._refs[index]

    def __repr__(self) -> str:
        return f"DynamicObjectRefGenerator({len(self)} references)"

    def __reduce__(self) -> tuple[object, ...]:
        return DynamicObjectRefGenerator, (self._refs,)
