"""The end of a call that nothing waits for."""

from __future__ import annotations

import pytest

from mpi_runtime.core.client.futures import Outcome


def test_a_value_is_reported_once_and_can_be_read() -> None:
    reported: list[Outcome[int]] = []
    outcome: Outcome[int] = Outcome(reported.append)
    assert outcome.set_running_or_notify_cancel()
    assert not reported
    outcome.set_result(7)
    assert reported == [outcome]
    assert (outcome.exception(), outcome.result()) == (None, 7)


def test_an_error_is_reported_once_and_raised() -> None:
    reported: list[Outcome[int]] = []
    outcome: Outcome[int] = Outcome(reported.append)
    error = ValueError("wrong")
    outcome.set_exception(error)
    assert reported == [outcome]
    assert outcome.exception() is error
    with pytest.raises(ValueError, match="wrong"):
        outcome.result()
