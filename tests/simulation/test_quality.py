"""Calm worlds, in which places of calls are judged; and mistakes that cost nothing but time, memory or bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.dispatch import dispatch, executors, locality, queues, reservations
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.records import ANYWHERE, Executor, Node, Queue, Task, node_of
from mpi_runtime.scheduler.records.state import State
from tests.simulation import quality
from tests.simulation.options import calm_options
from tests.simulation.run import FailedError, simulate

SEEDS = range(60)
FLOORS = {
    "bytes of arguments": 2000, "bytes of arguments on host 0": 500, "calls beside their arguments": 1000, "forks": 700,
    "GPUs with a near rank": 100, "stops": 300, "decisions with a reservation": 300,
}  # fmt: skip

SEEDS_OF_WAITS = (111638809449, 276508347002, 276508347024, 276509317185, 917848685228)
"""Calls wait for a busy executor though a CPU is free, which is no reason to fork; actors keep CPUs while they wait."""


def explored() -> Counter[str]:
    """Simulate all seeds, and judge after every tenth of them: a waste shows soon."""
    counters: Counter[str] = Counter()
    for seed in SEEDS:
        counters.update(simulate(calm_options(seed)).counters)
        if seed % 10 == 9 and (problems := quality.judge(counters)):
            raise FailedError("; ".join(problems))
    return counters


@pytest.mark.parametrize("seed", SEEDS_OF_WAITS)
def test_a_call_that_waits_where_it_may(seed: int) -> None:
    assert simulate(calm_options(seed)).counters["runs"] > 0


def test_calls_run_where_they_should() -> None:
    counters = explored()
    assert {name: counters[name] for name, floor in FLOORS.items() if counters[name] < floor} == {}


def what_lies_on_host_0_is_near_to_nobody(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, task: Task) -> int:
        return nearest(state, task) or -1

    nearest = queues.nearest
    patch.setattr(queues, "nearest", planted)


def calls_run_far_from_their_arguments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queues, "nearest", lambda state, task: -1)


def calls_go_to_the_node_with_fewest_bytes(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, task: Task) -> int:
        found = locality.bytes_on(state, task)
        able = [number for number, node in state.nodes.items() if node.hosts_executors]
        return min(able, key=lambda number: (found.get(number, 0), number)) if nearest(state, task) >= 0 else -1

    nearest = queues.nearest
    patch.setattr(queues, "nearest", planted)


def calls_wait_for_ever_for_the_node_with_their_arguments(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, queue: Queue, source: Source, now: int) -> bool:
        near = state.nodes.get(queue.near)
        return near is not None and queue.where is ANYWHERE and node_of(source) is not near

    patch.setattr(executors, "waits_for_near", planted)


def who_idles_is_not_used_again(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, executor: Executor, now: int) -> None:
        give_up(state, executor, now)
        if executor.id in executor.rank.node.idle.get(executor.key, {}) and not executor.key.gpu_ids:
            reservations.stop_idle(state, executor)

    give_up = dispatch.give_up
    patch.setattr(dispatch, "give_up", planted)


def who_has_idled_least_is_ended(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, node: Node, now: int) -> None:
        for group in node.idle.values():
            for executor in group.values():
                executor.idle_since_us = -executor.idle_since_us
        look_after_node(state, node, now)

    look_after_node = reservations.look_after_node
    patch.setitem(core.ALARMS, Node, planted)


def gpus_are_far_from_their_rank(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_pool, "nearest", lambda node, devices: {})


def processors_near_to_gpus_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def planted(node: Node) -> list[int]:
        kept = [rank.cpus for rank in node.ranks]
        for rank in node.ranks:
            rank.cpus = []
        found = homes(node)
        for rank, cpus in zip(node.ranks, kept, strict=True):
            rank.cpus = cpus
        return found

    homes = gpu_pool.homes
    patch.setattr(gpu_pool, "homes", planted)


def who_idles_with_a_gpu_is_ended_though_others_are_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_pool, "pick", lambda node, queue, free: None)


def calls_wait_for_busy_executors(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, queue: Queue, now: int) -> None:
        if queue.is_timed or (queue.ready and not queue.family.reserved):
            queues.mark_dirty(state, queue)

    patch.setitem(core.ALARMS, Queue, planted)


def room_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, queue: Queue, now: int) -> Executor | None:
        return None if queue.executors else acquire(state, queue, now)

    acquire = dispatch.acquire
    patch.setattr(dispatch, "acquire", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    what_lies_on_host_0_is_near_to_nobody,
    calls_run_far_from_their_arguments,
    calls_go_to_the_node_with_fewest_bytes,
    calls_wait_for_ever_for_the_node_with_their_arguments,
    who_idles_is_not_used_again,
    who_has_idled_least_is_ended,
    gpus_are_far_from_their_rank,
    processors_near_to_gpus_do_not_count,
    who_idles_with_a_gpu_is_ended_though_others_are_free,
    calls_wait_for_busy_executors,
    room_is_not_looked_for,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_waste_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(FailedError):
        explored()
