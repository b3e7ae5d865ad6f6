"""The window of a job: questions of its user's programs, over the real socket."""

import os
import socket
from collections.abc import Iterator

import msgspec
import pytest

from mpi_runtime.core.head import inspecting
from mpi_runtime.core.head.inspection import ANSWER_BYTES_MAX, TOO_LARGE, Window, reply_to
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.questions import Question
from mpi_runtime.scheduler.protocol.window_questions import Glance, Oldest, Output, Pieces, Reply, Several, Stack, Watch
from tests.unit.show.test_pages import glance_of

JOB = 10_000_000_000 + os.getpid()
"""The number of no process; the address of a job inside a call is not listed among the jobs of this host."""


def answer(question: Question[object]) -> object:
    if isinstance(question, Several):
        return [reply_to(one, answer) for one in question.questions]
    if isinstance(question, Glance):
        return glance_of()
    if isinstance(question, Stack):
        return "frame " * question.pid
    if isinstance(question, Output):
        return Pieces(question.since, [])
    raise LookupError("no call of f waits")


class Opened:
    """A window, and what visitors get of it."""

    def __init__(self) -> None:
        self.poller = Poller()
        self.window = Window(self.poller, JOB, answer, is_inside=True)

    def visit(self, data: bytes) -> socket.socket:
        connection = inspecting.connected(JOB)
        connection.sendall(data)
        self.poller.poll(1.0)  # it is let in
        self.poller.poll(1.0)  # it is answered
        return connection

    def ask(self, data: bytes) -> Reply | None:
        with self.visit(data) as connection:
            return inspecting.read(connection)


@pytest.fixture
def opened() -> Iterator[Opened]:
    found = Opened()
    yield found
    found.window.close()
    found.poller.close()


def asked(opened: Opened, question: Question[object]) -> Reply:
    reply = opened.ask(msgspec.msgpack.encode(question))
    assert reply is not None
    return reply


def test_an_answer_is_read_as_what_was_asked_for(opened: Opened) -> None:
    assert asked(opened, Glance()).to(Glance()) == glance_of()
    assert asked(opened, Output(3)).to(Output(3)) == Pieces(3, [])
    assert asked(opened, Stack("a", 2)).to(Stack("a", 2)) == "frame frame "


def test_each_of_several_has_its_answer_or_its_problem(opened: Opened) -> None:
    several = Several([Output(1), Oldest("f"), Output(2)])
    first, second, third = asked(opened, several).to(several)
    assert (first.to(Output(1)).count, third.to(Output(2)).count) == (1, 2)
    with pytest.raises(LookupError, match="no call of f waits"):
        second.to(Oldest("f"))


def test_an_answer_that_does_not_fit_is_refused(opened: Opened) -> None:
    assert asked(opened, Stack("a", ANSWER_BYTES_MAX)).problem == TOO_LARGE


@pytest.mark.parametrize("question", [["Weather"], ["Output", "many"], ["glance", None], {"what": "Glance"}])
def test_a_question_of_another_version_is_answered_in_words(opened: Opened, question: object) -> None:
    reply = opened.ask(msgspec.msgpack.encode(question))
    assert reply is not None
    assert reply.problem.startswith("the job cannot read the question (")
    assert reply.problem.endswith("): is the asker one of another version?")
    assert asked(opened, Output(3)).to(Output(3)).count == 3, "others are answered as before"


def test_what_is_no_message_gets_no_answer(opened: Opened) -> None:
    assert opened.ask(b"\xc1") is None
    assert asked(opened, Output(3)).to(Output(3)).count == 3


def test_who_watches_gets_the_final_state_of_a_job_that_its_program_ends(opened: Opened) -> None:
    connection = opened.visit(msgspec.msgpack.encode(Watch()))
    opened.window.close(has_ended=True)
    reply = inspecting.read(connection)
    connection.close()
    assert reply is not None
    assert reply.to(Watch()) == glance_of()


def test_who_watches_a_job_that_is_killed_gets_nothing(opened: Opened) -> None:
    connection = opened.visit(msgspec.msgpack.encode(Watch()))
    opened.window.close()
    assert inspecting.read(connection) is None
    connection.close()
