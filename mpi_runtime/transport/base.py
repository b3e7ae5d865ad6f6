"""What the rank processes need of a transport between ranks, whatever carries it."""

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn, Protocol

Buffer = bytes | bytearray | memoryview


class Transfer(Protocol):
    """One bulk send or receive under way."""

    def done(self) -> bool:
        """Whether it has completed; drives it forward. Raises `TransportError` if the peer is gone."""


class Transport(Protocol):
    """Frames and bulk data between the ranks of one job. All calls come from one thread."""

    rank: int
    size: int
    hosts: Sequence[int]
    """For each rank the lowest rank on the same host: ranks with equal entries share memory."""
    hostnames: Sequence[str]
    """For each rank the name of its host."""

    @property
    def lost(self) -> Collection[int]:
        """Ranks that have died: nothing is sent to them any more. Empty where MPI does not survive that."""

    def take_lost(self) -> list[int]:
        """Ranks that have died since the last call. What they had sent before may still come."""

    @property
    def neighbours(self) -> Mapping[int, int]:
        """The processes of the other ranks of this host, by rank; only the lowest rank of a host knows them."""

    def leave(self) -> None:
        """Say to the ranks of this host that this one ends by itself, before it does so without `close`."""

    def has_left(self, rank: int) -> bool:
        """Whether a rank of this host has said so. One that was killed has not."""

    def send(self, rank: int, frame: Buffer) -> None:
        """Start sending a control frame; never blocks. Frames to one rank arrive in order. Of the dead none does."""

    def receive(self) -> list[tuple[int, Buffer]]:
        """All control frames that have arrived, as (sender, frame); also drives pending sends."""

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> Transfer:
        """Start sending a buffer that must stay unchanged until the transfer is done. 0 <= tag < 2**14.

        From one rank to another, only one transfer at a time may have the same tag.
        """

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> Transfer:
        """Start receiving into a writable buffer of exactly the size sent."""

    @property
    def busy(self) -> bool:
        """Whether sends are unfinished, so that the caller must keep calling `receive`."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when another rank rings, or -1 where nobody can."""

    def prepare_sleep(self, idle_s: float) -> float | None:
        """Say that this rank is about to block, having found nothing to do for `idle_s` seconds.

        Returns how many seconds it may block at most; 0 means that something has arrived meanwhile or that it is
        better to look again at once; None means for ever (nobody but the local descriptors can wake it). `poll` and
        `epoll` round pauses below a millisecond up to one: `select` does not.
        """

    def wake(self, rung: bool = False) -> None:
        """Say that this rank is awake again; empties the doorbell. `rung`: it is known to have something in it."""

    def share_descriptor(self, descriptor: int | None) -> int:
        """Collective over the ranks of a host: the lowest that lives gives a descriptor, the others get a copy."""

    def broadcast(self, data: bytes | None) -> bytes:
        """Collective over all ranks: what rank 0 gave."""

    def close(self, clean: bool) -> None:
        """End: with MPI_Finalize when `clean`, else leaving at once without waiting for peers."""

    def abort(self, code: int) -> NoReturn:
        """End all ranks of the job at once, with this exit code."""


class TransportError(Exception):
    """A peer is gone or a message could not be carried."""
