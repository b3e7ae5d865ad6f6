"""A bar in a notebook while `get` of many or `f.map` waits."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

AFTER_S = 1.0
"""A shorter wait has no bar."""
PAUSE_S = 0.5


class Shows(Protocol):
    """What waits, and keeps a bar up to date."""

    bar: Bar | None


class Bar:
    """A bar below the cell that runs."""

    def __init__(self, noun: str, counts: Callable[[], tuple[int, int | None]]) -> None:
        """`counts`: how many have ended, of how many; None: not known yet."""
        self._noun = noun
        self._counts = counts
        self._began_s = time.monotonic()
        self._next_s = self._began_s + AFTER_S
        self._samples: deque[tuple[float, float]] = deque(maxlen=240)
        self._display: Any = None

    def turn(self, is_last: bool = False) -> None:
        """Draw it if it is time."""
        now_s = time.monotonic()
        if now_s < self._next_s and not (is_last and self._display is not None):
            return
        self._next_s = now_s + PAUSE_S
        ipython = importlib.import_module("IPython.display")  # the notebook has it
        done, whole = self._counts()
        self._samples.append((now_s, float(done)))
        form = ipython.HTML(self._html(done, whole, now_s, is_last))
        if self._display is None:
            self._display = ipython.display(form, display_id=True)
        else:
            self._display.update(form)

    def _html(self, done: int, whole: int | None, now_s: float, is_last: bool) -> str:
        from mpi_runtime.show.estimates import estimate  # not at the top: every program loads this module
        from mpi_runtime.show.numbers import count, seconds
        from mpi_runtime.show.tables import in_html

        took = f"in {seconds(now_s - self._began_s)}" if is_last else f"after {seconds(now_s - self._began_s)}"
        text = f"{count(done)} of {'more' if whole is None else count(whole)} {self._noun} {took}"
        found = estimate(self._samples, (whole or done) - done)
        if found is not None and not is_last:
            text += f", about {seconds(max(0.0, found.end_s - now_s))} left"
        size = "" if whole is None else f' value="{done}" max="{whole}"'
        return f'<progress style="width: 20em"{size}></progress> {in_html(text)}'


def in_notebook() -> bool:
    """Whether this is the main thread of a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel") and threading.current_thread() is threading.main_thread()


@contextmanager
def shown(where: Shows, bar: Bar | None) -> Iterator[None]:
    """Keep a bar up to date during a wait. Inside the wait of another bar it is not shown."""
    if bar is None or where.bar is not None:
        yield
        return
    where.bar = bar
    try:
        yield
    finally:
        where.bar = None


def new(noun: str, counts: Callable[[], tuple[int, int | None]]) -> Bar | None:
    """Return a bar in a notebook, None elsewhere."""
    return Bar(noun, counts) if in_notebook() else None
