"""Status lines, such as progress bars. A new status replaces the old one, and all are shown below the other output.

A process that runs user code writes a status to its standard error like any other line, with a mark. So it reaches the
head like all output, and the head, which prints it, separates the two on a terminal. Without a terminal, as in batch
jobs and below most launchers, each status is printed as an ordinary line from time to time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MARK = b"\x1emrt-status "
PAUSE_S = 0.1
"""Seconds between updates of the terminal."""
LINE_PAUSE_S = 10.0
"""Seconds between the lines of one status, if there is no terminal."""

_CLEAR = b"\x1b[J"
"""Clear from the cursor to the end of the screen."""
_DOWN = b"\x1bD"
"""Move down one line, in the same column. On the bottom line the screen scrolls."""
_SAVE, _RESTORE = b"\x1b7", b"\x1b8"
"""Save and restore the position of the cursor."""

Note = tuple[bytes, bytes, bool]
"""A status: owner, text, whether it is the owner's last."""


def line(owner: str, text: str, is_last: bool) -> bytes:
    """Return the line, with a mark, by which a process sends its status."""
    flag = b"-" if is_last else b"+"
    return MARK + owner.encode() + b" " + flag + " ".join(text.split("\n")).encode(errors="replace") + b"\n"


def split(lines: bytes) -> tuple[bytes, list[Note]]:
    """Split whole lines into ordinary output and statuses."""
    others, notes = [], []
    for one in lines.splitlines(keepends=True):
        before, mark, after = one.partition(MARK)
        owner, blank, rest = after.partition(b" ")
        if mark and blank and rest[:1] in (b"+", b"-"):
            notes.append((owner, rest[1:].rstrip(b"\r\n"), rest[:1] == b"-"))
            one = before + b"\n" if before else b""  # other output had begun the line
        others.append(one)
    return b"".join(others), notes


class Status:
    """The present status lines, and their drawing on the terminal.

    They are drawn below the line with the cursor, and the cursor is then restored. So output of another process on the
    same terminal, such as the driver, continues its own line. It may move the cursor anywhere.
    """

    def __init__(self, write: Callable[[bytes], object], size: Callable[[], tuple[int, int]] | None) -> None:
        """`write` writes to the terminal; `size` returns its columns and rows. `size` None: there is no terminal."""
        self._write = write
        self._size = size
        self._texts: dict[tuple[int, bytes], bytes] = {}
        """By process and owner."""
        self._written_s: dict[tuple[int, bytes], float] = {}
        """Without a terminal: when the status was last written, or first received."""
        self._is_shown = False
        self._drawn_s = 0.0
        self.is_stale = False
        """Whether a status has changed since they were drawn."""

    def take(self, prefix: bytes, note: Note, process: int = 0) -> None:
        """Take a new status of an owner in a process. Without a terminal it may be written as a line, with prefix."""
        name, text, is_last = note
        owner = process, name
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
            if text:  # else nothing of it is left
                self._write(text + b"\n")
        else:
            self._texts[owner] = text
            self.is_stale = True

    def ended(self, process: int) -> None:
        """Forget the statuses of a process that has ended, which may have been killed before it sent their last."""
        self._texts = {owner: text for owner, text in self._texts.items() if owner[0] != process}
        self._written_s = {owner: at_s for owner, at_s in self._written_s.items() if owner[0] != process}
        self.hide()

    def hide(self) -> None:
        """Clear the status lines before other output is written. `draw` shows them again."""
        if self._is_shown:
            self._is_shown = False
            self._write(_CLEAR)
        self.is_stale = bool(self._texts)

    def wait_s(self) -> float | None:
        """Return the seconds until they should be drawn; None: nothing has changed."""
        if not self.is_stale:
            return None
        return max(0.0, self._drawn_s + PAUSE_S - time.monotonic())

    def draw(self) -> None:
        """Draw the status lines on the terminal."""
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
    """Return a function that returns the size of the terminal behind a descriptor; None if it is not a terminal."""
    if not os.isatty(descriptor):
        return None

    def size() -> tuple[int, int]:
        columns, rows = os.get_terminal_size(descriptor)
        return columns or 80, rows or 24  # some terminals report 0

    return size
