"""A job as it is seen from outside, second by second: honest estimates."""

from typing import Any

import pytest

from mpi_runtime.show import live, stacks
from mpi_runtime.show.job import document
from mpi_runtime.show.live import LiveJob
from tests.unit.show.test_pages import glance_of


def seen(monkeypatch: pytest.MonkeyPatch, open_of_others: int, put_back_s: float = 0.0) -> LiveJob:
    """A job of which two calls of `a` end each second, and none of `b`; its time ends after 100 s.

    After 15 s the clock is put back by `put_back_s`.
    """
    now_s = 1000.0
    monkeypatch.setattr(live.time, "time", lambda: now_s - (put_back_s if now_s >= 1015 else 0))

    def ask(what: str, argument: Any) -> Any:
        if what == "several":
            return [("", ask(*one)) for one in argument]
        if what != "glance":
            return {"output": {"pieces": [], "count": 0}}.get(what)
        glance, ended = glance_of(), int(2 * (now_s - 1000))
        shared = {"kind": "NORMAL_TASK", "needs": "1 CPU", "failed": 0, "mean_us": -1}
        glance["functions"] = [
            {**shared, "name": "a", "submitted": 400, "done": ended, "running": 2, "waiting": 398 - ended},
            {**shared, "name": "b", "submitted": open_of_others, "done": 0, "running": 0, "waiting": open_of_others},
        ]
        glance["counts"] |= {
            "submitted": 400 + open_of_others,
            "finished": ended,
            "failed": 0,
            "running": 2,
            "waiting": 398 - ended + open_of_others,
        }
        return {**glance, "errors": [], "running": [], "end_us": 1100 * 10**6}

    job = LiveJob("app.py", 1, ask)
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
    runs: list[Any] = [
        ("a", 0, "n", 0, 7, "", 0, round(start_s * 1e6), round(each_s * 1e6), number % 10 == 9, 0, 1.0, 0.0, [])
        for number, start_s in enumerate(starts)
    ]

    def ask(what: str, argument: Any) -> Any:
        if what == "several":
            return [("", ask(*one)) for one in argument]
        glance = glance_of()
        shared = {"kind": "NORMAL_TASK", "needs": "1 CPU", "mean_us": -1}
        glance["functions"] = [
            {**shared, "name": "a", "submitted": 280, "done": 90, "failed": 10, "running": 1, "waiting": 179}
        ]
        glance["counts"] |= {"submitted": 280, "finished": 90, "failed": 10, "running": 1, "waiting": 179, "ran": 100}
        return {"glance": glance, "runs": {"ran": 100, "runs": runs}, "output": {"pieces": [], "count": 0}}.get(what)

    job = LiveJob("app.py", 1, ask)
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

    def ask(what: str, argument: Any) -> Any:
        asked.append(what)
        if what == "several" and is_too_large:
            raise LookupError("the answer is too large")
        if what == "several":
            return [("", what) if what != "b" else ("there is none", None) for what, _ in argument]
        if what == "b":
            raise LookupError("there is none")
        return what

    job = LiveJob("app.py", 1, ask)
    assert job._ask_all(("a", 1), ("b", 2), ("c", 3)) == ["a", None, "c"]
    assert asked == (["several", "a", "b", "c"] if is_too_large else ["several"])


def test_a_question_that_cannot_be_answered_neither_ends_the_job_nor_stops_its_page() -> None:
    refused = {"list", "errors", "several"}

    def ask(what: str, _: Any) -> Any:
        if what in refused:
            raise LookupError("the answer is too large")
        return {"glance": glance_of(), "output": {"pieces": [], "count": 0}}.get(what)

    job = LiveJob("app.py", 1, ask)
    assert job.sample()
    assert document(job.facts)["pill"][1] == "Running"
    refused.add("glance")
    with pytest.raises(LookupError):
        job.sample()


def test_the_stack_of_a_process_on_another_host_is_asked_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "work (app.py:3)"])
    monkeypatch.setattr(stacks.time, "sleep", lambda _: None)
    job = LiveJob("app.py", 1, lambda what, argument: next(answers) if what == "stack" else None)
    job.facts.glance = {"running": [("work", "NORMAL_TASK", False, "far", 1, 77, 10, "id", "")], "nodes": []}
    assert job.stack("far", 77) == "work (app.py:3)"
    assert "neither a running call" in job.stack("far", 78)
    assert "neither a running call" in job.stack("near", 77)
