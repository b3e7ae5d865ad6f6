"""Custody of an executor's calls: what is sent, held back, taken back, dropped, and what a dead one was running."""

from collections import deque

import pytest

from mpi_runtime.core.agent.custody import Custody
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.messages import Drained, ForCalls
from mpi_runtime.core.transport.tokens import Tokens, claim
from mpi_runtime.scheduler.protocol.effects import Ready
from mpi_runtime.scheduler.protocol.events import Call

A, B, C, D, E, F = (bytes([number] * 16) for number in range(6))


def calls(*ids: bytes) -> bytes:
    return codec.encode([Call(id, 1, b"") for id in ids])


class Executor:
    """The other end: takes tokens, and has the frames that were sent."""

    def __init__(self) -> None:
        self.tokens = 0
        self.frames: list[bytes] = []
        self.custody = Custody(Tokens(self.add, self.take, lambda: None), self.frames.append)

    def add(self, count: int) -> None:
        self.tokens += count

    def take(self) -> None:
        if not self.tokens:
            raise BlockingIOError
        self.tokens -= 1


@pytest.fixture
def executor() -> Executor:
    return Executor()


@pytest.fixture
def robbed(executor: Executor) -> Executor:
    """An executor that runs A. B was taken back, and it has not dropped B yet."""
    executor.custody.pass_on([A, B], calls(A, B))
    executor.take()
    assert executor.custody.take_back(1) == [B]
    return executor


def test_frames_are_passed_on_in_order(executor: Executor) -> None:
    executor.custody.pass_on([A, B], calls(A, B))
    executor.custody.pass_on([], b"2")
    executor.custody.pass_on([C], calls(C))
    assert (executor.frames, executor.tokens) == ([calls(A, B), b"2", calls(C)], 3)
    executor.custody.end(2)
    assert list(executor.custody.ids) == [C]


def test_more_cannot_end_than_are_in_hand(executor: Executor) -> None:
    executor.custody.pass_on([A], calls(A))
    executor.custody.end(1)
    executor.custody.end(0)
    with pytest.raises(BadFrameError, match=r"it ends 1 call\(s\), and 0 are assigned to it"):
        executor.custody.end(1)


def test_the_last_are_taken_back_and_no_more_than_were_asked_for(executor: Executor) -> None:
    custody = executor.custody
    custody.pass_on([A, B, C, D], calls(A, B, C, D))
    executor.take()
    assert custody.take_back(2) == [C, D]
    assert (list(custody.ids), executor.tokens) == ([A, B], 1)
    assert custody.take_back(5) == [B]
    assert custody.take_back(5) == []
    assert list(custody.ids) == [A]


def test_calls_are_held_back_until_what_was_taken_back_is_dropped(robbed: Executor) -> None:
    custody = robbed.custody
    custody.pass_on([C], calls(C))
    custody.pass_on([], b"answers need not wait")
    custody.pass_on([D], calls(D))
    assert (robbed.frames, robbed.tokens) == ([calls(A, B), b"answers need not wait"], 0)
    custody.drained(2)
    assert (robbed.frames[2:], robbed.tokens, list(custody.ids)) == ([calls(C), calls(D)], 2, [A, C, D])
    custody.pass_on([E], calls(E))
    assert robbed.frames[4:] == [calls(E)]


def test_what_is_dropped_before_more_has_come_is_not_all(executor: Executor) -> None:
    custody = executor.custody
    custody.pass_on([A, B], calls(A, B))
    custody.pass_on([C], calls(C))
    executor.take()
    assert custody.take_back(2) == [B, C]
    custody.pass_on([D], calls(D))
    custody.drained(2)  # the second frame is on its way
    assert executor.frames == [calls(A, B), calls(C)]
    custody.drained(3)
    assert executor.frames == [calls(A, B), calls(C), calls(D)]


def test_calls_are_taken_back_from_frames_that_are_held_back(robbed: Executor) -> None:
    custody = robbed.custody
    custody.pass_on([C], calls(C))
    custody.pass_on([D, E], calls(D, E))
    custody.pass_on([F], calls(F))
    assert custody.take_back(2) == [E, F]
    assert robbed.frames == [calls(A, B)]
    custody.drained(2)
    # Of the third not all may start: it has to be dropped in part before what comes next.
    assert (robbed.frames, robbed.tokens, list(custody.ids)) == ([calls(A, B), calls(C), calls(D, E)], 2, [A, C, D])
    custody.drained(5)
    custody.pass_on([F], calls(F))
    assert (robbed.frames[3:], robbed.tokens) == ([calls(F)], 3)
    with pytest.raises(BadFrameError):
        custody.drained(6)


