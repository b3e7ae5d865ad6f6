"""The interface of transports between ranks. Implemented on MPI, and for jobs of one rank."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Transfer(Protocol):
    """A bulk send or receive in progress."""

    received: int
    """Of a complete receive: the number of bytes that arrived."""

    def done(self) -> bool:
        """Make progress, and return whether the transfer is complete. Raises `TransportError` if the peer is gone."""


class Transport(Protocol):
    """Frames and bulk data between the ranks of one job. All calls must be made from one thread.

    Methods with a body are those of the only rank of a job.
    """

    rank: int
    size: int
    """The number of ranks."""
    hosts: Sequence[int]
    """For each rank the lowest rank on the same host: ranks with equal entries share memory."""
    hostnames: Sequence[str]
    """For each rank the name of its host."""

    @property
    def lost(self) -> Collection[int]:
        """Ranks that have died. Nothing is sent to them. Always empty if MPI does not survive the loss of a rank."""
        return ()

    def take_lost(self) -> list[int]:
        """Return the ranks that have died since the last call. Frames that they sent before may still arrive."""
        return []

    @property
    def neighbours(self) -> Mapping[int, int]:
        """The processes of the other ranks of this host, by rank: the lowest knows all, others the lowest."""
        return {}

    def leave(self) -> None:
        """Announce to the ranks of this host that this one ends by itself, before it does so without `close`."""
        return

    def has_left(self, rank: int) -> bool:
        """Whether a rank of this host has announced its end by `leave`. One that was killed has not."""
        return True

    def send(self, rank: int, frame: Buffer) -> None:
        """Start to send a control frame. Never blocks.

        Frames to one rank arrive in the order in which they were sent. Frames to a dead rank are dropped.
        """

    def receive(self) -> list[tuple[int, Buffer]]:
        """Return all control frames that have arrived, as (sender, frame). Makes progress with pending sends too."""

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> Transfer:
        """Start to send a buffer of at most 1 GiB, which must stay unchanged until the transfer is done.

        From one rank to another, only one transfer at a time may have the same tag. 0 <= tag < 2**14.
        """

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> Transfer:
        """Start to receive into a writable buffer, which must have the size of the buffer sent.

        That may be empty instead: then nothing of the buffer is changed.
        """

    @property
    def busy(self) -> bool:
        """Whether sends are unfinished, so that the caller must keep calling `receive`."""
        return False

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when another rank rings; -1 if no rank can."""
        return -1

    def prepare_sleep(self, idle_s: float) -> float | None:
        """Announce that this rank is about to block after it has had nothing to do for `idle_s` seconds.

        Returns:
            The number of seconds for which it may block. 0: something has arrived meanwhile, or it is better to poll
            again at once. None: without a limit, because only local descriptors can wake it. Wait with `select`: `poll`
            and `epoll` round a timeout below a millisecond up to one.
        """

    def wake(self, rung: bool = False) -> None:
        """Announce that this rank is awake again, and clear the doorbell. `rung`: the doorbell is known to be set."""
        return

    def share_descriptor(self, descriptor: int | None, key: bytes) -> int | None:
        """Share a descriptor among the ranks of a host. Collective over them.

        The lowest rank that lives passes the descriptor; the others pass None and get a copy. `key` identifies it:
        the same on all these ranks, and another one each time.

        Returns:
            The descriptor. None: all lower ranks of the host have died, and no living rank got one from them. So this
            one must call again with a descriptor of its own.

        Raises:
            TransportError: no descriptor has arrived for a long time.
            HeadLostError: rank 0 has died meanwhile.
        """
        return descriptor

    def share_again(self, descriptor: int, key: bytes) -> None:
        """Share a descriptor once more, as the lowest rank that lives: a lower one may have died before all had it."""
        return

    def hand(self, rank: int, descriptors: Sequence[int], key: bytes) -> bool:
        """Pass copies of descriptors to another rank of this host, which takes them by their key. Never blocks.

        They are there before any frame that is sent to the rank later. Returns False if they cannot be passed now.
        """
        return False

    def take(self, key: bytes) -> list[int]:
        """Return the descriptors that were handed to this rank under a key, and close those handed before; or none."""
        return []

    def close(self, clean: bool) -> None:
        """Close the transport: with MPI_Finalize if `clean`, else at once, without waiting for other ranks."""
        return


class TransportError(Exception):
    """A peer is gone, or a message could not be sent or received."""


class HeadLostError(TransportError):
    """Rank 0 has died, and with it the head."""

    def __init__(self, hostname: str) -> None:
        super().__init__(f"rank 0 on {hostname} has died, and with it the head: the job cannot continue")
