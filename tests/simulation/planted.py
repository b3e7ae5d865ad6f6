"""Bugs to be planted: cancelling, actors that take several calls at a time, calls that yield, GPUs, the end of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import msgspec
import pytest

from mpi_runtime.gpu import ledger
from mpi_runtime.gpu.device import Device
from mpi_runtime.gpu.ledger import Inventory
from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.dispatch import alternatives, backoff, deadline
from mpi_runtime.scheduler.losses import cancel, time_limits
from mpi_runtime.scheduler.nodes import gpu_quarantine
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.effects import Cancel, RankEffect
from mpi_runtime.scheduler.protocol.events import Began, Consumed, ErrorRead, Yielded
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied
from mpi_runtime.scheduler.protocol.resources import Grant
from mpi_runtime.scheduler.records import records
from mpi_runtime.scheduler.records.parts import Key
from mpi_runtime.scheduler.records.records import Executor, Node, Rank, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import call_ends, items
from mpi_runtime.scheduler.values.objects import free_extent


def a_cancelled_call_is_queued_again(patch: pytest.MonkeyPatch) -> None:
    cancel_one = cancel.cancel_one

    def planted(state: State, task: Task, force: bool, now: int) -> None:
        cancel_one(state, task, force, now)
        task.is_cancelled = False

    patch.setattr(cancel, "cancel_one", planted)


def a_running_call_is_not_interrupted(patch: pytest.MonkeyPatch) -> None:
    to_rank = State.to_rank

    def planted(self: State, rank: int, effect: RankEffect) -> None:
        if not isinstance(effect, Cancel):
            to_rank(self, rank, effect)

    patch.setattr(State, "to_rank", planted)


def a_cancelled_call_waits_for_the_one_before_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancel, "ask_for_the_rest", lambda state, executor: None)


def what_a_cancelled_call_has_submitted_runs_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancel, "children", lambda task: [])


def what_a_cancelled_call_submits_later_runs_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancel, "submitted", lambda state, executor, id, now: None)


def a_call_may_run_longer_than_its_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(core.CLIENT_EVENTS, Began, lambda state, client, event, now: None)


def a_call_may_ignore_that_its_time_is_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(time_limits, "kill", lambda state, executor, task, watch: setattr(watch, "began_us", -1))


def a_call_is_ended_before_its_time_is_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(time_limits, "limit_us", lambda task, watch: watch.began_us + 1 if watch.began_us >= 0 else None)


def calls_are_started_on_a_host_without_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "is_closed", lambda self: False)


def a_cancelled_call_keeps_its_arguments(patch: pytest.MonkeyPatch) -> None:
    cancelled = call_ends.cancelled

    def planted(state: State, task: Task) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(call_ends, "release_arguments", lambda state, task: None)
            cancelled(state, task)

    patch.setattr(call_ends, "cancelled", planted)


def executors_are_forked_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backoff, "is_hopeless", lambda queue: False)


def one_death_before_a_call_fails_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backoff, "STILLBORN_MAX", 1)


def a_busy_group_holds_up_others(patch: pytest.MonkeyPatch) -> None:
    def planted(actor: records.Actor, executor: Executor, group: str) -> int:
        return actor_calls.ACTOR_CALLS_MAX - len(executor.assigned)

    patch.setattr(actor_calls, "room_for", planted)


def an_actor_gets_calls_only_when_it_has_none(patch: pytest.MonkeyPatch) -> None:
    pump = actor_calls.pump

    def planted(state: State, actor: records.Actor, now: int) -> None:
        if actor.executor is None or not actor.executor.assigned:
            pump(state, actor, now)

    patch.setattr(actor_calls, "pump", planted)


def calls_beside_others_are_thought_not_to_have_run(patch: pytest.MonkeyPatch) -> None:
    executor_died = lifetimes.executor_died

    def planted(
        state: State, actor: records.Actor, executor: Executor, assigned: list[Task], event: ExecutorDied, now: int
    ) -> None:
        whole, actor.spec = actor.spec, msgspec.structs.replace(actor.spec, concurrency={})
        executor_died(state, actor, executor, assigned, event, now)
        actor.spec = whole

    patch.setattr(lifetimes, "executor_died", planted)


def calls_overtake_one_that_waits_for_an_argument(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(actor_calls, "out_of_order", lambda actor: bool(actor.spec.concurrency))


def what_dies_at_once_is_run_again_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backoff, "wait_us", lambda crashes: 0)


def calls_that_are_ready_start_in_any_order(patch: pytest.MonkeyPatch) -> None:
    turns = actor_calls.turns

    def planted(actor: records.Actor) -> dict[tuple[int, str], list[tuple[int, str, int]]]:
        lines = [line for lines in turns(actor).values() for line in lines]
        return {(number, line[1]): [line] for number, line in enumerate(lines)}

    patch.setattr(actor_calls, "turns", planted)


def items_are_told_again_by_a_second_attempt(patch: pytest.MonkeyPatch) -> None:
    yielded = items.yielded

    def planted(state: State, client: Client, event: Yielded, now: int) -> None:
        task = client.as_executor().assigned.get(event.call)
        if task is not None and task.stream is not None:
            task.stream.yielded = min(task.stream.yielded, event.index)
        yielded(state, client, event, now)

    patch.setitem(core.CLIENT_EVENTS, Yielded, planted)


def an_item_is_lost(patch: pytest.MonkeyPatch) -> None:
    yielded = items.yielded

    def planted(state: State, client: Client, event: Yielded, now: int) -> None:
        task = client.as_executor().assigned.get(event.call)
        if task is not None and task.stream is not None and task.call.attempt:
            task.stream.yielded = max(task.stream.yielded, 1)
        yielded(state, client, event, now)

    patch.setitem(core.CLIENT_EVENTS, Yielded, planted)


def more_is_demanded_than_was_taken(patch: pytest.MonkeyPatch) -> None:
    consumed = items.consumed

    def planted(state: State, client: Client, event: Consumed, now: int) -> None:
        event.count += 1
        consumed(state, client, event, now)

    patch.setitem(core.CLIENT_EVENTS, Consumed, planted)


def references_in_items_are_not_held(patch: pytest.MonkeyPatch) -> None:
    yielded = items.yielded

    def planted(state: State, client: Client, event: Yielded, now: int) -> None:
        event.value.holds.clear()
        yielded(state, client, event, now)

    patch.setitem(core.CLIENT_EVENTS, Yielded, planted)


def items_are_freed_when_they_come(patch: pytest.MonkeyPatch) -> None:
    yielded = items.yielded

    def planted(state: State, client: Client, event: Yielded, now: int) -> None:
        yielded(state, client, event, now)
        place = event.value.stored
        if place is not None and state.extents.get((place.rank, place.offset)) == event.id:
            free_extent(state, place)

    patch.setitem(core.CLIENT_EVENTS, Yielded, planted)


def a_gpu_of_any_type_will_do(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Inventory, id: int, types: Sequence[str], memory: int) -> bool:
        return self.devices[id].memory >= memory

    patch.setattr(Inventory, "can_use", planted)


def a_rank_gets_gpus_that_it_cannot_use(patch: pytest.MonkeyPatch) -> None:
    def planted(node: Node, wanted: Sequence[int]) -> list[Rank]:
        return [rank for rank in node.ranks if rank.hosts_executors]

    patch.setattr(gpu_pool, "ranks_for", planted)


def shares_of_gpus_take_no_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "part", lambda device, units, memory=0: memory)


def who_has_shared_a_gpu_stays_on_it(patch: pytest.MonkeyPatch) -> None:
    in_the_way = gpu_pool.in_the_way

    def planted(node: Node, key: Key, grant: Grant, idle: dict[int, Executor] | None) -> list[Executor]:
        return [] if idle else in_the_way(node, key, grant, idle)

    patch.setattr(gpu_pool, "in_the_way", planted)


def a_call_gets_several_instances(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Device, "is_instance", False)


def an_exclusive_gpu_is_shared(patch: pytest.MonkeyPatch) -> None:
    def planted(inventory: Inventory, *arguments: Any) -> ledger.Granted | None:
        other = copy(inventory)
        other.devices = [msgspec.structs.replace(one, is_exclusive=False) for one in inventory.devices]
        return choose(other, *arguments)

    choose = ledger.choose
    patch.setattr(ledger, "choose", planted)


def a_quarantined_gpu_is_given_again(patch: pytest.MonkeyPatch) -> None:
    can_use = Inventory.can_use

    def planted(self: Inventory, device: int, types: Sequence[str], memory: int) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self, "out", {})
            return can_use(self, device, types, memory)

    patch.setattr(Inventory, "can_use", planted)


def a_gpu_that_fails_is_used_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_quarantine, "blame", lambda state, executor, fault: None)


def a_node_without_cuda_is_used_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_quarantine, "lose_all", lambda state, node, fault: None)


def what_others_use_up_is_quarantined(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_quarantine, "BUSY", "no such thing")


def contexts_take_no_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "part", lambda device, units, memory=0: memory or device.memory * units // ledger.UNIT)


def what_needs_a_quarantined_gpu_waits_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_quarantine, "fail_all", lambda state, queue: None)


def an_actor_begins_what_cannot_end_in_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deadline, "is_late", lambda state, function, now: False)


def what_says_how_long_it_takes_is_sent_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(actor_calls, "begins_at_once", lambda actor, executor, group: True)


def calls_overtake_one_that_is_not_started(patch: pytest.MonkeyPatch) -> None:
    pump = actor_calls.pump

    def planted(state: State, actor: records.Actor, now: int) -> None:
        for queue in actor.callers.values():
            if deadline.why_not(state, queue[0].function, now):
                queue.rotate(-1)
        pump(state, actor, now)

    patch.setattr(actor_calls, "pump", planted)


def nobody_hears_of_calls_that_are_not_started(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deadline, "log", lambda state, function, now: None)


def an_error_that_was_read_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(core.CLIENT_EVENTS, ErrorRead, lambda state, client, event, now: None)


def a_call_of_another_alternative_keeps_its_spec(patch: pytest.MonkeyPatch) -> None:
    def planted(task: Task, function: records.Function) -> None:
        task.function = function

    patch.setattr(alternatives, "change_function", planted)


def a_call_that_takes_another_alternative_stays_in_its_queue(patch: pytest.MonkeyPatch) -> None:
    move_first = alternatives.move_first

    def planted(queue: records.Queue, other: records.Queue) -> None:
        task = queue.ready[0]
        move_first(queue, other)
        queue.ready.append(task)

    patch.setattr(alternatives, "move_first", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    a_call_of_another_alternative_keeps_its_spec,
    a_call_that_takes_another_alternative_stays_in_its_queue,
    what_a_cancelled_call_submits_later_runs_on,
    a_call_may_run_longer_than_its_limit,
    a_call_may_ignore_that_its_time_is_over,
    a_call_is_ended_before_its_time_is_over,
    calls_are_started_on_a_host_without_memory,
    a_cancelled_call_is_queued_again,
    a_running_call_is_not_interrupted,
    a_cancelled_call_waits_for_the_one_before_it,
    what_a_cancelled_call_has_submitted_runs_on,
    a_cancelled_call_keeps_its_arguments,
    executors_are_forked_for_ever,
    one_death_before_a_call_fails_all,
    a_busy_group_holds_up_others,
    an_actor_gets_calls_only_when_it_has_none,
    calls_beside_others_are_thought_not_to_have_run,
    calls_overtake_one_that_waits_for_an_argument,
    what_dies_at_once_is_run_again_at_once,
    calls_that_are_ready_start_in_any_order,
    items_are_told_again_by_a_second_attempt,
    an_item_is_lost,
    more_is_demanded_than_was_taken,
    references_in_items_are_not_held,
    items_are_freed_when_they_come,
    a_gpu_of_any_type_will_do,
    a_rank_gets_gpus_that_it_cannot_use,
    shares_of_gpus_take_no_memory,
    who_has_shared_a_gpu_stays_on_it,
    a_call_gets_several_instances,
    an_exclusive_gpu_is_shared,
    a_quarantined_gpu_is_given_again,
    a_gpu_that_fails_is_used_on,
    what_needs_a_quarantined_gpu_waits_on,
    a_node_without_cuda_is_used_on,
    what_others_use_up_is_quarantined,
    contexts_take_no_memory,
    an_actor_begins_what_cannot_end_in_time,
    what_says_how_long_it_takes_is_sent_ahead,
    calls_overtake_one_that_is_not_started,
    nobody_hears_of_calls_that_are_not_started,
    an_error_that_was_read_is_told,
]
