"""Extents of the arena that this process has pinned: a GPU reads and writes them itself, in one copy at its full rate.

The hazard: pinned pages stay where they are. If an agent gave them back to the system, the file would get others in
their place, and the device would read and write what nobody else sees. It would be an array with wrong bytes and no
error. So, in this order:

1. This process shares a lock on the range with the kernel (`range_locks.py`), before it pins. An agent that wants to
   give back any of it is refused then, and takes other memory. Nobody asks, answers or waits.
2. It pins. Only whole pages of an extent that holds an object: memory that was never written would come into being,
   uncounted. An extent from 1 MiB on is whole pages, of which no other has any.
3. It may copy as long as the range is in `_pins`. It stays there when the object is gone: objects to come use the same
   warm memory, and pinning costs more than a copy.
4. To let go, it first forgets the range, then has it unpinned, and drops the lock only if that went well.

An interrupt between two of these leaves memory pinned and locked, and in use by nobody, until the process ends. The
kernel drops the locks of the dead. A forked child has the locks in common with its parent and must not drop them: it
forgets all, and begins anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from mpi_runtime.gpu import cuda_context
from mpi_runtime.objects import range_locks

SEEN_MAX = 4096
"""How many ranges are remembered that were copied once."""


class _Pin(NamedTuple):
    start: int
    """In the file, as `end`."""
    end: int
    address: int
    users: list[None]
    """One for each copy under way: to append and pop takes no lock."""


_mapped: dict[int, object] = {}
"""Mappings by the addresses that are pinned, or may be: if one went, the driver would take what is mapped there next
for what it has pinned."""


class PinnedExtents:
    """What one process has pinned of one arena. Safe between threads; none waits for another."""

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        """Pin at most so many bytes at a time of the arena behind a descriptor, which stays the caller's."""
        self._shared = descriptor
        self._bytes_max = bytes_max
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a forked child: what is pinned and locked is the parent's."""
        self._own = -1
        """A description of the file for locks, once there are any. If it were closed, the kernel would drop them."""
        self._locked: set[int] = set()
        """Where ranges begin that are locked, or may be."""
        self._pins: dict[int, _Pin] = {}
        """By start, the longest unused first."""
        self._seen: dict[tuple[int, int], None] = {}
        self._busy = threading.Lock()

    @contextmanager
    def pinned(self, start: int, size: int, address: int, mapping: object) -> Iterator[bool]:
        """Whether these whole pages of the file are pinned at their address, while the block runs."""
        pin = self._find(start, start + size, address, mapping) if size <= self._bytes_max else None
        try:
            yield pin is not None
        finally:
            if pin is not None:
                pin.users.pop()

    def close(self) -> None:
        """Let go of all. What is being copied, or cannot be unpinned, stays as it is for the life of the process."""
        self._bytes_max = 0
        pins = list(self._pins.values())
        for pin in pins:
            if not pin.users:
                self._let_go(pin)
        if self._own >= 0 and not self._locked:
            os.close(self._own)
            self._own = -1

    def held(self) -> int:
        """How many bytes are pinned."""
        return sum(pin.end - pin.start for pin in list(self._pins.values()))

    def _find(self, start: int, end: int, address: int, mapping: object) -> _Pin | None:
        if not self._busy.acquire(blocking=False):
            return None
        try:
            within = (pin for pin in self._pins.values() if pin.start <= start and end <= pin.end)
            pin = next(within, None) or self._pin(start, end, address, mapping)
            if pin is not None:
                self._pins[pin.start] = self._pins.pop(pin.start)
                pin.users.append(None)
            return pin
        finally:
            self._busy.release()

    def _pin(self, start: int, end: int, address: int, mapping: object) -> _Pin | None:
        """Pin a range that was copied before: what is copied only once is not worth it."""
        if (start, end) not in self._seen:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen[start, end] = None
            return None
        if not self._make_room(start, end) or not self._lock(start, end):
            return None
        _mapped[address] = mapping
        if cuda_context.register(cuda_context.driver(), address, end - start):
            self._unlock(start, end, address)
            self._bytes_max = self.held()  # so much is granted here
            return None
        pin = self._pins[start] = _Pin(start, end, address, [])
        return pin

    def _lock(self, start: int, end: int) -> bool:
        if self._own < 0:
            with suppress(OSError):
                self._own = range_locks.own_description(self._shared)
        if self._own < 0 or start in self._locked:
            return False
        self._locked.add(start)
        if range_locks.share(self._own, start, end - start):
            return True
        self._locked.discard(start)
        return False

    def _unlock(self, start: int, end: int, address: int) -> None:
        """The range is not pinned."""
        range_locks.drop(self._own, start, end - start)
        self._locked.discard(start)
        _mapped.pop(address, None)

    def _make_room(self, start: int, end: int) -> bool:
        """Let go of what overlaps the range, for the driver would refuse it, and of what is unused the longest.

        Returns whether that was enough.
        """
        pins = list(self._pins.values())
        overlapping = [pin for pin in pins if pin.start < end and start < pin.end]
        if any(pin.users for pin in overlapping) or not all(map(self._let_go, overlapping)):
            return False
        unused = (pin for pin in pins if pin not in overlapping and not pin.users)
        while self.held() + end - start > self._bytes_max:
            pin = next(unused, None)
            if pin is None or not self._let_go(pin):
                return False
        return True

    def _let_go(self, pin: _Pin) -> bool:
        del self._pins[pin.start]
        if cuda_context.unregister(cuda_context.driver(), pin.address):
            return False
        self._unlock(pin.start, pin.end, pin.address)
        return True
