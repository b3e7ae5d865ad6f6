"""The last lines of output and the last log lines, for programs that look at the job."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from mpi_runtime.show.log import Line

PIECES_MAX = 500
PIECE_BYTES_MAX = 4000
"""Of more output at once, only the end is kept. All together takes at most 2 MB."""
ANSWER_BYTES_MAX = 100_000


class Recent:
    """Pieces of output in their order. Nothing is decoded before somebody asks."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, float, int, bytes, bytes]] = deque(maxlen=PIECES_MAX)
        """Number, time in seconds since 1970, level, writer, lines."""
        self.count = 0

    def output(self, stream: int, prefix: bytes, lines: bytes) -> None:
        """Keep output of a process: stream 1 or 2."""
        self.count += 1
        self._pieces.append((self.count, time.time(), stream, prefix, lines[-PIECE_BYTES_MAX:]))

    def log(self, line: Line) -> None:
        """Keep a log line about the job. Its level is one of `logging`."""
        self.count += 1
        place = f"mpi_runtime, rank {line.rank}, {line.host}".encode()
        self._pieces.append((self.count, line.time_s, line.level, place, line.text.encode(errors="replace")))

    def since(self, number: Any) -> dict[str, Any]:
        """The pieces after a number, the last ones if they are too many."""
        found, size = [], 0
        for one in reversed(self._pieces):
            if one[0] <= number:
                break
            texts = [part.decode(errors="replace") for part in one[3:]]
            size += sum(len(text.encode()) for text in texts)  # what replaces a byte may have three
            if size > ANSWER_BYTES_MAX:
                break
            found.append((*one[:3], *texts))
        return {"count": self.count, "pieces": found[::-1]}
