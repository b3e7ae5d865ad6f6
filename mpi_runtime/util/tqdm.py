"""Progress bars in tasks and actors, shown together where the program was started.

    from mpi_runtime.util.tqdm import tqdm

    @mpi_runtime.remote
    def work(number):
        for _ in tqdm(range(1000), desc=f"part {number}"):
            ...

    mpi_runtime.get([work.remote(number) for number in range(4)])

A bar in a task writes its text to the standard error of its process, at most ten times a second, as a status line. It
travels with all output, so neither the driver nor an actor has to poll, and the process that writes all output keeps
the bars below it. On a terminal the bars are redrawn in place. Without one, as in batch jobs and under most launchers,
each bar is a line every ten seconds and one at its end. A bar in the driver is plain tqdm. Without output of tasks
(`init(log_to_driver=False)`) their bars are not shown.
"""

from __future__ import annotations

import io
import os
import threading
import uuid
from collections.abc import Iterable
from typing import Any

from mpi_runtime.extend import job_or_none, status_line

try:
    from tqdm.std import tqdm as plain_tqdm
except ImportError as error:
    raise ModuleNotFoundError(
        "mpi_runtime.util.tqdm needs tqdm, which cannot be imported here: pip install tqdm"
    ) from error

__all__ = ["safe_print", "tqdm"]


def tqdm(
    iterable: Iterable[object] | None = None,
    desc: str | None = None,
    total: float | None = None,
    unit: str | None = None,
    position: int | None = None,
) -> Any:
    """A progress bar around an iterable, or one that `update` advances.

        with tqdm(total=100, desc="load", unit="file") as bar:
            bar.update(5)

    Args:
        desc: a word in front of the bar.
        total: the number of steps; by default the length of the iterable, if it has one.
        unit: the name of a step; "it" by default.
        position: the row, for bars in the driver. Bars of tasks are shown in the order in which they began.

    Returns:
        An object of the library tqdm, with its methods `update`, `close`, `set_description`, `refresh` and others.
    """
    client = job_or_none()
    kind: Any = _Bar if client is not None and client.executor is not None else plain_tqdm
    return kind(iterable, desc=desc, total=total, unit="it" if unit is None else unit, position=position)


def safe_print(*args: object, **kwargs: Any) -> None:
    """Print in the driver without breaking its bars. In tasks plain `print` does so too."""
    with plain_tqdm.external_write_mode(file=kwargs.get("file")):
        print(*args, **kwargs)


class _Bar(plain_tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar that writes its text as a status line."""

    monitor_interval = 0
    """No thread for bars that do not move: it would outlive the task."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._owner = uuid.uuid4().hex
        super().__init__(*args, **{**kwargs, "file": io.StringIO(), "position": None})

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write the text of the bar. The library calls this when it has changed, and once more at the end."""
        del pos
        text = str(self) if msg is None else msg
        os.write(2, status_line(self._owner, text, is_last=self.disable))
        return True


_Bar.set_lock(threading.RLock())  # bars of one process: the library's own lock is one for several, with a semaphore
