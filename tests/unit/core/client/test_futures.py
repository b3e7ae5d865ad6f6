"""Futures of values: what waits for a value, and who stops."""

import asyncio
from typing import Any

from mpi_runtime.core.client.client import Client
from mpi_runtime.core.objects import serialize
from mpi_runtime.scheduler.protocol.effects import Ready
from tests.unit.core.client.test_client import Peer, both, submit

__all__ = ["both"]


def kept(client: Client) -> int:
    """How many futures the client is to complete, and how many objects it expects for them."""
    return sum(map(len, client.futures._waiting.values())) + len(client.waiting._arrivals.expected)


def test_a_coroutine_that_waits_no_longer_leaves_nothing(both: tuple[Client, Peer]) -> None:
    """Else a program that looks again and again whether a long call has ended would keep each of its waits."""
    client, peer = both
    slow = submit(client)

    async def look() -> Any:
        try:
            return await asyncio.wait_for(slow.as_future(), 0.001)
        except asyncio.TimeoutError:
            return None

    async def wait() -> Any:
        return await slow

    async def all_of_it() -> Any:
        first = asyncio.create_task(wait())
        looks = [await look() for _ in range(20)]
        assert looks == [None] * 20
        assert kept(client) == 2, "the first still waits"
        peer.say(Ready(slow.binary(), serialize.dumps("value").data))
        assert await first == "value"
        return await look()

    assert asyncio.run(all_of_it()) in ("value", None)
    assert kept(client) == 0


def test_a_value_that_is_waited_for_again_arrives(both: tuple[Client, Peer]) -> None:
    client, peer = both
    slow, other = submit(client), submit(client)

    async def all_of_it() -> Any:
        waiting = slow.as_future()
        waiting.cancel()
        await asyncio.sleep(0)
        assert kept(client) == 0
        again = slow.as_future()
        peer.say(Ready(other.binary(), serialize.dumps("other").data))
        peer.say(Ready(slow.binary(), serialize.dumps("value").data))
        return await again, await other

    assert asyncio.run(all_of_it()) == ("value", "other")
    assert kept(client) == 0
