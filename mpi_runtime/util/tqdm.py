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

_LOCK = threading.RLock()
"""Of the bars of a task: the library's own is one for several processes, with a semaphore."""


def _is_in_call() -> bool:
    """Whether this is a task or an actor: a process is one or the driver as long as it has bars."""
    client = job_or_none()
    return client is not None and client.executor is not None


class tqdm(plain_tqdm):  # type: ignore[misc]  # tqdm has no types
    """A progress bar around an iterable, or one that `update` advances. It has the methods of tqdm's.

        with tqdm(total=100, desc="load", unit="file") as bar:
            bar.update(5)

    It may also be an actor, `remote(tqdm).remote(total=100)`, whose `update` several tasks call.
    """

    def __new__(cls, *_: object, **__: object) -> Any:
        """Make a bar for this kind of process."""
        if _is_in_call():
            cls.monitor_interval = 0  # a thread for bars that do not move would outlive the task
            cls.set_lock(_LOCK)
        return super().__new__(cls)

    def __init__(
        self,
        iterable: Iterable[object] | None = None,
        desc: str | None = None,
        total: float | None = None,
        unit: str | None = None,
        position: int | None = None,
        **others: Any,
    ) -> None:
        """Begin the bar.

        Args:
            iterable: what it counts.
            desc: a word in front of the bar.
            total: the number of steps; by default the length of the iterable, if it has one.
            unit: the name of a step; "it" by default.
            position: the row, for bars in the driver. Bars of tasks are shown in the order in which they began.
            **others: as of tqdm's, but `file` in tasks. Ray's `flush_interval_s` has no effect.
        """
        self._owner = uuid.uuid4().hex if _is_in_call() else ""
        others.pop("flush_interval_s", None)
        if self._owner:
            others["file"], position = io.StringIO(), None
        super().__init__(iterable, desc=desc, total=total, unit=unit or "it", position=position, **others)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Show the bar, in a task as a status line. The library calls this when it has changed, and at the end."""
        if not self._owner:
            return bool(super().display(msg, pos))
        text = str(self) if msg is None else msg
        os.write(2, status_line(self._owner, text, is_last=self.disable))
        return True


def safe_print(*args: object, **kwargs: Any) -> None:
    """Print in the driver without breaking its bars. In tasks plain `print` does so too."""
    with plain_tqdm.external_write_mode(file=kwargs.get("file")):
        print(*args, **kwargs)
