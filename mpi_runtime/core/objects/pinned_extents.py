"""Extents of the arena that this process has pinned: a GPU reads and writes them itself, in one copy at its full rate.

The hazard: pinned pages stay where they are. If an agent gave them back to the system, the file would get others in
their place, and the device would read and write pages that no other process sees: an array with wrong bytes and no
error. So, in this order:

1. This process takes a shared kernel lock on the range (`range_locks.py`) before it pins. The kernel then refuses an
   agent that would give back any of it, and the agent takes other memory. No process asks another or waits.
2. It pins, but only whole pages of an extent that holds an object: pinning memory that was never written would create
   it, uncounted. Extents from 1 MiB on are whole pages, which they share with no other.
3. It may copy while the range is in `_pins`. The range stays there when the object is gone: later objects use the same
   warm memory, and pinning costs more than a copy.
4. To let go, it removes the range from `_pins`, unpins it, and drops the lock only if that succeeded.

An interrupt between two of these leaves memory pinned, locked and unused until the process ends. The kernel drops the
locks of the dead. A forked child shares its parent's locks and must not drop them: it forgets all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from mpi_runtime.core.objects import range_locks
from mpi_runtime.gpu import cuda_context

SEEN_MAX = 4096
"""The number of ranges to remember that were copied once."""


class _Pin(NamedTuple):
    start: int
    """In the file, as `end`."""
    end: int
    address: int
    users: list[None]
    """An entry for each copy under way: append and pop need no lock."""


_mapped: dict[int, object] = {}
"""Mappings by the addresses that are pinned, or may be. If one were unmapped, the driver would take the next mapping
there for the pinned one."""


class PinnedExtents:
    """The ranges of one arena that this process has pinned. Thread-safe; no thread waits for another."""

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        """Pin at most `bytes_max` bytes at a time of the arena behind a descriptor, which stays the caller's."""
        self._shared = descriptor
        self._bytes_max = bytes_max
        self.forget()

    def forget(self) -> None:
        """Start empty, in a forked child too: pinned and locked ranges are the parent's."""
        self._own = -1
        """A description of the file for locks; -1: not opened. If it were closed, the kernel would drop the locks."""
        self._locked: set[int] = set()
        """Starts of ranges that are locked, or may be."""
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
        """Let go of all ranges. One in use, or that cannot be unpinned, stays for the life of the process."""
        self._bytes_max = 0
        pins = list(self._pins.values())
        for pin in pins:
            if not pin.users:
                self._let_go(pin)
        if self._own >= 0 and not self._locked:
            os.close(self._own)
            self._own = -1

    def held(self) -> int:
        """Return how many bytes are pinned."""
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
        """Pin a range when it is copied for the second time: for one copy it does not pay."""
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
            self._bytes_max = self.held()  # the system grants no more
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
        range_locks.drop(self._own, start, end - start)
        self._locked.discard(start)
        _mapped.pop(address, None)

    def _make_room(self, start: int, end: int) -> bool:
        """Let go of ranges that overlap (the driver would refuse this one), and of those unused for the longest time.

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
