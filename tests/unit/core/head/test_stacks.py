"""Stacks that are asked for through the window: the head does not wait for them."""

import pytest

from mpi_runtime.core.head import stacks
from mpi_runtime.core.head.stacks import KEPT, Stacks
from mpi_runtime.core.transport.messages import StackRead


def test_all_ranks_of_the_host_are_asked_once_and_the_answer_is_kept_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    now_s = 100.0
    monkeypatch.setattr(stacks.time, "monotonic", lambda: now_s)
    found = Stacks(["a", "b", "b"], lambda rank, message: sent.append((rank, message.pid)))
    assert found.answer("b", 7, [0, 1, 2]) == found.answer("b", 7, [0, 1, 2]) == ""
    assert sent == [(1, 7), (2, 7)]
    found.take(StackRead(2, 7, "work()"))
    assert found.answer("b", 7, [0, 1, 2]) == "work()"
    now_s += stacks.FRESH_S
    assert found.answer("b", 7, [0, 2]) == ""
    assert sent[2:] == [(2, 7)], "it is read again, by the rank that lives"
    with pytest.raises(LookupError, match="no rank of the job runs on 'c'"):
        found.answer("c", 7, [0, 1, 2])


def test_only_a_number_of_answers_is_kept() -> None:
    found = Stacks(["a"], lambda *_: None)
    for pid in range(2 * KEPT):
        found.answer("a", pid, [0])
    assert len(found._found) == KEPT
