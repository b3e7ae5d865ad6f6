"""Bugs to be planted: in calls that are sent behind the calls that make their arguments, and in who fills these in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mpi_runtime.core.client import outbox
from mpi_runtime.core.client.executor_feed import Feed
from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.calls import unfilled
from mpi_runtime.scheduler.dispatch import dependencies, following, stealing
from mpi_runtime.scheduler.dispatch.queues import enqueue
from mpi_runtime.scheduler.protocol.effects import Entry, Ready, ReadyElsewhere
from mpi_runtime.scheduler.protocol.events import Done, Returned
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, PENDING, TAKE_BACK, WAITING, advance
from mpi_runtime.scheduler.records.records import Actor, Executor, Task
from mpi_runtime.scheduler.records.state import Object, State
from mpi_runtime.scheduler.values import objects
from tests.simulation import executors


def the_last_result_is_filled_in(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Feed, arguments: list[Entry]) -> bool:
        for index, entry in enumerate(arguments):
            if type(entry) is ReadyElsewhere:
                if not self.recent:
                    return False
                arguments[index] = Ready(entry.id, list(self.recent.values())[-1])
        return True

    patch.setattr(Feed, "fill", planted)


def a_call_that_comes_back_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "ends_in", lambda frame: sum(type(one) in (Done, Returned) for one in frame))


def values_are_read_that_may_be_made_again(patch: pytest.MonkeyPatch) -> None:
    seal = executors.Executor._seal

    def planted(self: executors.Executor) -> None:
        if self.claimed is None:
            seal(self)

    patch.setattr(executors.Executor, "_seal", planted)


def a_call_that_was_sent_still_waits(patch: pytest.MonkeyPatch) -> None:
    follow = following.follow

    def planted(state: State, executor: Executor, task: Task, now: int) -> None:
        awaited = {id: state.objects[id].waiters for id in task.call.arguments}
        follow(state, executor, task, now)
        for id, waiters in awaited.items():
            state.objects[id].waiters = waiters

    patch.setattr(following, "follow", planted)


def a_call_that_comes_back_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, task: Task, cause: str) -> None:
        advance(state.stories, task, TAKE_BACK, cause)
        task.executor = None
        enqueue(state, task)

    for module in (unfilled, stealing, dependencies):
        patch.setattr(module, "come_back", planted)


def calls_follow_while_others_are_taken_back(patch: pytest.MonkeyPatch) -> None:
    has_room = following.has_room

    def planted(state: State, executor: Executor, task: Task, now: int) -> bool:
        asked_back, executor.asked_back = executor.asked_back, False
        try:
            return has_room(state, executor, task, now)
        finally:
            executor.asked_back = asked_back

    patch.setattr(following, "has_room", planted)


def calls_follow_one_that_waits(patch: pytest.MonkeyPatch) -> None:
    has_room, leader_of = following.has_room, following.leader_of

    def leads(state: State, task: Task) -> Executor | None:
        for id in task.call.arguments:
            maker = state.objects[id].task
            if maker is not None and maker.state == BLOCKED and task.state == WAITING and not task.has_followed:
                only = state.objects[id].state == PENDING and task.missing == 1
                return maker.executor if only and following.may_follow(task.function, task.call) else None
        return leader_of(state, task)

    def planted(state: State, executor: Executor, task: Task, now: int) -> bool:
        blocked, executor.blocked = executor.blocked, False
        try:
            return has_room(state, executor, task, now)
        finally:
            executor.blocked = blocked

    patch.setattr(following, "leader_of", leads)
    patch.setattr(following, "has_room", planted)


def a_call_follows_again_and_again(patch: pytest.MonkeyPatch) -> None:
    come_back = dependencies.come_back

    def planted(state: State, task: Task, cause: str) -> None:
        come_back(state, task, cause)
        task.has_followed = False
        state.leads.append(task)

    for module in (unfilled, stealing):
        patch.setattr(module, "come_back", planted)


def no_end_is_wanted(patch: pytest.MonkeyPatch) -> None:
    await_value = objects.await_value

    def planted(found: Object, task: Task) -> None:
        await_value(found, task)
        if found.task is not None:
            found.task.call.wanted = False

    patch.setattr(objects, "await_value", planted)


def all_calls_follow_however_much_stands_between(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "is_close_behind", lambda executor, task: True)


def calls_that_may_run_once_follow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "may_follow", lambda function, call: len(call.arguments) <= following.WANTED_MAX)


def calls_of_an_actor_are_sent_behind_one_that_may_come_back(patch: pytest.MonkeyPatch) -> None:
    follows = actor_calls.follows
    patch.setattr(actor_calls, "follows", lambda state, executor, task, last: follows(state, executor, task, None))


def a_call_of_an_actor_that_comes_back_is_the_last(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, actor: Actor, task: Task, cause: str) -> None:
        dependencies.come_back(state, task, cause)
        actor_calls.line_up(actor, task, 0)

    patch.setattr(unfilled, "give_again", planted)


def calls_follow_in_an_actor_that_takes_several(patch: pytest.MonkeyPatch) -> None:
    follows = actor_calls.follows

    def planted(state: State, executor: Executor, task: Task, last: Task | None) -> bool:
        assert executor.actor is not None
        spec, executor.actor.spec = executor.actor.spec, replace(executor.actor.spec, concurrency={})
        try:
            return follows(state, executor, task, last)
        finally:
            executor.actor.spec = spec

    patch.setattr(actor_calls, "follows", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    the_last_result_is_filled_in,
    a_call_that_comes_back_is_not_counted,
    values_are_read_that_may_be_made_again,
    a_call_that_was_sent_still_waits,
    a_call_that_comes_back_does_not_wait,
    calls_follow_while_others_are_taken_back,
    calls_follow_one_that_waits,
    a_call_follows_again_and_again,
    no_end_is_wanted,
    all_calls_follow_however_much_stands_between,
    calls_that_may_run_once_follow,
    calls_of_an_actor_are_sent_behind_one_that_may_come_back,
    a_call_of_an_actor_that_comes_back_is_the_last,
    calls_follow_in_an_actor_that_takes_several,
]