def test_what_comes_with_calls_that_are_held_back_is_sent_at_once(robbed: Executor) -> None:
    custody = robbed.custody
    answer, argument, call = Ready(E, b"awaited"), Ready(F, b"argument"), Call(C, 1, b"", (F,))
    custody.pass_on([C], codec.encode([answer, argument, call]))
    # Nobody here knows whether A waits for the second too.
    assert (robbed.frames[1:], robbed.tokens) == ([codec.encode([answer, argument])], 0)
    custody.drained(2)
    assert (robbed.frames[2:], robbed.tokens) == ([codec.encode([ForCalls(), argument, call])], 1)


def test_a_frame_with_nothing_to_start_is_not_sent(robbed: Executor) -> None:
    custody = robbed.custody
    custody.pass_on([C], calls(C))
    assert custody.take_back(9) == [C]
    custody.pass_on([D], calls(D))
    custody.drained(2)
    assert (robbed.frames[1:], robbed.tokens) == ([calls(D)], 1)


@pytest.mark.parametrize("received", [0, 1, 2, 3])
def test_nothing_is_dropped_unless_something_was_taken_back(executor: Executor, received: int) -> None:
    executor.custody.pass_on([A, B], calls(A, B))
    with pytest.raises(BadFrameError, match=r"it was sent 2, none taken back"):
        executor.custody.drained(received)


def test_more_cannot_be_dropped_than_was_sent(executor: Executor) -> None:
    executor.custody.pass_on([A, B], calls(A, B))
    executor.custody.take_back(1)
    with pytest.raises(BadFrameError, match=r"of 3 call\(s\); it was sent 2"):
        executor.custody.drained(3)


def test_a_forced_cancel_of_what_runs_dooms_the_executor(executor: Executor) -> None:
    custody = executor.custody
    custody.pass_on([A, B], calls(A, B))
    executor.take()
    assert custody.cancel_by_force(A) == ([B], True)
    custody.pass_on([C], calls(C))
    custody.drained(2)
    assert (executor.frames, executor.tokens) == ([calls(A, B)], 0)
    assert custody.close() == A


def test_a_forced_cancel_of_what_does_not_run(executor: Executor) -> None:
    custody = executor.custody
    assert custody.cancel_by_force(A) == ([], False)
    custody.pass_on([A, B], calls(A, B))
    executor.take()
    assert custody.cancel_by_force(B) == ([B], False)
    custody.drained(2)
    custody.pass_on([C], calls(C))
    assert executor.frames == [calls(A, B), calls(C)]


def test_a_doomed_executor_starts_nothing(executor: Executor) -> None:
    custody = executor.custody
    custody.pass_on([A, B, C], calls(A, B, C))
    executor.take()
    custody.doom()
    custody.pass_on([D], calls(D))
    custody.drained(3)
    assert (executor.frames, executor.tokens) == ([calls(A, B, C)], 0)
    assert custody.take_back(1) == [D]
    assert custody.close() == A


def test_of_a_dead_executor_the_last_call_that_it_claimed_was_running(executor: Executor) -> None:
    custody = executor.custody
    custody.pass_on([A, B, C, D], calls(A, B, C, D))
    executor.take()
    executor.take()
    custody.take_back(1)
    custody.pass_on([E], calls(E))
    assert custody.close() == B
    assert executor.tokens == 0


def test_of_a_dead_executor_that_had_claimed_nothing(executor: Executor) -> None:
    executor.custody.pass_on([A, B], calls(A, B))
    assert executor.custody.close() == b""


def test_tokens_that_user_code_has_written_are_no_calls(executor: Executor) -> None:
    custody = executor.custody
    custody.pass_on([A, B], calls(A, B))
    executor.add(1 << 60)
    assert custody.take_back(1) == [B]
    assert custody.take_back(9) == [A]
    assert custody.take_back(9) == []
    custody.drained(2)
    custody.pass_on([C], calls(C))
    assert custody.close() == b""


def test_an_executor_claims_one_call_after_the_other(executor: Executor) -> None:
    calls = deque([A, B, C, D])
    executor.add(2)
    tokens = Tokens(executor.add, executor.take, lambda: None)
    assert claim(calls, tokens, 7) == A
    assert claim(calls, tokens, 7) == B
    assert calls
    assert claim(calls, tokens, 7) == Drained(7)
    assert not calls
