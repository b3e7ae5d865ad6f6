"""`ray.LoggingConfig`: the driver and all executors log lines with the ids of job, process, node, actor and call."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from typing import Any, Literal

import mpi_runtime
from mpi_runtime.show import log

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FORMATS = ("TEXT", "JSON")
_OF_SERVE = "ray_serve_extra_fields"
"""An attribute of records that Ray writes as its items."""
_TIMESTAMP = "_ray_timestamp_ns"
"""The attribute of records that lines show as `timestamp_ns`."""


class LoggingConfig:
    """Settings of logging, for `init(logging_config=...)`."""

    def __init__(
        self,
        encoding: Literal["TEXT", "JSON"] = "TEXT",
        log_level: str = "INFO",
        additional_log_standard_attrs: list[str] | None = None,
    ) -> None:
        """Make settings.

        Args:
            encoding: "TEXT", or "JSON" for an object in each line.
            log_level: the level of the root logger.
            additional_log_standard_attrs: attributes of `logging.LogRecord` that each line has too.

        Raises:
            ValueError: an argument is not one of those that exist.
        """
        if encoding not in _FORMATS:
            raise ValueError(f"encoding must be one of {', '.join(_FORMATS)}, not {encoding!r}")
        for one in additional_log_standard_attrs or ():
            if one not in _STANDARD:
                raise ValueError(
                    f"additional_log_standard_attrs has {one!r}; a logging.LogRecord has {', '.join(sorted(_STANDARD))}"
                )
        self.encoding = encoding
        self.log_level = log_level
        self.additional_log_standard_attrs = list(additional_log_standard_attrs or ())

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"LoggingConfig({values})"

    def to_dict(self) -> dict[str, object]:
        """Return the settings as a dictionary."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> LoggingConfig:
        """Make settings from those of a dictionary that exist."""
        names = vars(cls())
        return cls(**{name: value for name, value in settings.items() if name in names})

    def apply(self) -> None:
        """Have the root logger of this process write to the standard error in this format, once."""
        root = logging.getLogger()
        root.setLevel(self.log_level)
        for handler in [one for one in root.handlers if isinstance(one.formatter, _Formatter)]:
            root.removeHandler(handler)
        handler = logging.StreamHandler(sys.stderr)
        formatter = JSONFormatter() if self.encoding == "JSON" else TextFormatter()
        formatter.set_additional_log_standard_attrs(self.additional_log_standard_attrs)
        handler.setFormatter(formatter)
        handler.addFilter(CoreContextFilter())
        root.addHandler(handler)


class CoreContextFilter(logging.Filter):
    """Adds the ids of what runs to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them, and the time in nanoseconds. The record is never left out."""
        # Lines of the runtime name their host and rank. While the job starts and ends it could not be asked for ids.
        vars(record).update({} if record.name == log.NAME else _ids())
        vars(record)[_TIMESTAMP] = int(record.created * 1e9)
        return True


class _Formatter(logging.Formatter):
    """Lines with all that a record has beside the attributes of each record."""

    _attributes: Sequence[str] = ()

    def set_additional_log_standard_attrs(self, additional_log_standard_attrs: Sequence[str]) -> None:
        """Have each line show these attributes too, which each record has."""
        self._attributes = tuple(additional_log_standard_attrs)

    @property
    def additional_log_standard_attrs(self) -> list[str]:
        """These attributes."""
        return list(self._attributes)

    def _facts(self, record: logging.LogRecord) -> dict[str, object]:
        names = [*self._attributes, *(name for name in vars(record) if name not in _STANDARD)]
        facts = {name: getattr(record, name, None) for name in names}
        if _OF_SERVE in facts:
            inside = facts.pop(_OF_SERVE)
            if not isinstance(inside, dict):
                raise ValueError(f"{_OF_SERVE} of a log record must be a dictionary, not {inside!r}")
            facts |= inside
        time_ns = facts.pop(_TIMESTAMP, None) or int(record.created * 1e9)
        return {**facts, "timestamp_ns": time_ns}


class JSONFormatter(_Formatter):
    """An object in each line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
            **({"exc_text": self.formatException(record.exc_info)} if record.exc_info else {}),
            **self._facts(record),
        }
        return json.dumps(line, default=str)


class TextFormatter(_Formatter):
    """A line of text, with names and values at its end."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and the traceback of its error."""
        words = " ".join(f"{name}={value}" for name, value in self._facts(record).items())
        place = f"{self.formatTime(record)} {record.levelname} {record.filename}:{record.lineno}"
        text = f"{place} -- {record.getMessage()} {words}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _ids() -> dict[str, str]:
    """The ids of the running code, as far as it has them."""
    if not mpi_runtime.is_initialized():
        return {}
    context = mpi_runtime.get_runtime_context()
    found = {
        "job_id": context.get_job_id(),
        "worker_id": context.get_worker_id(),
        "node_id": context.get_node_id(),
        "actor_id": context.get_actor_id(),
        "task_id": context.get_task_id(),
        "task_name": context.get_task_name(),
        "task_func_name": context.get_task_function_name(),
        "actor_name": context.get_actor_name(),
    }
    return {name: id for name, id in found.items() if id}


__all__ = ["CoreContextFilter", "JSONFormatter", "LoggingConfig", "TextFormatter"]
