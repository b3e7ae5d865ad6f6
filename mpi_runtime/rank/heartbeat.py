"""Signs of life between rank 0 and the ranks of other hosts: a network that is cut says nothing, nor does MPI.

While a job runs, rank 0 and each rank of another host send each other an empty frame every so often. Whoever hears
nothing of the other for the whole of `Config.heartbeat_timeout_s`, no frame of any kind, takes it for lost, and ends:
the head, and with it the program; and the ranks on the far side of the cut, which nobody can reach to end them.
Within a host none of this is needed: the kernel tells.

A process that was itself stopped for a while has heard nothing because it did not listen. That time does not count.
Beside a user's own MPI there are no signs of life: the head is a thread there, and code that keeps the interpreter's
lock would silence it.
"""

from collections.abc import Callable, Iterable

from mpi_runtime.transport.base import Transport, TransportError

BEATS = 10
"""How often a sign is sent in the time after which a rank counts as lost."""


class LostError(TransportError):
    """A rank on another host has given no sign of life for too long."""


class Heartbeat:
    """The signs of life of one rank in one job."""

    def __init__(self, transport: Transport, timeout_s: float, now_s: Callable[[], float]) -> None:
        """Expect nothing yet. `timeout_s`: after so many seconds of silence a rank is lost; 0: never."""
        self._transport = transport
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._period_s = timeout_s / BEATS
        self._heard_s: dict[int, float] = {}
        """When each rank that must be heard was heard last."""
        self._turn_s = 0.0
        """When the next sign is due; unused while nobody must be heard."""
        self.seen: set[int] = set()
        """Ranks of which a frame has come since the last look."""

    def expect(self, ranks: Iterable[int]) -> None:
        """From now on send signs to those of these ranks that are on other hosts, and expect some of them."""
        if not self._timeout_s:
            return
        hosts, now = self._transport.hosts, self._now_s()
        mine = hosts[self._transport.rank]
        self._heard_s.update({rank: now for rank in ranks if hosts[rank] != mine and rank not in self._heard_s})
        self._turn_s = now

    def forget(self, rank: int) -> None:
        """A rank is known to have died."""
        self._heard_s.pop(rank, None)

    def stop(self) -> None:
        """Expect nobody any more."""
        self._heard_s.clear()

    def turn(self) -> float | None:
        """Do what is due; how many seconds until something is again, None: nothing ever.

        Raises:
            LostError: a rank is lost.
        """
        if not self._heard_s:
            return None
        now = self._now_s()
        if now < self._turn_s:
            return self._turn_s - now
        late_s = now - self._turn_s
        slept_s = late_s if late_s > self._period_s else 0.0
        for rank, heard_s in self._heard_s.items():
            self._heard_s[rank] = now if rank in self.seen else heard_s + slept_s
        self.seen.clear()
        lost = [rank for rank, heard_s in self._heard_s.items() if now - heard_s > self._timeout_s]
        if lost:
            raise LostError(self._message(lost))
        for rank in self._heard_s:
            self._transport.send(rank, SIGN)
        self._turn_s = now + self._period_s
        return self._period_s

    def _message(self, lost: list[int]) -> str:
        names = self._transport.hostnames
        who = ", ".join(f"rank {rank} on {names[rank]}" for rank in lost[:4])
        more = f" and {len(lost) - 4} more ranks" if len(lost) > 4 else ""
        return (
            f"{who}{more}: nothing was heard for {self._timeout_s:g} s, so the host or the network is gone and the job "
            "cannot go on. Where hosts may be silent for longer: init(heartbeat_timeout_s=...), 0 to wait for ever"
        )


SIGN = b"\x90"
"""A frame without a message: an empty list."""
