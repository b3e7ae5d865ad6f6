"""Transfers of objects between the arenas of hosts, as an agent makes them.

1. The receiver allocates an extent, starts to receive with a tag that no other transfer has, and sends a `Pull`.
2. The sender sends the bytes with that tag. At most `FAN_OUT` large sends run at a time, and others wait: a receiver
   that is done can send too, so a few fast sends spread an object sooner than many slow ones. Small sends do not wait.
3. The receiver reports `Fetched`. The scheduler keeps the original until then, so the sender need not hold it.
"""

from collections import deque
from contextlib import suppress
from typing import NamedTuple

from mpi_runtime.objects.arena import AgentArena
from mpi_runtime.scheduler.rank_events import Fetched
from mpi_runtime.transport import codec
from mpi_runtime.transport.base import Transfer, Transport, TransportError
from mpi_runtime.transport.messages import Pull

FAN_OUT = 2
SMALL = 1 << 20
TAGS = 1 << 14


class _Receive(NamedTuple):
    transfer: Transfer
    id: bytes
    offset: int
    source: int


class Transfers:
    """The transfers of one rank. Its owner calls `poll` while it is `busy`."""

    def __init__(self, transport: Transport, arena: AgentArena) -> None:
        self._transport = transport
        self._arena = arena
        self._receives: dict[int, _Receive] = {}
        """By tag."""
        self._next_tag = 0
        self._failed: list[Fetched] = []
        self._waiting: deque[tuple[int, Pull]] = deque()
        self._large_sends: list[Transfer] = []
        self._small_sends: list[Transfer] = []

    @property
    def busy(self) -> bool:
        """Whether transfers are under way, or failures are not reported yet."""
        return bool(self._receives or self._large_sends or self._small_sends or self._failed)

    def fetch(self, id: bytes, rank: int, offset: int, size: int, target: int | None = None) -> None:
        """Begin to fetch an object. `poll` returns how that ends.

        Args:
            id: of the object.
            rank: the rank that has it.
            offset: its offset in the region of that rank, in bytes.
            size: its size in bytes.
            target: the offset of an extent for it; None: allocate one.
        """
        if target is None:
            target = self._arena.allocate(size)
        if target is not None and len(self._receives) == TAGS:
            self._arena.free(target)
            self._fail(id, rank, f"rank {self._transport.rank} has {TAGS} transfers under way already")
            return
        if target is None:
            self._fail(id, rank, self._arena.refusal(size))
            return
        tag = self._free_tag()
        try:
            transfer = self._transport.receive_bulk(rank, tag, self._arena.view(target, size))
            self._transport.send(rank, codec.encode([Pull(tag, offset, size)]))
        except TransportError as error:
            self._arena.free(target)
            self._fail(id, rank, f"rank {rank}, which has it, cannot be reached: {error}", is_lost=True)
            return
        self._receives[tag] = _Receive(transfer, id, target, rank)

    def on_pull(self, rank: int, pull: Pull) -> None:
        """Send an extent to a rank that asks for it, now or when earlier sends are done.

        Raises:
            ValueError: no such extent is allocated.
        """
        if self._arena.allocator.size(pull.offset) < pull.size:
            raise ValueError(f"rank {rank} asked for {pull.size} bytes at {pull.offset}, which are not allocated")
        if pull.size <= SMALL:
            self._start(self._small_sends, rank, pull)
        else:
            self._waiting.append((rank, pull))
            self._start_waiting()

    def poll(self) -> list[Fetched]:
        """Continue all transfers. Return the fetches that have ended."""
        self._small_sends = [send for send in self._small_sends if not _send_ended(send)]
        self._large_sends = [send for send in self._large_sends if not _send_ended(send)]
        self._start_waiting()
        ended, self._failed = self._failed, []
        for tag, receive in list(self._receives.items()):
            try:
                if not receive.transfer.done():
                    continue
                ended.append(Fetched(self._transport.rank, receive.id, receive.offset, source=receive.source))
            except TransportError as error:
                self._arena.free(receive.offset)
                reason = f"rank {receive.source} was lost while it sent the object: {error}"
                ended.append(Fetched(self._transport.rank, receive.id, -1, reason, is_lost=True, source=receive.source))
            del self._receives[tag]
        return ended

    def _start_waiting(self) -> None:
        while self._waiting and len(self._large_sends) < FAN_OUT:
            self._start(self._large_sends, *self._waiting.popleft())

    def _start(self, sends: list[Transfer], rank: int, pull: Pull) -> None:
        with suppress(TransportError):  # the receiver is lost, which the transport reports
            sends.append(self._transport.send_bulk(rank, pull.tag, self._arena.view(pull.offset, pull.size)))

    def _free_tag(self) -> int:
        while self._next_tag in self._receives:
            self._next_tag = (self._next_tag + 1) % TAGS
        tag = self._next_tag
        self._next_tag = (tag + 1) % TAGS
        return tag

    def _fail(self, id: bytes, source: int, reason: str, is_lost: bool = False) -> None:
        self._failed.append(Fetched(self._transport.rank, id, -1, reason, is_lost, source))


def _send_ended(send: Transfer) -> bool:
    try:
        return send.done()
    except TransportError:
        return True  # the receiver is lost
