"""The mark of calls that bring their own scheduler: which environments have it, and what GPUs are called inside."""

import pytest

from mpi_runtime.core.executor import own_scheduler_mark
from mpi_runtime.scheduler.protocol.events import BRINGS, OWN_SCHEDULER

OUTER = {"A": "1", "=working_dir": "abc.0123", OWN_SCHEDULER: BRINGS}


def test_inside_there_are_variables_and_no_archives() -> None:
    inside = own_scheduler_mark.inside(OUTER, [3, 5])
    assert set(inside) == {"A", OWN_SCHEDULER}
    assert [own_scheduler_mark.is_inside(one) for one in ({}, OUTER, inside)] == [False, False, True]
    assert [own_scheduler_mark.brings_one(one) for one in ({}, OUTER, inside)] == [False, True, False]


def test_inside_texts_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that refers to variables is not replaced a second time."""
    monkeypatch.setenv("A", "/x:/bin")
    assert own_scheduler_mark.inside({"A": "/x:${A}", "B": "2"}, []) == {"A": "/x:/bin", "B": "2", OWN_SCHEDULER: ""}


def test_gpus_keep_their_ids() -> None:
    inside = own_scheduler_mark.inside(OUTER, [3, 5])
    assert own_scheduler_mark.numbers(inside, [0]) == [3]
    assert own_scheduler_mark.numbers(inside, [1, 0]) == [5, 3]
    assert own_scheduler_mark.numbers(OUTER, [1]) == own_scheduler_mark.numbers({}, [1]) == [1]
    assert own_scheduler_mark.numbers(own_scheduler_mark.inside(OUTER, []), []) == []
