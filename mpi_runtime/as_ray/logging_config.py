"""`ray.LoggingConfig`: the driver and all executors log lines with the ids of job, process, node, actor and call."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal

import mpi_runtime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FORMATS = ("TEXT", "JSON")


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

    def apply(self) -> None:
        """Have the root logger of this process write to the standard error in this format, once."""
        root = logging.getLogger()
        root.setLevel(self.log_level)
        for handler in [one for one in root.handlers if isinstance(one.formatter, _Formatter)]:
            root.removeHandler(handler)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter(self.encoding == "JSON", self.additional_log_standard_attrs))
        root.addHandler(handler)


class _Formatter(logging.Formatter):
    """Lines with the ids of what runs."""

    def __init__(self, as_json: bool, attributes: list[str]) -> None:
        super().__init__()
        self._as_json = as_json
        self._attributes = attributes

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        added = {name: getattr(record, name, None) for name in self._attributes}
        facts = {**given, **_ids(), **added, "timestamp_ns": time.time_ns()}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        when = self.formatTime(record)
        if self._as_json:
            line = {
                "asctime": when,
                "levelname": record.levelname,
                "message": record.getMessage(),
                "filename": record.filename,
                "lineno": record.lineno,
                **facts,
                **({"exc_text": trace} if trace else {}),
            }
            return json.dumps(line, default=str)
        words = " ".join(f"{name}={value}" for name, value in facts.items())
        text = f"{when} {record.levelname} {record.filename}:{record.lineno} -- {record.getMessage()} {words}"
        return f"{text}\n{trace}" if trace else text


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
    }
    return {name: id for name, id in found.items() if id}
