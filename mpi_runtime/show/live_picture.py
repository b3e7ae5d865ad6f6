"""A picture in a terminal that is redrawn in its place, by rich where that is installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

PAUSE_S = 0.5
"""Seconds between pictures."""


class LivePicture:
    """The picture. `live_picture` makes it."""

    def __init__(self, file: TextIO | None, is_transient: bool, is_screen: bool) -> None:
        from rich.console import Console  # not at the top: it need not be installed
        from rich.live import Live

        self.console = Console(file=file)
        self._live = Live(console=self.console, auto_refresh=False, transient=is_transient, screen=is_screen)
        self._shown_s = 0.0

    def __enter__(self) -> LivePicture:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it: the last picture stays, unless it is transient."""
        self._live.stop()

    def show(self, picture: Callable[[], RenderableType], pause_s: float = PAUSE_S) -> None:
        """Show this in place of the last picture. It is made only if it is time for a new one."""
        if time.monotonic() - self._shown_s >= pause_s:
            self._live.start()
            self._live.update(picture(), refresh=True)
            self._shown_s = time.monotonic()

    def show_lines(self, lines: Callable[[], list[str]]) -> None:
        """Show lines of plain text, as `show` does."""
        from rich.text import Text

        self.show(lambda: Text("\n".join(lines())))

    def say(self, line: str) -> None:
        """Write a line above the picture."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def live_picture(file: TextIO, is_transient: bool = False, is_screen: bool = False) -> LivePicture | None:
    """A picture on this stream, which begins with the first `show` or a `with` block.

    None if that is not a terminal, or rich is not installed. It is removed at the end if it `is_transient`, and takes
    the whole terminal while it is shown if it `is_screen`.
    """
    return LivePicture(file, is_transient, is_screen) if file.isatty() and find_spec("rich") is not None else None
