"""Heartbeats between rank 0 and the ranks of other hosts, because MPI does not report a network that is cut.

While a job runs, rank 0 and each rank of another host send each other an empty frame from time to time. A rank that
receives no frame of any kind from the other for `Config.heartbeat_timeout_s` considers it lost, and ends. If it is the
head, the program ends too. The ranks on the other side of the cut have to end by themselves, because no message reaches
them. Within a host there are no heartbeats: the kernel reports the end of a process.

Time during which this process itself was stopped does not count. There are no heartbeats if the program has started MPI
itself: the head is then a thread, and code that holds the interpreter lock would silence it.
"""

from collections.abc import Callable, Iterable

from mpi_runtime.core.transport.base import Transport, TransportError

BEATS = 10
"""Number of heartbeats in the time after which a rank counts as lost."""


class LostError(TransportError):
    """A rank on another host has sent nothing for too long."""


class Heartbeat:
    """The heartbeats of one rank in one job."""

    def __init__(self, transport: Transport, timeout_s: float, now_s: Callable[[], float]) -> None:
        """Create it without ranks to expect. After `timeout_s` seconds of silence a rank is lost; 0: never."""
        self._transport = transport
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._period_s = timeout_s / BEATS
        self._heard_s: dict[int, float] = {}
        """By rank that is expected to send: the time of its last frame."""
        self._turn_s = 0.0
        """When the next heartbeat is due; unused while no rank is expected."""
        self.seen: set[int] = set()
        """Ranks from which a frame has arrived since the last turn."""

    def expect(self, ranks: Iterable[int]) -> None:
        """Exchange heartbeats with these ranks from now on. Ranks on this host are ignored."""
        if not self._timeout_s:
            return
        hosts, now = self._transport.hosts, self._now_s()
        mine = hosts[self._transport.rank]
        self._heard_s.update({rank: now for rank in ranks if hosts[rank] != mine and rank not in self._heard_s})
        self._turn_s = now

    def forget(self, rank: int) -> None:
        """Stop heartbeats with a rank that has died."""
        self._heard_s.pop(rank, None)

    def stop(self) -> None:
        """Expect no rank any more: the job ends."""
        self._heard_s.clear()

    def turn(self) -> float | None:
        """Send heartbeats if they are due. Return the seconds until the next ones; None: no rank is expected.

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
            "cannot continue. Where hosts may be silent for longer: init(heartbeat_timeout_s=...), 0 to wait for ever"
        )


SIGN = b"\x90"
"""A frame without a message: an empty list."""
