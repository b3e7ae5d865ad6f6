"""A draft: an executor's next frame, in memory that its agent reads if the executor dies first.

    word | messages, encoded, one after the other

The word has the number of the frame on this connection, the end of the messages, their count, and the number of calls
that end in them. It is written after the messages, in one store of eight bytes, so a message is in the draft or not,
and nothing between. When the frame is sent, the word gets the next number and zero counts.

The agent counts the frames that have arrived. If the word has the number of the next one, the draft is that frame; the
socket may have a part of it, or more than it. If the number is less, the frame has arrived. See docs/decisions/0303.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from mpi_runtime.core.host.libc import map_file
from mpi_runtime.core.transport.codec import encode_one

SIZE = max(32 << 10, mmap.ALLOCATIONGRANULARITY)
"""Bytes of one draft. Longer messages are sent at once."""
WORD = 8
_PART = 0xFFFF
"""Each of the four numbers of a word has 16 bits."""
_LENGTH = min(SIZE, _PART)
_LIST = b"\xdd"
"""In msgpack, before four bytes with the length of a list."""


class Memory(NamedTuple):
    """A draft's memory, twice."""

    content: Any
    """All of it: slices are bytes, which are read and written."""
    words: Any
    """As words of eight bytes; each is written in one store."""


def map_memory(descriptor: int, slot: int) -> Memory:
    """Map one of the drafts in a file, for the life of the process. The descriptor stays the caller's.

    Raises:
        OSError: the system refuses.
    """
    import ctypes  # not at the top: only executors need it, and their forkserver has loaded it

    address = map_file(descriptor, slot * SIZE, SIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    content = memoryview((ctypes.c_ubyte * SIZE).from_address(address)).cast("B")
    return Memory(content, content.cast("Q"))


class Draft:
    """The executor's end. One thread at a time may use it."""

    def __init__(self, memory: Memory) -> None:
        """Begin the first frame of a connection, in memory that is empty."""
        self._content, self._words = memory
        self._number = 0
        self._end = WORD
        self._ended = 0
        self.count = 0
        """How many messages are in the draft."""

    def add(self, messages: Sequence[object], ended: int) -> bool:
        """Add messages, in which `ended` calls end. Returns False, and adds nothing, if there is no room."""
        data = encode_one(messages[0]) if len(messages) == 1 else b"".join(map(encode_one, messages))
        start, end = self._end, self._end + len(data)
        if end > _LENGTH:
            return False
        self._content[start:end] = data
        self._end = end
        self.count += len(messages)
        self._ended += ended
        self._words[0] = self._number | end << 16 | self.count << 32 | self._ended << 48
        return True

    def frame(self, rest: Sequence[object], ended: int) -> tuple[int, bytes]:
        """Return how many calls end in the whole frame, and the frame, with `rest` behind the messages in the draft."""
        body = [self._content[WORD : self._end], *map(encode_one, rest)]
        return self._ended + ended, _framed(self.count + len(rest), b"".join(body))

    def sent(self) -> None:
        """Note that a whole frame was sent: this one, or one while the draft was empty."""
        self._number = self._number + 1 & _PART
        self._end, self.count, self._ended = WORD, 0, 0
        self._words[0] = self._number


def sealed(content: bytes) -> bytes:
    """Return the part of a draft that has its word and its messages; empty if there are no messages."""
    _, end, count, _ = _numbers(content)
    return content[:end] if count else b""


def left(content: bytes, arrived: int) -> tuple[int, bytes] | None:
    """Return the unsent frame in the draft of a dead executor, after the number of calls that end in it; None: empty.

    `arrived`: how many of its frames have arrived.
    """
    number, end, count, ended = _numbers(content)
    if number != arrived & _PART or not count:
        return None
    return ended, _framed(count, content[WORD:end])


def _numbers(content: bytes) -> list[int]:
    """Return the numbers of the word: of the frame, the end of the messages, their count, and the calls that end."""
    word = int.from_bytes(content[:WORD], sys.byteorder)
    return [word >> shift & _PART for shift in (0, 16, 32, 48)]


def _framed(count: int, body: bytes) -> bytes:
    return _LIST + count.to_bytes(4, "big") + body
