"""The decisions of a stream of blocks, in virtual worlds with random stages, sizes and ends."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime.data.streams.records import UNLIMITED, Block, Cancel, Close, Open, Resume, Stage, Start, Task
from mpi_runtime.data.streams.stream import Stream

BUDGET = 1000
BLOCK = 60
"""The size of usual blocks."""
STEPS = 60_000


class World:
    """Performs what a stream orders, in a random order, and knows which blocks exist."""

    def __init__(self, seed: int, made_by: Callable[..., Stream] = Stream, **given: Any) -> None:
        self.random = random.Random(seed)
        self.ordered = given.get("ordered", self.random.random() < 0.5)
        self.size = self.random.choice((BLOCK, BLOCK, 1, 3 * BUDGET)) if "size" not in given else given["size"]
        self.spread = self.random.random() < 0.5
        self.stages = given.get("stages") or self.random_stages()
        self.sources = sum(len(stage.queues[0]) for stage in self.stages if not stage.inputs)
        limits = [stage.limit for stage in self.stages if stage.limit not in (None, UNLIMITED)]
        self.limit = min(limits, default=None)
        self.bundle = max(stage.bundle_rows for stage in self.stages)
        cpus, self.is_apart = self.random.choice((1, 2, 8)), "stages" not in given and seed % 4 == 1
        self.parts = {block.key[:2] for stage in self.stages if not stage.inputs for block in stage.queues[0]}
        self.stream = made_by(self.stages, BUDGET, cpus, BLOCK, self.ordered, self.is_apart)
        self.ended: set[tuple[int, ...]] = set()
        self.running: list[Task] = []
        self.left: dict[int, int] = {}
        self.calls: dict[tuple[int, int], list[Task]] = {}
        self.alive: dict[int, int] = {}
        self.seen: list[Block] = []
        self.largest = 0
        self.tasks = 0

    def random_stages(self) -> list[Stage]:
        """A source, and stages behind it; now and then two sources that are joined."""
        stages: list[Stage] = []
        ends = []
        for source in range(self.random.choice((1, 1, 1, 2))):
            blocks = [Block((source, i), 1, 10) for i in range(self.random.randint(1, 30))]
            for i, block in enumerate(blocks):
                block.key = (source, i)
            stages.append(Stage(f"read{source}", queues=[deque(blocks)]))
            ends.append(len(stages) - 1)
        for _ in range(self.random.randint(len(ends) - 1, 3)):
            kind = self.random.choice(("task", "task", "pool", "limit", "bundle"))
            stage = Stage(kind, tuple(ends), cpus=self.random.choice((0, 1, 2)))
            if kind == "pool":
                low = self.random.randint(1, 3)
                stage.pool = low, low + self.random.randint(0, 3)
            elif kind == "limit":
                stage.limit = self.random.randint(0, 60)
            elif kind == "bundle":
                stage.bundle_rows = self.random.randint(2, 7)
            else:
                stage.tasks_max = self.random.randint(1, 5)
            stages.append(stage)
            ends = [len(stages) - 1]
        if len(ends) > 1:
            stages.append(Stage("join", tuple(ends), limit=UNLIMITED))
        return stages

    def perform(self) -> None:
        for order in self.stream.decide():
            match order:
                case Start(task):
                    # A source makes up to three blocks, everything else one block with the rows of its inputs.
                    is_source = not self.stages[task.stage].inputs
                    units = {block.key[:2] for block in task.inputs}
                    assert is_source or not self.is_apart or units == {task.key[:2]}, "units are mixed"
                    assert not units & self.ended, "a unit that had ended goes on"
                    self.left[id(task)] = self.random.randint(0, 3) if is_source else 1
                    if task.actor >= 0:
                        calls = self.calls[task.stage, task.actor]
                        calls.append(task)
                        if len(calls) > 1:
                            continue
                    self.running.append(task)
                case Resume(task):
                    assert task not in self.running, "a running task was resumed"
                    self.running.append(task)
                case Cancel(task):
                    if task in self.running:
                        self.running.remove(task)
                    calls = self.calls.get((task.stage, task.actor), [])
                    if task in calls:  # it may have ended with the block that made it superfluous
                        calls.remove(task)
                    self.left.pop(id(task), None)
                case Open(stage, actor):
                    self.calls[stage, actor] = []
                case Close(stage, actor):
                    assert not self.calls.pop((stage, actor)), "an actor with calls was closed"

    def step(self) -> None:
        """Something happens."""
        choices: list[Callable[[], None]] = [lambda task=task: self.works(task) for task in self.running]  # type: ignore[misc]
        if self.stream.out:
            choices.append(self.consume)
        assert choices, "nothing runs, and nothing is there to be read"
        self.random.choice(choices)()
        idle = self.stream.idle_actors()
        if idle and self.random.random() < 0.02:
            self.stream.make_way(*self.random.choice(idle))
        if self.random.random() < 0.05:
            self.hand_over()

    def hand_over(self) -> None:
        """An actor waits for resources, or one that did has them."""
        for number, stage in enumerate(self.stages):
            if stage.waiting and self.random.random() < 0.5:
                self.stream.created(number, self.random.choice(sorted(stage.waiting)))
            busy = [actor for actor, calls in stage.actors.items() if calls]
            others = [actor for actor in stage.actors if actor not in stage.waiting]
            if not busy or len(others) < 2:
                continue
            actor, to = self.random.choice(busy), self.random.choice(others)
            if actor == to:
                continue
            again = self.stream.hand_over(number, actor, to)
            self.calls[number, actor], self.calls[number, to] = [], list(stage.actors[to])
            first = stage.actors[to][0]
            self.running = [task for task in self.running if task not in again]
            if not first.is_paused and first not in self.running:
                self.running.append(first)

    def works(self, task: Task) -> None:
        self.running.remove(task)
        stage = self.stages[task.stage]
        if self.left[id(task)]:
            self.left[id(task)] -= 1
            rows = task.cut if task.cut >= 0 else sum(block.rows for block in task.inputs) or 1
            size = self.random.randint(1, 2 * self.size) if self.spread else self.size
            sources = [block.value for block in task.inputs] if task.made == 0 else []
            block = Block(sources, rows, size)
            self.largest = max(self.largest, size)
            self.stream.made(task, block)
            if self.left[id(task)] or self.random.random() < 0.3 or not stage.inputs:
                return
            task.is_paused = True  # it has said that this was its last block
        self.left.pop(id(task))
        self.stream.ended(task)
        if task.actor >= 0:
            calls = self.calls[task.stage, task.actor]
            calls.remove(task)
            if calls and not calls[0].is_paused:
                self.running.append(calls[0])

    def consume(self) -> None:
        block = self.stream.take()
        self.seen.append(block)
        self.stream.released(block)

    def run(self) -> World:
        steps = 0
        while True:
            self.perform()
            self.check()
            if self.stream.is_done:
                break
            self.step()
            steps += 1
            assert steps < STEPS, "it does not end"
        self.stream.decide()
        self.check_end()
        return self

    def held(self) -> int:
        """The bytes of all blocks that stages have made and that somebody needs, counted from outside."""
        blocks = list(self.stream.out)
        for stage in self.stages:
            for queue in stage.queues:
                blocks += queue
            for task in stage.tasks:
                blocks += [*task.inputs, *task.outputs]
        return sum(block.bytes for block in blocks if block.stage >= 0)

    def check(self) -> None:
        """The memory is bounded, and nothing is counted twice. Units that have ended stay so."""
        self.ended |= self.stream.units.keys() - self.stream.open_units()
        held = self.held()
        assert held == sum(stage.used for stage in self.stages), "the count of bytes is wrong"
        tasks = sum(not task.is_done for stage in self.stages for task in stage.tasks)
        self.tasks = max(self.tasks, tasks)  # those that began before a block was measured have made theirs
        waiting = self.tasks if self.largest > 2 * BLOCK else tasks + 1
        bundled = self.bundle + 2 if self.bundle > 1 else 0
        assert held <= BUDGET + self.largest * (waiting + bundled), "too much memory"
        for number, stage in enumerate(self.stages):
            if stage.pool:
                assert len(stage.actors) <= stage.pool[1]
            open_tasks = [task for task in stage.tasks if not task.is_done]
            assert len(open_tasks) <= stage.tasks_max, number

    def check_end(self) -> None:
        """Each row once, in its order, and nothing is left."""
        assert not self.running
        assert self.held() == 0
        assert not any(stage.actors for stage in self.stages), "actors are left"
        keys = [block.key for block in self.seen]
        assert len(set(keys)) == len(keys), "a block twice"
        if self.ordered:
            assert keys == sorted(keys), "out of order"
        last = self.stages[-1]
        if self.limit is not None:
            if last.limit not in (None, UNLIMITED):
                assert sum(block.rows for block in self.seen) <= self.limit, "more rows than the limit"
            return
        if self.is_apart:
            assert self.ended == self.stream.units.keys(), "a unit has not ended"
            assert sorted(part for unit in self.stream.units.values() for part in unit) == sorted(self.parts)
        made = sum(stage.rows for stage in self.stages if not stage.inputs)
        assert sum(block.rows for block in self.seen) == made, "rows were lost"


@pytest.mark.parametrize("start", range(0, 160, 40))
def test_worlds(start: int) -> None:
    for seed in range(start, start + 40):
        World(seed).run()


def test_a_limit_is_exact() -> None:
    for seed in range(60):
        blocks = deque(Block(i, 1, 10, key=(i,)) for i in range(12))
        stages = [
            Stage("read", queues=[blocks]),
            Stage("limit", (0,), limit=5),
            Stage("map", (1,)),
            Stage("limit", (2,), limit=4),
        ]
        world = World(seed, stages=stages, size=BLOCK)
        world.run()
        read = stages[0].rows
        assert sum(block.rows for block in world.seen) == min(4, read)
        if world.ordered:
            assert [block.key[0] for block in world.seen] == sorted(block.key[0] for block in world.seen)


def test_a_reader_that_is_ahead_waits() -> None:
    """Nobody takes: the stream comes to rest with a full budget, and a block for each task beyond it."""
    stages = [Stage("read", queues=[deque(Block(i, 1, 1, key=(i,)) for i in range(200))]), Stage("map", (0,))]
    world = World(1, stages=stages, size=BLOCK, ordered=True)
    world.consume = lambda: None  # type: ignore[method-assign]
    for _ in range(3000):
        world.perform()
        world.check()
        if not world.running:
            break
        world.works(world.random.choice(world.running))
    assert BUDGET / 2 < world.held() <= BUDGET + 2 * world.largest * 10
    assert stages[0].started < 60


def test_a_block_that_is_larger_than_the_budget_goes_through() -> None:
    blocks = deque(Block(i, 1, 1, key=(i,)) for i in range(5))
    stages = [Stage("read", queues=[blocks]), Stage("map", (0,), pool=(1, 2)), Stage("write", (1,))]
    world = World(3, stages=stages, size=10 * BUDGET, ordered=True).run()
    assert world.stream.forced
    assert [block.key[0] for block in world.seen] == sorted(block.key[0] for block in world.seen)


def test_large_blocks_are_not_sent_to_actors_ahead() -> None:
    """An actor has its next call at once, unless the store could not keep the blocks of both and what it makes."""
    for size, calls in ((BLOCK, 4), (BUDGET // 2, 1)):
        blocks = deque(Block(i, 1, 10, key=(0, i)) for i in range(4))
        stages = [Stage("read", queues=[blocks]), Stage("model", (0,), pool=(2, 2))]
        stream = Stream(stages, BUDGET, 8, BLOCK, False)
        readers = [order.task for order in stream.decide() if isinstance(order, Start)]
        for task in readers:
            stream.made(task, Block(task.key, 1, size))
            stream.ended(task)
        stream.decide()
        assert sum(map(len, stages[1].actors.values())) == calls


@pytest.mark.parametrize(("keeps", "idle", "busy"), [(False, 5, 4), (True, 4, 4)])
def test_readers_use_the_cpus_of_actors_that_wait_for_blocks(keeps: bool, idle: int, busy: int) -> None:
    """On four CPUs, with one task more than fit."""
    blocks = deque(Block(i, 1, 1, key=(0, i)) for i in range(100))
    stages = [Stage("read", queues=[blocks]), Stage("model", (0,), pool=(1, 1), keeps_cpus=keeps)]
    stream = Stream(stages, BUDGET, 4, 1, False)

    def readers() -> list[Task]:
        return [task for task in stages[0].tasks if not task.is_done]

    stream.decide()
    assert len(readers()) == idle
    task = readers()[0]
    stream.made(task, Block(task.key, 1, 1))
    stream.ended(task)
    stream.decide()
    assert (len(stages[1].tasks), len(readers())) == (1, busy)


def test_actors_grow_with_the_work_and_shrink_without() -> None:
    blocks = deque(Block(i, 1, 1, key=(i,)) for i in range(100))
    stages = [Stage("read", queues=[blocks]), Stage("model", (0,), cpus=0, pool=(1, 4))]
    World(5, stages=stages, size=BLOCK, ordered=False).run()
    assert stages[1].actors_made >= 2


class NoBudget(Stream):
    def _has_room(self, number: int) -> bool:
        return True


class NoForce(Stream):
    def _force(self, number: int) -> None:
        pass


class KeepsInputs(Stream):
    def _count(self, block: Block, sign: int) -> None:
        if sign > 0 or block.stage != 0:
            super()._count(block, sign)


class OrderLost(Stream):
    def _move(self, number: int) -> None:
        self._ordered, kept = False, self._ordered
        super()._move(number)
        self._ordered = kept


class QueuedCallsCount(Stream):
    """Calls that wait behind another call of their actor count as being made, so nothing is forced."""

    def _is_making(self, task: Task) -> bool:
        return not task.is_paused and not task.is_done


class LimitTooLate(Stream):
    def _stop(self, number: int) -> None:
        pass


class EndsTwice(Stream):
    def ended(self, task: Task) -> None:
        super().ended(task)
        if task.stage and task.outputs:
            self.out.append(task.outputs[0])


class ForgetsQueues(Stream):
    """A unit with blocks that wait for a task counts as ended."""

    def open_units(self) -> set[tuple[int, ...]]:
        return {task.key[:2] for stage in self.stages for task in stage.tasks}


class Mixes(Stream):
    def _has_tasks_before(self, stage: Stage) -> bool:
        return False


BUGS = [
    NoBudget, NoForce, KeepsInputs, OrderLost, QueuedCallsCount, LimitTooLate, EndsTwice, ForgetsQueues, Mixes,
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: type[Stream]) -> None:
    with pytest.raises((AssertionError, ValueError, KeyError, IndexError)):
        run_many(bug, 400)


def run_many(made_by: type[Stream], count: int) -> None:
    for seed in range(count):
        World(seed, made_by).run()
