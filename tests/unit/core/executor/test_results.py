"""Ends of calls on their way to the head. Of errors only the first of each kind have tracebacks."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mpi_runtime.core.client.executor_feed import Feed
from mpi_runtime.core.executor import results as module
from mpi_runtime.core.executor.results import Results
from mpi_runtime.scheduler.protocol.events import Call, Returned, Spec, TaskSpec
from mpi_runtime.scheduler.protocol.limits import WANTED_MAX


@pytest.fixture
def results() -> Results:
    setup = SimpleNamespace(rank=0, hostname="here")
    request = SimpleNamespace(gpu_ids=(), devices=(), variables={})
    nothing: Any = SimpleNamespace()
    return Results(nothing, nothing, cast(Any, setup), cast(Any, request), lambda spec: None)


def traced(results: Results, text: str) -> bool:
    """Whether an error with this text has its traceback."""
    return "Error" in results._trace(Spec(1, TaskSpec(), "f", b""), ValueError(text), text)


def test_the_first_errors_of_a_kind_have_tracebacks(results: Results) -> None:
    assert [traced(results, f"no pose after {steps} steps") for steps in range(5)] == [True, True, True, False, False]


def test_errors_of_endless_kinds_are_not_remembered(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRACED_KINDS_MAX", 10)
    seen = [traced(results, "x" * length) for length in range(1000)]
    assert seen == [True] * 10 + [False] * 990
    assert len(results._traced) == 10
    assert traced(results, "x"), "one of those that are known"


def test_the_end_of_a_spent_gang_is_reported_with_errors_inside_the_value() -> None:
    sent: list[Any] = []
    scopes = SimpleNamespace(current=lambda: SimpleNamespace(has_errors=True))
    client = SimpleNamespace(
        scopes=scopes,
        store=None,
        blocking=SimpleNamespace(is_reported=False),
        feed=Feed(),
        outbox=SimpleNamespace(post_now=sent.append),
    )
    setup, request = SimpleNamespace(rank=0, hostname=""), SimpleNamespace(gpu_ids=(), devices=(), variables={})
    found = Results(cast(Any, client), cast(Any, SimpleNamespace(attempts={})), setup, request, lambda spec: None)  # type: ignore[arg-type]
    found.ends_gang = True
    found.ended(Spec(1, TaskSpec(), "f", b""), Call(b"c" * 16, 1, b"", digest=b"d"), 0, None)
    (end,) = sent
    assert isinstance(end, Returned)
    assert (end.ends_gang, end.has_errors) == (True, True)


@pytest.mark.parametrize(
    ("wanted", "us", "behind", "at_once"),
    [
        (True, 60, 1, True),
        (True, 10, 1, False),  # the next one ends before the head has read a message
        (True, 60, WANTED_MAX, False),  # others have as much to do
        (False, 60, 1, False),
        (False, 10, 0, True),
        (False, 2000, 1, True),
    ],
)
def test_the_end_of_a_call_for_which_others_wait_is_not_held_back(
    wanted: bool, us: int, behind: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = 1_000_000
    monkeypatch.setattr(module, "_since", lambda start_us: now_us - start_us)
    feed, sent, held = Feed(), list[Any](), list[Any]()
    for _ in range(behind):
        feed.came(Call(b"b" * 16, 1, b""), [])
    outbox = SimpleNamespace(post_now=sent.append, post=held.append, entrust=lambda end, gather_us: held.append(end))
    client = SimpleNamespace(store=None, blocking=SimpleNamespace(is_reported=False), feed=feed, outbox=outbox)
    setup, request = SimpleNamespace(rank=0, hostname=""), SimpleNamespace(gpu_ids=(), devices=(), variables={})
    found = Results(cast(Any, client), cast(Any, SimpleNamespace(attempts={})), setup, request, lambda spec: None)  # type: ignore[arg-type]
    call = Call(b"c" * 16, 1, b"", wanted=wanted)
    found.ended(Spec(1, TaskSpec(), "f", b"", max_retries=3), call, now_us - us, None)
    assert [len(sent), len(held)] == [int(at_once), int(not at_once)]
