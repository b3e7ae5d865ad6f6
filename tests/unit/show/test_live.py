"""A job as it is seen from outside, second by second: honest estimates."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mpi_runtime.core.head.inspection import NOTHING, reply_to
from mpi_runtime.scheduler.protocol.past import Run, Runs
from mpi_runtime.scheduler.protocol.questions import Question
from mpi_runtime.scheduler.protocol.window_questions import (
    BusyProcess,
    Errors,
    FirstActors,
    FunctionEntry,
    Glance,
    Output,
    Pieces,
    Reply,
    RunsSince,
    Several,
    Stack,
)
from mpi_runtime.show import live, stacks
from mpi_runtime.show.job import document
from mpi_runtime.show.live import Asking, LiveJob
from tests.unit.show.test_pages import glance_of


def asking(answer: Callable[[Question[object]], object]) -> Asking:
    """The window of a job with these answers."""

    def ask(question: Question[object]) -> Reply | None:
        if isinstance(question, Several):
            return reply_to(question, lambda _: [reply_to(one, answer) for one in question.questions])
        return reply_to(question, answer)

    return ask


def quiet(question: Question[object]) -> object:
    """The answers of a job that does nothing."""
    if isinstance(question, Glance):
        return glance_of()
    if isinstance(question, Output):
        return Pieces(0, [])
    raise LookupError("there is none")


def function(name: str, **counts: int) -> FunctionEntry:
    return FunctionEntry(name=name, kind="NORMAL_TASK", needs="1 CPU", **counts)


def seen(monkeypatch: pytest.MonkeyPatch, open_of_others: int, put_back_s: float = 0.0) -> LiveJob:
    """A job of which two calls of `a` end each second, and none of `b`; its time ends after 100 s.

    After 15 s the clock is put back by `put_back_s`.
    """
    now_s = 1000.0
    monkeypatch.setattr(live.time, "time", lambda: now_s - (put_back_s if now_s >= 1015 else 0))

    def answer(question: Question[object]) -> object:
        if not isinstance(question, Glance):
            return quiet(question)
        glance, ended = glance_of(), int(2 * (now_s - 1000))
        functions = [
            function("a", submitted=400, done=ended, running=2, waiting=398 - ended),
            function("b", submitted=open_of_others, waiting=open_of_others),
        ]
        counts = replace(
            glance.counts,
            submitted=400 + open_of_others,
            finished=ended,
            failed=0,
            running=2,
            waiting=398 - ended + open_of_others,
        )
        return replace(glance, counts=counts, functions=functions, errors=[], running=[], end_us=1100 * 10**6)

    job = LiveJob("app.py", 1, asking(answer))
    for second in range(31):
        now_s = 1000.0 + second
        assert job.sample()
    return job


def when(job: LiveJob) -> dict[str, Any]:
    (answers,) = [one for one in document(job.facts)["blocks"] if one["id"] == "answers"]
    found: dict[str, Any] = answers["cards"][3]
    return found


def test_a_clock_that_is_put_back_costs_estimates_only_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    job = seen(monkeypatch, 0, put_back_s=500)
    assert job.facts.estimates["a"].end_s == pytest.approx(700, abs=3)
    assert job.facts.rates["a"] == pytest.approx(2)


def test_what_will_not_end_in_the_time_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = seen(monkeypatch, open_of_others=10)
    assert job.facts.estimates["a"].end_s == pytest.approx(1200, abs=3)
    card = when(job)
    assert card["bad"]
    assert card["rows"][:2] == [["calls open at its end", "210"], ["a, open at the end", "200", "a"]]


@pytest.mark.parametrize(("each_s", "basis"), [(1.0, True), (0.01, False)])
def test_a_first_look_estimates_from_the_calls_that_have_ended_before(
    monkeypatch: pytest.MonkeyPatch, each_s: float, basis: bool
) -> None:
    """Calls ended one after the other until now; each tenth failed."""
    monkeypatch.setattr(live.time, "time", lambda: 1000.0)
    starts = [1000.0 - each_s * number for number in range(100, 0, -1)]
    runs = [
        Run("a", 0, "n", 0, 7, "", 0, round(start_s * 1e6), round(each_s * 1e6), int(number % 10 == 9), 0, 1.0, 0.0, [])
        for number, start_s in enumerate(starts)
    ]

    def answer(question: Question[object]) -> object:
        if isinstance(question, RunsSince):
            return Runs(100, runs)
        if not isinstance(question, Glance):
            return quiet(question)
        glance = glance_of()
        glance.functions = [function("a", submitted=280, done=90, failed=10, running=1, waiting=179)]
        counts = {"submitted": 280, "finished": 90, "failed": 10, "running": 1, "waiting": 179, "ran": 100}
        glance.counts = replace(glance.counts, **counts)
        return glance

    job = LiveJob("app.py", 1, asking(answer))
    assert job.sample()
    if not basis:
        assert not job.facts.estimates
        assert when(job)["rows"] == [["a: too few have ended", "180", "a"]]
        return
    assert job.facts.estimates["a"].end_s == pytest.approx(1200, abs=10)
    assert job.facts.rates["a"] == pytest.approx(0.9, abs=0.05)


def test_the_rate_of_one_function_says_nothing_about_another(monkeypatch: pytest.MonkeyPatch) -> None:
    job = seen(monkeypatch, open_of_others=1000)
    assert list(job.facts.estimates) == ["a"]
    card = when(job)
    assert card["big"].startswith("> ")
    assert card["small"] == "when a may be done"
    assert card["rows"] == [["b: too few have ended", "1\u202f000", "b"]]
    assert card["bad"], "already the known calls will not end in its time"


@pytest.mark.parametrize("is_too_large", [False, True])
def test_questions_go_together_and_one_by_one_if_the_answer_is_too_large(is_too_large: bool) -> None:
    asked: list[str] = []

    def answer(question: Question[object]) -> object:
        if isinstance(question, Stack) and question.host == "b":
            raise LookupError("there is none")
        return question.host if isinstance(question, Stack) else None

    def ask(question: Question[object]) -> Reply | None:
        asked.append(type(question).__name__)
        if isinstance(question, Several) and is_too_large:
            return Reply("the answer is too large", NOTHING)
        return asking(answer)(question)

    job = LiveJob("app.py", 1, ask)
    questions = Stack("a", 1), Stack("b", 2), Stack("c", 3)
    replies = job._together(*questions)
    assert [reply.problem if reply is not None else None for reply in replies] == ["", "there is none", ""]
    assert replies[0] is not None
    assert replies[0].to(questions[0]) == "a"
    assert asked == (["Several", "Stack", "Stack", "Stack"] if is_too_large else ["Several"])


def test_an_answer_of_another_version_is_refused_in_words() -> None:
    reply = Reply("", msgspec.Raw(msgspec.msgpack.encode({"runs": []})))
    with pytest.raises(LookupError, match="is the job one of another version"):
        reply.to(Glance())


def test_a_question_that_cannot_be_answered_neither_ends_the_job_nor_stops_its_page() -> None:
    refused: set[type[Question[object]]] = {FirstActors, Errors, Several}

    def ask(question: Question[object]) -> Reply | None:
        if type(question) in refused:
            return Reply("the answer is too large", NOTHING)
        return asking(quiet)(question)

    job = LiveJob("app.py", 1, ask)
    assert job.sample()
    assert document(job.facts)["pill"][1] == "Running"
    refused.add(Glance)
    with pytest.raises(LookupError):
        job.sample()


def test_the_stack_of_a_process_on_another_host_is_asked_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "work (app.py:3)"])
    monkeypatch.setattr(stacks.time, "sleep", lambda _: None)
    job = LiveJob("app.py", 1, asking(lambda _: next(answers)))
    running = [BusyProcess("work", "NORMAL_TASK", False, "far", 1, 77, 10, "id", "")]
    job.facts.glance = replace(glance_of(), running=running, nodes=[])
    assert job.stack("far", 77) == "work (app.py:3)"
    assert "neither a running call" in job.stack("far", 78)
    assert "neither a running call" in job.stack("near", 77)
