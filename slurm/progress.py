"""What a job writes, and below it how the job gets on: for people who wait for it."""

import os
from typing import IO

_CLEAR = "\r\x1b[K"
"""To the begin of the line, which is then empty."""


class Progress:
    """Lines about a job. On a terminal there is one, which is replaced; elsewhere news alone become lines."""

    def __init__(self, out: IO[str], log: IO[str]) -> None:
        """`out` gets what the job writes, `log` how it gets on; they may be the same terminal."""
        self._out, self._log = out, log
        self._replaces = log.isatty()
        self._is_shown = False
        self._is_amid_a_line = False
        """Whether the job has begun a line of the terminal, in which nothing else can stand then."""

    def write(self, text: str) -> None:
        """Write what the job has written."""
        self._hide()
        self._out.write(text)
        self._out.flush()
        self._is_amid_a_line = self._replaces and self._out.isatty() and not text.endswith("\n")

    def show(self, text: str, is_news: bool, is_last: bool) -> None:
        """Say how the job gets on, in one line; the last stays."""
        if is_last or not self._replaces:
            if is_last or is_news:
                self._hide()
                print("\n" * self._is_amid_a_line + text, file=self._log, flush=True)
        elif not self._is_amid_a_line:
            columns = os.get_terminal_size(self._log.fileno()).columns or 80
            print(_CLEAR + text[: columns - 1], end="", file=self._log, flush=True)
            self._is_shown = True

    def _hide(self) -> None:
        if self._is_shown:
            print(_CLEAR, end="", file=self._log, flush=True)
            self._is_shown = False
