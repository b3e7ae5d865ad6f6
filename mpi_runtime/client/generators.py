"""What calls return that give many values: references one by one while the call runs, or all when it has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from mpi_runtime.client.client import Client
from mpi_runtime.client.refs import ObjectRef

T_co = TypeVar("T_co", covariant=True)


class ObjectRefGenerator(Generic[T_co]):
    """References to what a remote generator yields, each as soon as it has been yielded.

    Made by calls with `num_returns="streaming"`, which is the default of generator functions. If the call raises, the
    last reference is one whose `get` raises that error. Items that nobody has taken are freed with the generator; the
    call itself then runs on. To end it: `close()`.

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
        """Stand for a call of which the client knows that it yields."""
        self._ref = ref
        self._client = client
        self._ended = False

    def __iter__(self) -> Iterator[ObjectRef[T_co]]:
        return self

    def __next__(self) -> ObjectRef[T_co]:
        """Wait for the next item, and return a reference to it. It is an error's if the call has raised."""
        ref = self.next_ref(None)
        if ref is None:
            raise StopIteration
        return ref

    def next_ref(self, timeout: float | None) -> ObjectRef[T_co] | None:
        """Wait for the next item, and return a reference to it; None: there is none.

        Raises:
            GetTimeoutError: it was not yielded within `timeout` seconds.
        """
        if self._ended:
            return None
        self._ref.check_job()
        id = self._client.waiting.next_item(self._ref.binary(), timeout)
        if id is not None:
            return ObjectRef(id, self._client)
        self._ended = True
        # The value of a call that did not raise is None, which is never elsewhere.
        return self._ref if self._client.waiting.may_be_error(self._ref.binary()) else None

    def __aiter__(self) -> AsyncIterator[ObjectRef[T_co]]:
        return self

    async def __anext__(self) -> ObjectRef[T_co]:
        """The same for coroutines: others run meanwhile."""
        import asyncio  # not at the top: most programs use none

        ref = await asyncio.get_running_loop().run_in_executor(None, self.next_ref, None)
        if ref is None:
            raise StopAsyncIteration
        return ref

    def next_ready(self) -> bool:
        """Whether `next` would give an item, or the call's error, without waiting. At the end there is none."""
        if self._ended:
            return False
        id = self._ref.binary()
        is_ready = self._client.waiting.wait([], 1, 0, [id])[0]
        return is_ready and (not self._client.items.is_drained(id) or self._client.waiting.may_be_error(id))

    def completed(self) -> ObjectRef[Any]:
        """A reference that is ready when the call has ended; its `get` returns None, or raises what the call raised."""
        return self._ref

    def is_finished(self) -> bool:
        """Whether there is nothing more to take."""
        return self._ended or self._client.items.is_drained(self._ref.binary())

    def close(self) -> None:
        """Take no more, and cancel the call if it is not at its end."""
        if not self._ended:
            self._ended = True
            self._client.items.forget(self._ref.binary(), cancel=True)

    def __del__(self) -> None:
        try:
            client, ref = self._client, self._ref
        except AttributeError:
            return  # Ctrl-C came while it was made
        client.items.forget(ref.binary())

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._ref.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An ObjectRefGenerator cannot be passed on: only who made the call takes its items. Pass the references "
            "that it gives, or call with num_returns='dynamic' and pass the one reference that is returned."
        )


class DynamicObjectRefGenerator(Generic[T_co]):
    """References to all that a remote generator has yielded: the value of a call with `num_returns="dynamic"`."""

    def __init__(self, refs: Sequence[ObjectRef[T_co]]) -> None:
        """Give these references."""
        self._refs = list(refs)
        self._next = 0

    def __iter__(self) -> Iterator[ObjectRef[T_co]]:
        return iter(self._refs)

    def __next__(self) -> ObjectRef[T_co]:
        """The next reference."""
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

    def __reduce__(self) -> tuple[Any, ...]:
        return DynamicObjectRefGenerator, (self._refs,)
