"""The descriptors that a rank process waits on, and the function to call when one is ready."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.core.transport.channel import Channel
from mpi_runtime.core.transport.polling import Patience

_MANY = 256
EPOLL_GRAIN_S = 1e-3
"""Seconds. epoll rounds shorter timeouts up to this; select does not."""
GATHER_S = 500e-6
"""Seconds that a rank reads before it answers, as long as there is more to read."""

ALONE_MAX = 8
"""After this number of turns without more to read, `gather` looks for more only in every eighth turn."""


class HasFileno(Protocol):
    """A socket, a channel, a pipe."""

    def fileno(self) -> int:
        """Return the descriptor, the same one until it is removed from the poller."""


class Poller:
    """One epoll with a callback for each descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Channel] = {}
        self.patience = Patience()
        self._alone = 0
        """In how many turns in a row `gather` found nothing more."""

    def add(self, source: HasFileno | int, callback: Callable[[], None]) -> None:
        """Call the callback whenever there is something to read, or the other end is gone.

        The callback should read all of it: whatever it leaves is reported again at once, and keeps `gather` busy for
        its whole time.
        """
        descriptor = source if isinstance(source, int) else source.fileno()
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, source: HasFileno | int) -> None:
        """Forget a descriptor, before it is closed."""
        descriptor = source if isinstance(source, int) else source.fileno()
        if self._callbacks.pop(descriptor, None) is not None:
            self._writers.pop(descriptor, None)
            self._epoll.unregister(descriptor)

    def pause(self, source: HasFileno | int) -> None:
        """Ignore data from it for now."""
        self._epoll.modify(source if isinstance(source, int) else source.fileno(), 0)

    def resume(self, source: HasFileno | int) -> None:
        """Wait for data from it again."""
        self._epoll.modify(source if isinstance(source, int) else source.fileno(), select.EPOLLIN)

    def send(self, channel: Channel, frame: Buffer) -> None:
        """Send a frame, as much of it now as the other end takes."""
        channel.send(frame)
        if channel.unsent_bytes:
            self.watch_unsent(channel)

    def watch_unsent(self, channel: Channel) -> None:
        """Flush the channel when the other end takes more, if frames are unsent. Call it after a send."""
        if channel.unsent_bytes and channel.fileno() not in self._writers:
            self._writers[channel.fileno()] = channel
            self._epoll.modify(channel, select.EPOLLIN | select.EPOLLOUT)

    def poll(self, timeout_s: float | None) -> bool:
        """Wait until a descriptor is ready, and call its callback. Return whether any was ready."""
        ready = self._epoll.poll(0, _MANY) if timeout_s == 0 else self._wait(timeout_s)
        for descriptor, event in ready:
            writer = self._writers.get(descriptor)
            if writer is not None and event & (select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR):
                writer.flush()
                if not writer.unsent_bytes:
                    del self._writers[descriptor]
                    self._epoll.modify(descriptor, select.EPOLLIN)
            callback = self._callbacks.get(descriptor)
            if callback is not None and event & ~select.EPOLLOUT:
                callback()
        return bool(ready)

    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        patience = self.patience
        ready: list[tuple[int, int]] = []
        if patience.begin(timeout_s):
            while not (ready := self._epoll.poll(0, _MANY)) and patience.look_again():
                pass
        if not ready:
            if timeout_s is not None and timeout_s < EPOLL_GRAIN_S:
                select.select([self._epoll], [], [], timeout_s)
                timeout_s = 0
            ready = self._epoll.poll(timeout_s, _MANY)
        patience.end()
        return ready

    def gather(self, timeout_s: float | None) -> bool:
        """Like `poll`, but repeat it for a moment as long as there is more, so that one turn answers all of it.

        With much traffic this saves most of the sends, and with them most wake-ups of other processes, which are the
        larger part of the cost of a short call. With little traffic it would delay a single call by one more poll in
        each turn. So after some turns without more to read, it looks only in every eighth.
        """
        if not self.poll(timeout_s):
            return False
        self._alone += 1
        if (self._alone > ALONE_MAX and self._alone % ALONE_MAX) or not self.poll(0):
            return True
        self._alone = 0
        until = time.monotonic() + GATHER_S
        while self.poll(0) and time.monotonic() < until:
            pass
        return True

    def close(self) -> None:
        """Wait for nothing more. The descriptors stay open."""
        self._epoll.close()


def shorter(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two times; None means for ever."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
