"""Requests to a batch that runs, as files: no port, and any host that sees the directory can write one.

    request-TOKEN   a `Request` in JSON, whole from the start: it is written under another name, and linked to this one
    answer-TOKEN    the answer of the coordinator in words; it is written in the same way

The coordinator lists the directory of the journal every second, also without other jobs. It answers once what was
requested is in the journal. A request that no coordinator has answered stays for the next. Between two lives of a batch
requests are left for the next coordinator, which does them before it starts commands, and does not answer.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from mpi_runtime.files import private
from mpi_runtime.files.segments import write_all
from mpi_runtime.files.writing import beside

REQUEST, ANSWER = "request-", "answer-"
ANSWER_S = 60.0
"""How long an answer is awaited."""
_LOOK_S = 0.1


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a user wants of a batch."""

    verb: str
    """cancel, pause, resume, priority or add."""
    names: tuple[str, ...] = ()
    """Of commands and arrays."""
    priority: int = 0
    text: str = ""
    """The content of a batch file."""
    form: str = ""
    folder: str = ""
    """The directory of that file."""
    file: str = "line"
    """Its name, for messages."""
    is_left: bool = False
    """Whether nobody waits for the answer, because no job runs the batch at present."""


class Answer(msgspec.Struct, frozen=True):
    """What the coordinator has done."""

    is_done: bool
    words: str


def send(folder: Path, request: Request, limit_s: float = ANSWER_S) -> Answer | None:
    """Send a request to the coordinator, and wait for the answer; None: there was no answer in time.

    Raises:
        OSError: the directory cannot be written to.
    """
    token = os.urandom(8).hex()
    _write(folder, REQUEST + token, msgspec.json.encode(request))
    end_s = time.monotonic() + limit_s
    answer = folder / (ANSWER + token)
    while time.monotonic() < end_s:
        with contextlib.suppress(FileNotFoundError):
            found = msgspec.json.decode(answer.read_bytes(), type=Answer)
            answer.unlink()
            return found
        time.sleep(_LOOK_S)
    (folder / (REQUEST + token)).unlink(missing_ok=True)
    return None


def leave(folder: Path, request: Request) -> None:
    """Leave a request for the next coordinator.

    Raises:
        OSError: the directory cannot be written to.
    """
    # Ordered by time: the next coordinator does them in the order of their names.
    token = f"{time.time_ns():020d}{os.urandom(4).hex()}"
    _write(folder, REQUEST + token, msgspec.json.encode(msgspec.structs.replace(request, is_left=True)))


def pending(folder: Path, names: Iterable[str]) -> list[tuple[str, Request | None]]:
    """The requests among the names in a directory, each with its token; None: it cannot be understood."""
    found: list[tuple[str, Request | None]] = []
    for name in sorted(names):
        if name.startswith(REQUEST):
            request = None
            try:
                data = (folder / name).read_bytes()
            except OSError:
                continue  # withdrawn, or later
            with contextlib.suppress(msgspec.DecodeError):
                request = msgspec.json.decode(data, type=Request)
            found.append((name.removeprefix(REQUEST), request))
    return found


def answer(folder: Path, token: str, answer: Answer, is_left: bool = False) -> None:
    """Answer a request, unless it `is_left` by somebody who does not wait, and remove it."""
    if not is_left:
        _write(folder, ANSWER + token, msgspec.json.encode(answer))
    (folder / (REQUEST + token)).unlink(missing_ok=True)


def _write(folder: Path, name: str, data: bytes) -> None:
    with (
        contextlib.suppress(FileExistsError),  # a coordinator before this one has answered, and died
        beside(folder / name, is_new=True) as spare,
        open(private.create_file(spare), "wb", buffering=0) as file,
    ):
        write_all(file, data)
