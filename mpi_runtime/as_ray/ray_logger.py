"""The logger "ray": its lines are shown from INFO on, in the program and in its calls, as where Ray is imported."""

from __future__ import annotations

import logging
import sys
from typing import Any

logger = logging.getLogger("ray")


class _ToStandardError(logging.StreamHandler[Any]):
    """Where its lines go in a process that has not said where those of all loggers go."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to what is the standard error now: that of a trial may be copied into a file."""
        if not logging.getLogger().handlers:
            self.stream = sys.stderr
            super().emit(record)


def show() -> None:
    """Show them, unless the program has set up this logger."""
    if logger.level == logging.NOTSET and not logger.handlers:
        logger.setLevel(logging.INFO)
        shown = _ToStandardError()
        shown.setFormatter(logging.Formatter("%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"))
        logger.addHandler(shown)
