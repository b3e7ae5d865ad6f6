"""A batch in a terminal while it runs, drawn by rich where that is installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

PAUSE_S = 0.5
"""How long a picture stays at least."""


class Live:
    """The picture; use it as a context manager, so that the terminal is left as it was."""

    def __init__(self, display: Any, text: Callable[[str], Any]) -> None:
        """Use `live_view` to make one.

        Args:
            display: `rich.live.Live`.
            text: makes something of a text that rich can show.
        """
        self._display = display
        self._text = text
        self._shown_s = 0.0

    def __enter__(self) -> Live:
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def show(self, lines: Callable[[], list[str]]) -> None:
        """Show these lines in place of the last ones, if it is time to; only then they are made."""
        if time.monotonic() - self._shown_s >= PAUSE_S:
            self._display.update(self._text("\n".join(lines())), refresh=True)
            self._shown_s = time.monotonic()

    def say(self, line: str) -> None:
        """Write a line above the picture."""
        self._display.console.print(line, markup=False, highlight=False, soft_wrap=True)


def live_view() -> Live | None:
    """A picture on standard error; None: that is no terminal, or rich is not installed."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console  # not at the top: it is not needed elsewhere, and need not be installed
        from rich.live import Live as Display
        from rich.text import Text
    except ImportError:
        return None
    return Live(Display(console=Console(stderr=True), auto_refresh=False, transient=True), Text)
