"""Where lines of the job go, as the program has set up logging."""

import logging
import os
import re
from collections.abc import Iterator

import pytest

from mpi_runtime.show import log


@pytest.fixture(autouse=True)
def plain_logging() -> Iterator[logging.Logger]:
    """As in a program that has set up nothing; pytest has handlers of its own on the root, and so this has another."""
    logger = logging.getLogger(log.NAME)
    root, logger.parent = logger.parent, logging.Logger("root", logging.WARNING)
    yield logger
    logger.parent = root
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.disabled = False
    logger.propagate = True
    logging.disable(logging.NOTSET)


class Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


LINE = log.line(log.INFO, "start", "it\nbegins", 3, "n1")


def test_the_least_level(plain_logging: logging.Logger) -> None:
    assert (log.level(quiet=False), log.level(quiet=True)) == (log.INFO, log.WARNING)
    plain_logging.setLevel(logging.ERROR)
    assert (log.level(quiet=False), log.level(quiet=True)) == (log.ERROR, log.ERROR)
    plain_logging.setLevel(logging.DEBUG)
    assert (log.level(quiet=False), log.level(quiet=True)) == (logging.DEBUG, log.WARNING)
    plain_logging.setLevel(True)
    assert type(log.level(quiet=False)) is int, "it is sent to other processes as a number"
    plain_logging.disabled = True
    assert log.level(quiet=False) > log.CRITICAL
    plain_logging.disabled = False
    logging.disable(logging.WARNING)
    assert log.level(quiet=False) == log.WARNING + 1
    logging.disable(logging.NOTSET)
    plain_logging.setLevel(logging.NOTSET)
    assert not log.has_handler()
    assert plain_logging.parent is not None
    plain_logging.parent.addHandler(Keep())
    assert log.has_handler()
    assert log.level(quiet=False) == log.WARNING, "that of the root, as always"
    plain_logging.propagate = False
    assert not log.has_handler()


def test_without_a_handler_it_is_written(capsys: pytest.CaptureFixture[str], plain_logging: logging.Logger) -> None:
    log.say(LINE, quiet=False)
    assert re.fullmatch(r"\d\d:\d\d:\d\d mpi_runtime: it begins\n", capsys.readouterr().err)
    log.say(LINE, quiet=True)
    plain_logging.setLevel(logging.WARNING)
    log.say(LINE, quiet=False)
    assert capsys.readouterr().err == ""


def test_a_stream_that_is_closed_or_missing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    log.say(LINE, quiet=False)
    with open(os.devnull, "w") as closed:
        pass
    monkeypatch.setattr("sys.stderr", closed)
    log.say(LINE, quiet=False)


def test_a_handler_gets_a_record(capsys: pytest.CaptureFixture[str], plain_logging: logging.Logger) -> None:
    keep = Keep()
    plain_logging.addHandler(keep)
    plain_logging.setLevel(logging.INFO)
    log.say(LINE, quiet=False)
    (record,) = keep.records
    assert record.getMessage() == "it begins"
    assert (record.name, record.levelname) == ("mpi_runtime", "INFO")
    assert [vars(record)[name] for name in ("rank", "host", "event")] == [3, "n1", "start"]
    assert record.created == LINE.time_s
    assert 0 <= record.msecs < 1000
    assert logging.Formatter("%(asctime)s").format(record)
    assert capsys.readouterr().err == ""


def test_lines_of_another_process_come_through_a_listener(plain_logging: logging.Logger) -> None:
    keep = Keep()
    plain_logging.addHandler(keep)
    plain_logging.setLevel(logging.WARNING)
    listener = log.Listener()
    end = os.dup(listener.theirs.fileno())
    log.write(LINE, end)  # below the level, which may have changed since
    log.write(log.line(log.ERROR, "crash", "x" * 100_000), end)
    os.close(end)
    listener.close(10.0)
    assert [record.getMessage()[-4:] for record in keep.records] == ["x..."]
    log.write(LINE, end)  # nobody listens: no reason to fail


def test_a_listener_need_not_wait_for_the_other_end() -> None:
    listener = log.Listener()
    end = os.dup(listener.theirs.fileno())
    listener.close(0.1)
    os.close(end)
