"""The window of a job: a local socket at which other programs of the same user see its state.

A visitor connects, sends one question of `scheduler/protocol/window_questions.py` in msgpack, and gets a `Reply`. One
that asks to `Watch` gets it when the program ends the job: the final state. If the job is killed, it gets none.
Any user of the host can connect to the address, so the window asks the kernel for the user of each connection
(SO_PEERCRED), and answers only the job's user and root. See docs/decisions/0602.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial

import msgspec

from mpi_runtime.core.transport.local import user_of
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.questions import Question
from mpi_runtime.scheduler.protocol.window_questions import Glance, Reply, Watch, WindowQuestion

BACKLOG = 8
VISITORS_MAX = 16
"""The most open connections. Of more, the one that came first is closed."""
QUESTION_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 200_000
"""What a new Unix socket takes at once, on a system that has not been tuned."""
TOO_LARGE = "the answer is too large"
_question: msgspec.msgpack.Decoder[WindowQuestion] = msgspec.msgpack.Decoder(WindowQuestion)
NOTHING = msgspec.Raw(msgspec.msgpack.encode(None))
"""The value of a reply with a problem."""


def prefix() -> str:
    """Return the prefix of the addresses of this user's jobs; the process id of the driver follows."""
    return f"mpi_runtime-job-{os.geteuid()}-"


INSIDE = "-inside"
"""The end of the addresses of jobs inside calls with a scheduler of their own, after the process id of the executor."""


def reply_to(question: Question[object], answer: Callable[[Question[object]], object]) -> Reply:
    """The reply to a question, with the problem if `answer` raises one: a visitor must not end the job."""
    try:
        return Reply("", msgspec.Raw(msgspec.msgpack.encode(answer(question))))
    except Exception as error:
        return Reply(f"{error}" or type(error).__name__, NOTHING)


def _send(visitor: socket.socket, reply: Reply) -> None:
    data = msgspec.msgpack.encode(reply)
    if len(data) > ANSWER_BYTES_MAX:
        data = msgspec.msgpack.encode(Reply(TOO_LARGE, NOTHING))
    with contextlib.suppress(OSError):  # it may have closed the connection
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(data) + 4096)
        visitor.sendall(data)  # it fits into the buffer of a new connection


class Window:
    """A socket that answers as long as the job runs."""

    def __init__(
        self,
        poller: Poller,
        driver: int,
        answer: Callable[[Question[object]], object],
        is_inside: bool = False,
    ) -> None:
        """Open the socket of the job of the driver with this id. If the system refuses, the job has no window.

        `answer` answers a question about the job. It raises LookupError if it cannot.
        `is_inside`: whether a call is the driver.
        """
        self._poller = poller
        self._answer = answer
        self._socket: socket.socket | None = None
        self._visitors: dict[int, socket.socket] = {}
        """By descriptor, the oldest first: connections that have not asked, or that watch."""
        with contextlib.suppress(OSError):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._socket.bind(f"\0{prefix()}{driver}{INSIDE if is_inside else ''}")
            self._socket.listen(BACKLOG)
            poller.add(self._socket, self._on_visitors)
            return
        self.close()

    def _on_visitors(self) -> None:
        assert self._socket is not None
        for _ in range(BACKLOG):
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            if user_of(visitor) not in (0, os.geteuid()):
                visitor.close()
                continue
            visitor.setblocking(False)
            if len(self._visitors) >= VISITORS_MAX:
                self._drop(next(iter(self._visitors)))
            self._visitors[visitor.fileno()] = visitor
            self._poller.add(visitor, partial(self._on_question, visitor.fileno()))

    def _on_question(self, descriptor: int) -> None:
        visitor = self._visitors[descriptor]
        try:
            data = visitor.recv(QUESTION_BYTES_MAX)
            question = _question.decode(data) if data else None
        except msgspec.ValidationError as error:
            problem = f"the job cannot read the question ({error}): is the asker one of another version?"
            _send(visitor, Reply(problem, NOTHING))
            question = None
        except (OSError, msgspec.DecodeError):  # it has closed the connection, or is not a program of ours
            question = None
        if isinstance(question, Watch):
            return
        if question is not None:
            _send(visitor, reply_to(question, self._answer))
        self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        visitor = self._visitors.pop(descriptor)
        self._poller.remove(visitor)
        visitor.close()

    def close(self, has_ended: bool = False) -> None:
        """Close the socket. If the program has ended the job, those who watch get the final state first."""
        for descriptor in list(self._visitors):
            if has_ended:
                _send(self._visitors[descriptor], reply_to(Glance(), self._answer))
            self._drop(descriptor)
        if self._socket is not None:
            self._poller.remove(self._socket)
            self._socket.close()
            self._socket = None
