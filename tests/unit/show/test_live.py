"""A job as it is seen from outside, second by second: honest estimates."""

from typing import Any

import pytest

from mpi_runtime.show import live
from mpi_runtime.show.job import document
from mpi_runtime.show.live import LiveJob
from tests.unit.show.test_pages import glance_of


def seen(monkeypatch: pytest.MonkeyPatch, open_of_others: int) -> LiveJob:
    """A job of which two calls of `a` end each second, and none of `b`; its time ends after 100 s."""
    now_s = 1000.0
    monkeypatch.setattr(live.time, "time", lambda: now_s)

    def ask(what: str, argument: Any) -> Any:
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


def test_what_will_not_end_in_the_time_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = seen(monkeypatch, open_of_others=10)
    assert job.facts.estimates["a"].end_s == pytest.approx(1200, abs=3)
    card = when(job)
    assert card["bad"]
    assert card["rows"][:2] == [["calls open at its end", "210"], ["a, open at the end", "200", "a"]]


def test_the_rate_of_one_function_says_nothing_about_another(monkeypatch: pytest.MonkeyPatch) -> None:
    job = seen(monkeypatch, open_of_others=1000)
    assert list(job.facts.estimates) == ["a"]
    card = when(job)
    assert card["big"].startswith("> ")
    assert card["small"] == "when a may be done"
    assert card["rows"] == [["b: too few have ended", "1\u202f000", "b"]]
    assert card["bad"], "already the known calls will not end in its time"
