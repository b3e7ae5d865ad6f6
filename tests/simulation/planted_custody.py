"""Bugs to be planted: in the agent's custody of calls, in how an executor claims them, in what becomes of junk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mpi_runtime.core.agent.custody import Custody
from mpi_runtime.core.transport import unsent_frame
from mpi_runtime.core.transport.messages import Drained
from mpi_runtime.core.transport.tokens import Tokens
from mpi_runtime.core.transport.unsent_frame import Draft, left
from mpi_runtime.scheduler.calls import refusals
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.records.parts import Refusal
from mpi_runtime.scheduler.records.records import Executor
from mpi_runtime.scheduler.records.state import State
from tests.simulation import executors


def taken_back_and_run(patch: pytest.MonkeyPatch) -> None:
    take_back = Custody.take_back

    def planted(self: Custody, count: int) -> list[bytes]:
        taken = take_back(self, count)
        self._tokens.add(len(taken))
        return taken

    patch.setattr(Custody, "take_back", planted)


def the_first_is_taken_back_and_not_the_last(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Custody, count: int) -> list[bytes]:
        taken: list[bytes] = []
        while len(taken) < count and self._claim():
            taken.append(self.ids.popleft())
            self._draining = True
        return taken

    patch.setattr(Custody, "take_back", planted)


def calls_are_sent_before_others_were_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Custody, "pass_on", lambda self, ids, frame: self._give(ids, len(ids), frame))


def one_that_has_dropped_some_is_taken_for_one_that_has_dropped_all(patch: pytest.MonkeyPatch) -> None:
    drained = Custody.drained

    def planted(self: Custody, received: int) -> None:
        drained(self, self._sent)

    patch.setattr(Custody, "drained", planted)


def frames_that_were_held_back_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    drained = Custody.drained

    def planted(self: Custody, received: int) -> None:
        while len(self._held_back) > 1:
            self._held_back.pop()
        drained(self, received)

    patch.setattr(Custody, "drained", planted)


def what_was_taken_back_counts_as_dropped(patch: pytest.MonkeyPatch) -> None:
    take_back = Custody.take_back

    def planted(self: Custody, count: int) -> list[bytes]:
        taken = take_back(self, count)
        self._draining = False
        return taken

    patch.setattr(Custody, "take_back", planted)


def the_executor_of_a_cancelled_call_starts_others(patch: pytest.MonkeyPatch) -> None:
    cancel_by_force = Custody.cancel_by_force

    def planted(self: Custody, id: bytes) -> tuple[list[bytes], bool]:
        found = cancel_by_force(self, id)
        self._draining = self._is_doomed = False
        return found

    patch.setattr(Custody, "cancel_by_force", planted)


def what_a_dead_executor_ran_is_thought_not_to_have_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Custody, "close", lambda self: b"")


def what_a_dead_executor_had_in_hand_is_thought_to_have_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Custody, "close", lambda self: self.ids[-1] if self.ids else b"")


def a_call_is_started_without_its_token(patch: pytest.MonkeyPatch) -> None:
    def planted(calls: deque[Any], tokens: Tokens, received: int) -> Any:
        call = calls.popleft()
        try:
            tokens.take()
        except BlockingIOError:
            return call if calls else Drained(received)
        return call

    patch.setattr(executors, "claim", planted)


def only_one_call_is_dropped(patch: pytest.MonkeyPatch) -> None:
    def planted(calls: deque[Any], tokens: Tokens, received: int) -> Any:
        call = calls.popleft()
        try:
            tokens.take()
        except BlockingIOError:
            return Drained(received)
        return call

    patch.setattr(executors, "claim", planted)


def nobody_hears_that_calls_were_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Custody, "drained", lambda self, received: None)


def what_a_dead_executor_has_left_is_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unsent_frame, "left", lambda content, arrived: None)


def what_a_dead_executor_has_left_is_read_though_it_has_arrived(patch: pytest.MonkeyPatch) -> None:
    def planted(content: bytes, arrived: int) -> tuple[int, bytes] | None:
        return left(content, arrived) or left(content, arrived - 1)

    patch.setattr(unsent_frame, "left", planted)


def a_draft_counts_what_is_not_there(patch: pytest.MonkeyPatch) -> None:
    """The word is written before the messages, and not after them."""
    add = Draft.add

    def planted(self: Draft, messages: Sequence[object], ended: int) -> bool:
        late: list[tuple[slice, bytes]] = []
        content, self._content = self._content, Late(late)
        try:
            return add(self, messages, ended)
        finally:
            self._content = content
            for where, data in late:
                content[where] = data

    patch.setattr(Draft, "add", planted)


class Late:
    """Notes what is stored."""

    def __init__(self, stores: list[tuple[slice, bytes]]) -> None:
        self._stores = stores

    def __setitem__(self, where: slice, data: bytes) -> None:
        self._stores.append((where, data))


def a_refused_executor_lives_on(patch: pytest.MonkeyPatch) -> None:
    refuse = refusals.refuse

    def planted(state: State, executor: Executor, problem: str, ended: int, now: int) -> None:
        to_rank = state.to_rank
        state.to_rank = lambda rank, effect: None  # type: ignore[method-assign]
        refuse(state, executor, problem, ended, now)
        state.to_rank = to_rank  # type: ignore[method-assign]

    patch.setattr(refusals, "refuse", planted)


def what_a_refused_executor_has_ended_is_run_again_for_nothing(patch: pytest.MonkeyPatch) -> None:
    def planted(executor: Executor, refusal: Refusal, event: ExecutorDied) -> None:
        event.cause, executor.refusal = refusal.why, None

    patch.setattr(refusals, "as_after_a_crash", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    taken_back_and_run,
    the_first_is_taken_back_and_not_the_last,
    calls_are_sent_before_others_were_dropped,
    one_that_has_dropped_some_is_taken_for_one_that_has_dropped_all,
    frames_that_were_held_back_are_forgotten,
    what_was_taken_back_counts_as_dropped,
    the_executor_of_a_cancelled_call_starts_others,
    what_a_dead_executor_ran_is_thought_not_to_have_run,
    what_a_dead_executor_had_in_hand_is_thought_to_have_run,
    a_call_is_started_without_its_token,
    only_one_call_is_dropped,
    nobody_hears_that_calls_were_dropped,
    what_a_dead_executor_has_left_is_not_read,
    what_a_dead_executor_has_left_is_read_though_it_has_arrived,
    a_draft_counts_what_is_not_there,
    a_refused_executor_lives_on,
    what_a_refused_executor_has_ended_is_run_again_for_nothing,
]
