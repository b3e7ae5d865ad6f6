"""Bugs to be planted: drivers that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.dispatch import executors
from mpi_runtime.scheduler.losses import cancel, drivers
from mpi_runtime.scheduler.protocol.events import OF_DRIVER
from mpi_runtime.scheduler.protocol.rank_events import DriverJoined, DriverLeft
from mpi_runtime.scheduler.records.parts import Key
from mpi_runtime.scheduler.records.records import Actor, Driver, Executor, Queue, Task
from mpi_runtime.scheduler.records.state import State


def _without(patch: pytest.MonkeyPatch, name: str) -> None:
    """One of the steps of leaving is not done."""
    patch.setattr(drivers, "_STEPS", tuple(step for step in drivers._STEPS if step.__name__ != name))


def actors_outlive_their_driver(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "_end_actor")


def calls_outlive_their_driver(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "_end_call")


def groups_outlive_their_driver(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "_end_group")


def references_outlive_their_driver(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "_release")


def executors_outlive_their_driver(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "_kill_executors")


def functions_outlive_their_driver(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "_forget")


def calls_that_tasks_have_left_behind_are_not_found(patch: pytest.MonkeyPatch) -> None:
    begin = Driver.begin

    def planted(self: Driver, task: Task, owner: int) -> None:
        begin(self, task, 0 if task.depth else owner)

    patch.setattr(Driver, "begin", planted)


def memory_without_an_object_is_kept(patch: pytest.MonkeyPatch) -> None:
    leave = drivers.leave

    def planted(state: State, event: DriverLeft, now: int) -> None:
        leave(state, msgspec.structs.replace(event, extents=[]), now)

    patch.setitem(core.RANK_EVENTS, DriverLeft, planted)


def memory_is_freed_under_an_object(patch: pytest.MonkeyPatch) -> None:
    leave = drivers.leave

    def planted(state: State, event: DriverLeft, now: int) -> None:
        leave(state, event, now)
        if event.extents:
            state.effects.ranks[0][-1].offsets[:] = event.extents  # type: ignore[union-attr]

    patch.setitem(core.RANK_EVENTS, DriverLeft, planted)


def detached_actors_end_with_their_driver(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifetimes, "detach", lambda driver, actor: None)


def calls_of_detached_actors_end_with_the_driver_of_their_class(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Driver, "owner", lambda self, executor: self.number)


def detached_actors_do_not_keep_their_functions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Driver, "is_ending", lambda self: self.has_left)


def executors_run_calls_of_any_driver(patch: pytest.MonkeyPatch) -> None:
    def planted(environment: tuple[tuple[str, str], ...], *rest: Any) -> Key:
        return Key(tuple(entry for entry in environment if entry[0] != OF_DRIVER), *rest)

    patch.setattr(executors, "Key", planted)


def running_methods_of_others_are_interrupted(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, driver: Driver, task: Task) -> None:
        cancel.cancel_one(state, task, True, state.stories.now)

    patch.setattr(drivers, "_leave_alone", planted)


def methods_that_have_not_begun_are_left_in_actors_of_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drivers, "_leave_alone", lambda state, driver, task: None)


def calls_overtake_those_that_come_back(patch: pytest.MonkeyPatch) -> None:
    pump = actor_calls.pump

    def planted(state: State, actor: Actor, now: int) -> None:
        executor = actor.executor
        is_asked = executor is not None and executor.asked_back
        if executor is not None:
            executor.asked_back = False
        pump(state, actor, now)
        if executor is not None:
            executor.asked_back = is_asked

    patch.setattr(actor_calls, "pump", planted)


def numbers_are_used_again(patch: pytest.MonkeyPatch) -> None:
    join = drivers.join

    def planted(state: State, event: DriverJoined, now: int) -> None:
        join(state, event, now)
        state.next_executor -= 1

    patch.setitem(core.RANK_EVENTS, DriverJoined, planted)


def views_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    leave = drivers.leave

    def planted(state: State, event: DriverLeft, now: int) -> None:
        if event.number not in state.clients:
            return
        leave(state, msgspec.structs.replace(event, has_views=False), now)

    patch.setitem(core.RANK_EVENTS, DriverLeft, planted)
    patch.setattr("mpi_runtime.scheduler.calls.refusals.check_rank", lambda state, event: None)


def the_first_driver_takes_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "turn", lambda self: (0.0, *self.precedence()))
    patch.setattr(Queue, "may_overtake", lambda self, other: False)


def what_actors_give_back_is_counted_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Executor, "reduce_share", lambda self, cpu: None)


def calls_of_a_driver_that_has_left_are_started(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "is_shut", lambda self: False)
    _without(patch, "_kill_executors")


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    actors_outlive_their_driver,
    calls_outlive_their_driver,
    groups_outlive_their_driver,
    references_outlive_their_driver,
    executors_outlive_their_driver,
    functions_outlive_their_driver,
    calls_that_tasks_have_left_behind_are_not_found,
    memory_without_an_object_is_kept,
    memory_is_freed_under_an_object,
    detached_actors_end_with_their_driver,
    calls_of_detached_actors_end_with_the_driver_of_their_class,
    detached_actors_do_not_keep_their_functions,
    executors_run_calls_of_any_driver,
    running_methods_of_others_are_interrupted,
    methods_that_have_not_begun_are_left_in_actors_of_others,
    calls_overtake_those_that_come_back,
    numbers_are_used_again,
    views_are_not_counted,
    the_first_driver_takes_all,
    what_actors_give_back_is_counted_for_ever,
    calls_of_a_driver_that_has_left_are_started,
]
