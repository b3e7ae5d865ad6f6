"""The output of a job, with its progress below."""

import os
from typing import IO

_CLEAR = "\r\x1b[K"
"""Go to the beginning of the line and clear it."""


class Progress:
    """Shows the output and the progress of a job.

    On a terminal the progress is one line, which is replaced. Elsewhere a line is written for each change.
    """

    def __init__(self, out: IO[str], log: IO[str]) -> None:
        """`out` gets the output of the job, `log` its progress. They may be the same terminal."""
        self._out, self._log = out, log
        self._replaces = log.isatty()
        self._is_shown = False
        self._is_amid_a_line = False
        """Whether the output of the job has ended in the middle of a line on the terminal."""

    def write(self, text: str) -> None:
        """Write output of the job."""
        self._hide()
        self._out.write(text)
        self._out.flush()
        self._is_amid_a_line = self._replaces and self._out.isatty() and not text.endswith("\n")

    def show(self, text: str, is_news: bool, is_last: bool) -> None:
        """Show the progress, one line. `is_news`: it has changed. `is_last`: the line stays."""
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
