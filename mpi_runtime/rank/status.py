"""Status lines, such as progress bars: each replaces its predecessor, and all stand below the other output.

A process that runs user code writes them to its standard error like any other line, with a mark. So they come to the
head on the way of all output, and the head, which writes that, keeps the two apart on a terminal. Where there is none,
as in batch jobs and below most launchers, each status is written as an ordinary line from time to time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MARK = b"\x1emrt-status "
PAUSE_S = 0.1
"""How often the terminal is brought up to date."""
LINE_PAUSE_S = 10.0
"""How often, where there is no terminal, a status becomes a line."""

_CLEAR = b"\x1b[J"
"""From the cursor to the end of the screen."""
_DOWN = b"\x1bD"
"""One line, in the same column; at the bottom all moves up."""
_SAVE, _RESTORE = b"\x1b7", b"\x1b8"
"""Where the cursor is."""

Note = tuple[bytes, bytes, bool]
"""Whose status, the status, whether it is the last."""


def line(owner: str, text: str, is_last: bool) -> bytes:
    """The line that says what the status is now."""
    flag = b"-" if is_last else b"+"
    return MARK + owner.encode() + b" " + flag + " ".join(text.split("\n")).encode(errors="replace") + b"\n"


def split(lines: bytes) -> tuple[bytes, list[Note]]:
    """What of these whole lines is ordinary output, and what is status."""
    others, notes = [], []
    for one in lines.splitlines(keepends=True):
        before, mark, after = one.partition(MARK)
        owner, blank, rest = after.partition(b" ")
        if mark and blank and rest[:1] in (b"+", b"-"):
            notes.append((owner, rest[1:].rstrip(b"\r\n"), rest[:1] == b"-"))
            one = before + b"\n" if before else b""  # somebody had begun a line
        others.append(one)
    return b"".join(others), notes


class Status:
    """The status lines that are there now, and how much of the terminal they take.

    They are drawn below the line with the cursor, which goes back to its place: what another process writes to the same
    terminal, as the driver does, finds its own line as it was. Nothing depends on where that moves the cursor.
    """

    def __init__(self, write: Callable[[bytes], object], size: Callable[[], tuple[int, int]] | None) -> None:
        """Write with `write`; `size` tells the columns and rows of the terminal, None: there is none."""
        self._write = write
        self._size = size
        self._texts: dict[bytes, bytes] = {}
        self._written_s: dict[bytes, float] = {}
        """Without a terminal: when each was last written, or first heard of."""
        self._is_shown = False
        self._drawn_s = 0.0
        self.is_stale = False
        """Whether something has changed since they were drawn."""

    def take(self, prefix: bytes, note: Note) -> None:
        """A status has changed."""
        owner, text, is_last = note
        text = prefix + text
        if self._size is None:
            since_s = self._written_s.setdefault(owner, time.monotonic())
            if is_last or time.monotonic() - since_s >= LINE_PAUSE_S:
                self._written_s[owner] = time.monotonic()
                self._write(text + b"\n")
            if is_last:
                del self._written_s[owner]
        elif is_last:
            self._texts.pop(owner, None)
            self.hide()
            self._write(text + b"\n")
        else:
            self._texts[owner] = text
            self.is_stale = True

    def hide(self) -> None:
        """Take them off the terminal, because something else is written; they come back with `draw`."""
        if self._is_shown:
            self._is_shown = False
            self._write(_CLEAR)
        self.is_stale = bool(self._texts)

    def wait_s(self) -> float | None:
        """How long until they should be drawn, in seconds; None: they need not."""
        if not self.is_stale:
            return None
        return max(0.0, self._drawn_s + PAUSE_S - time.monotonic())

    def draw(self) -> None:
        """Bring the terminal up to date."""
        assert self._size is not None
        columns, rows = self._size()
        texts = list(self._texts.values())
        room = max(1, rows - 2)
        if len(texts) > room:
            texts[room - 1 :] = [f"... and {len(texts) - room + 1} more".encode()]
        shown = b"\n".join(text.decode(errors="replace")[: columns - 1].encode() for text in texts)
        count = len(texts)
        self._write(_DOWN * count + b"\x1b[%dA" % count + _CLEAR + _SAVE + b"\n" + shown + _RESTORE)
        self._is_shown, self.is_stale, self._drawn_s = True, False, time.monotonic()


def terminal(descriptor: int) -> Callable[[], tuple[int, int]] | None:
    """A function that tells the size of the terminal behind a descriptor; None if there is none."""
    if not os.isatty(descriptor):
        return None

    def size() -> tuple[int, int]:
        columns, rows = os.get_terminal_size(descriptor)
        return columns or 80, rows or 24  # some say nothing

    return size
