"""Output of the ranks of a command, in the order of ranks where it arrives at the same time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Timer

HOLD_S = 0.1
"""Lines that arrive within this time are written in the order of their ranks."""
HELD_BYTES_MAX = 1 << 20
"""More than this is not held."""


class Ordered:
    """Holds lines for a moment. What a rank sends to one stream keeps its order."""

    def __init__(self, write: Callable[[int, bytes], None]) -> None:
        """Hold nothing yet. `write`: writes lines to a stream of the command."""
        self._write = write
        self._lock = Lock()
        self._held: list[tuple[int, int, bytes]] = []
        self._bytes = 0
        self._timer: Timer | None = None
        self.error: OSError | None = None
        """The first error of `write`: lines are lost."""

    def take(self, stream: int, data: bytes, rank: int) -> None:
        """Take lines of a rank for a stream."""
        with self._lock:
            self._held.append((rank, stream, data))
            self._bytes += len(data)
            is_much = self._bytes > HELD_BYTES_MAX
            if self._timer is None and not is_much:
                self._timer = Timer(HOLD_S, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if is_much:
            self.flush()

    def flush(self) -> None:
        """Write what is held, or keep the error."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            held, self._held, self._bytes, self._timer = self._held, [], 0, None
            try:
                for _, stream, data in sorted(held, key=lambda one: one[0]):
                    self._write(stream, data)
            except OSError as error:
                self.error = self.error or error
