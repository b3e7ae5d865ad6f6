"""A batch in a terminal while it runs, drawn by rich where that is installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

PAUSE_S = 0.5
"""Seconds between pictures."""


class Live:
    """The picture. `live_view` makes it."""

    def __init__(self, display: Any, text: Callable[[str], Any]) -> None:
        self._display = display
        self._text = text
        self._shown_s = 0.0

    def show(self, lines: Callable[[], list[str]]) -> None:
        """Show these lines in place of the last ones. They are made only if it is time for a new picture."""
        if time.monotonic() - self._shown_s >= PAUSE_S:
            self._display.update(self._text("\n".join(lines())), refresh=True)
            self._shown_s = time.monotonic()

    def say(self, line: str) -> None:
        """Write a line above the picture."""
        self._display.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def live_view() -> Iterator[Live | None]:
    """A picture on standard error inside the block; None if that is not a terminal, or rich is not installed."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield None
        return
    from rich.console import Console  # not at the top: it need not be installed
    from rich.live import Live as Display
    from rich.text import Text

    with Display(console=Console(stderr=True), auto_refresh=False, transient=True) as display:
        yield Live(display, Text)
