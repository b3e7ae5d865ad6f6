"""Decides what the stages of a stream of blocks do next: a function of sizes and states, without input or output.

Blocks flow from stage to stage. A task of a stage takes blocks and makes others, one at a time: after each it pauses
until the stream lets it continue, so the stream knows the size of every block before it allows the next one.

    made, ended, released ──► Stream ──► Start, Resume, Cancel, Open, Close      (the runner performs these)

Memory: a block counts for the stage that made it, from its making to the end of the task that reads it, and until it is
there, as large as the largest of the stage's last blocks. Half of the budget is reserved in equal parts for the stages,
so a fast reader cannot take the room that the stages behind it need; the other half goes to whoever asks first.

Progress: if nothing is being made and the consumer has nothing to take, the task that is nearest to the consumer
continues, whatever the budget says. So a block may be larger than the budget, and a stream always ends.

Order: with `ordered` the blocks of a stage move on in the order of its tasks, and the nearest task is the one with the
next block in this order.

Blocks that are as large as the budget are read by one task of a stage at a time, since those that tasks read cannot be
spilled.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from mpi_runtime.data.streams.records import SOURCE, Block, Cancel, Close, Open, Order, Resume, Stage, Start, Task

CALLS_OF_ACTOR = 2
"""An actor has the next call while it runs one, so its arguments are there in time."""
IDLE_ENDS = 8
"""An actor closes if its stage has ended this number of tasks and it was idle all the time."""
SHARED = 0.5
LOOKAHEAD_CPUS = 1.0
"""Tasks for these CPUs wait in the scheduler, so that a CPU that becomes free has work at once."""


class Stream:
    """The state of a stream. The last stage feeds the consumer."""

    def __init__(
        self, stages: list[Stage], budget: int, cpus: float, block_bytes: int, ordered: bool, is_apart: bool = False
    ) -> None:
        """`block_bytes`: the size of blocks before one was measured. `is_apart`: no task takes blocks of two units."""
        self.stages = stages
        self.out: deque[Block] = deque()
        """Blocks for the consumer."""
        self.forced = 0
        """How often a task continued without room in the budget."""
        self._budget = budget
        self._cpus = cpus
        self._block_bytes = block_bytes
        self._is_apart = is_apart
        for stage in stages if is_apart else ():
            stage.is_apart = self._has_tasks_before(stage)
        self._ordered = ordered or any(stage.is_apart and stage.bundle_rows > 1 for stage in stages)
        self._orders: list[Order] = []
        self.units: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        """The parts of sources of each unit that has begun, by its first one. What becomes of them has its key."""
        self.broken: set[tuple[int, ...]] = set()
        """Units of which something has failed."""
        self._makers = max(1, sum(stage.limit is None for stage in stages))
        self._reader = {
            up: (number, slot) for number, stage in enumerate(stages) for slot, up in enumerate(stage.inputs)
        }
        for stage in stages:
            stage.queues = stage.queues or [deque() for _ in stage.inputs]
        for number, stage in enumerate(stages):
            for _ in range(stage.pool[0] if stage.pool and not self._has_ended(number) else 0):
                self._open(number)

    # What has happened

    def made(self, task: Task, block: Block) -> None:
        """A task has made a block, and waits."""
        stage = self.stages[task.stage]
        task.is_paused = True
        block.stage, block.key = task.stage, (*task.key, task.made)
        task.made += 1
        stage.sizes.append(block.bytes)
        stage.blocks += 1
        stage.rows += block.rows
        stage.bytes += block.bytes
        if stage.is_stopped:
            return
        self._count(block, 1)
        task.outputs.append(block)
        self._move(task.stage)

    def skipped(self, task: Task) -> None:
        """A task waits, and what it has made is not a block of the stream: it has no rows."""
        task.is_paused = True

    def ended(self, task: Task) -> None:
        """A task has ended, and makes no more blocks."""
        if task.is_done:
            return
        stage = self.stages[task.stage]
        task.is_done, task.is_paused = True, False
        stage.ended += 1
        for block in task.inputs:
            self._count(block, -1)
        task.inputs = []
        if task.actor in stage.actors:
            calls = stage.actors[task.actor]
            calls.remove(task)
            if not calls:
                stage.idle[task.actor] = stage.ended
        self._move(task.stage)

    def idle_actors(self) -> list[tuple[int, int]]:
        """The stages and numbers of actors without calls."""
        found = [(number, stage.actors.items()) for number, stage in enumerate(self.stages)]
        return [(number, actor) for number, actors in found for actor, calls in actors if not calls]

    def make_way(self, number: int, actor: int) -> None:
        """Others wait for what an idle actor has: close it."""
        self._close(number, actor)

    def hand_over(self, number: int, actor: int, to: int) -> list[Task]:
        """An actor cannot be created for now. Another one has its tasks, in their order: those to start again."""
        stage = self.stages[number]
        before = stage.actors[to]
        for task in stage.actors[actor]:
            task.actor = to
        stage.actors[actor] = []
        stage.actors[to] = [task for task in stage.tasks if task.actor == to and not task.is_done]
        stage.waiting.add(actor)
        stage.idle.pop(to, None)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(before, stage.actors[to], strict=False)))
        return stage.actors[to][same:]

    def created(self, number: int, actor: int) -> None:
        """An actor that waited for resources has them."""
        stage = self.stages[number]
        stage.waiting.remove(actor)
        stage.idle[actor] = stage.ended

    def close(self) -> None:
        """Forget the values of all blocks that the consumer has not taken. What it counts stays, for `stats`."""
        for stage in self.stages:
            of_tasks = [block for task in stage.tasks for block in (*task.inputs, *task.outputs)]
            for block in (*of_tasks, *(block for queue in stage.queues for block in queue)):
                block.value = block.rebuild = None
        for block in self.out:
            block.value = block.rebuild = None

    def take(self) -> Block:
        """The consumer takes a block. It counts until it is released."""
        return self.out.popleft()

    def released(self, block: Block) -> None:
        """The consumer has read a block."""
        self._count(block, -1)

    @property
    def is_done(self) -> bool:
        """Whether the consumer has all blocks."""
        return not self.out and self._has_ended(len(self.stages) - 1)

    def open_units(self) -> set[tuple[int, ...]]:
        """The units of which something is on its way, or has failed."""
        found = {task.key[:2] for stage in self.stages for task in stage.tasks}
        queues = [queue for stage in self.stages if stage.inputs for queue in stage.queues]
        return found | {block.key[:2] for queue in (*queues, self.out) for block in queue} | self.broken

    # What is to be done

    def decide(self) -> list[Order]:
        """What is to be done now."""
        for number in range(len(self.stages)):
            self._pass_limit(number)  # a stage without blocks may have ended
        for number in reversed(range(len(self.stages))):
            self._advance(number)
        for number, stage in enumerate(self.stages):
            if stage.pool:
                self._scale(number, stage, stage.pool)
        if not self.out and not self.is_done and not any(self._is_making(task) for task in self._open_tasks()):
            self.forced += 1
            self._force(len(self.stages) - 1)
        orders, self._orders = self._orders, []
        return orders

    def holds_back(self) -> str:
        """The name of the stage that holds the others back: the last one with blocks that wait for it."""
        waiting = [stage.name for stage in self.stages if stage.limit is None and stage.inputs and any(stage.queues)]
        return waiting[-1] if waiting else self.stages[0].name

    def _advance(self, number: int) -> None:
        stage = self.stages[number]
        for task in stage.tasks:
            may = stage.limit is not None or (self._has_room(number) and self._has_cpu(stage))
            if may and task.is_paused and self._is_first(task):
                self._resume(task)
        while self._can_start(stage) and self._has_room(number) and self._has_cpu(stage):
            self._start(number)

    def _force(self, number: int) -> None:
        """Let the task continue that is nearest to the consumer."""
        stage = self.stages[number]
        for task in stage.tasks:
            if task.is_paused and self._is_first(task):
                self._resume(task)
                return
        if self._can_start(stage):
            self._start(number)
            return
        for up in stage.inputs:
            if not self._has_ended(up):
                self._force(up)
                return

    def _resume(self, task: Task) -> None:
        task.is_paused = False
        self._orders.append(Resume(task))

    def _start(self, number: int) -> None:
        stage = self.stages[number]
        queue = self._queue(stage)
        assert queue is not None
        inputs: list[Block] = []
        rows = 0
        while queue and (not inputs or 1 < stage.bundle_rows > rows):  # rows of a file are not known
            if inputs and stage.is_apart and queue[0].key[:2] != inputs[0].key[:2]:
                break
            inputs.append(queue.popleft())
            rows += inputs[-1].rows
        task = Task(number, inputs, inputs[0].key)
        if self._is_apart:
            self.units.setdefault(task.key[:2], set()).update(block.key[:2] for block in inputs)
        if stage.pool:
            task.actor = min(stage.actors.keys() - stage.waiting, key=lambda actor: (len(stage.actors[actor]), actor))
            stage.actors[task.actor].append(task)
            stage.idle.pop(task.actor, None)
        self._begin(stage, task)

    def _begin(self, stage: Stage, task: Task) -> None:
        stage.tasks.append(task)
        stage.started += 1
        self._orders.append(Start(task))

    def _can_start(self, stage: Stage) -> bool:
        if stage.limit is not None or stage.is_stopped or (queue := self._queue(stage)) is None:
            return False
        if not self._fits(stage, queue[0]):
            return False
        if stage.pool:
            return any(
                len(calls) < CALLS_OF_ACTOR for actor, calls in stage.actors.items() if actor not in stage.waiting
            )
        return sum(not task.is_done for task in stage.tasks) < stage.tasks_max

    def _has_tasks_before(self, stage: Stage) -> bool:
        """Whether tasks have made the blocks of a stage: those of a stored source may be its first ones."""
        before = [self.stages[up] for up in stage.inputs]
        return any(one.limit is None or self._has_tasks_before(one) for one in before)

    def _fits(self, stage: Stage, block: Block) -> bool:
        """Whether a task more may have its blocks in memory: blocks that tasks read cannot be spilled."""
        if block.stage == SOURCE:
            return True
        read = sum(each.bytes for task in stage.tasks if not task.is_done for each in task.inputs)
        return not read or read + block.bytes + self._estimate(stage) <= self._budget

    def _queue(self, stage: Stage) -> deque[Block] | None:
        """The queue from which the next task takes its blocks; None: there are not enough."""
        for slot, queue in enumerate(stage.queues):
            ended = not stage.inputs or self._has_ended(stage.inputs[slot])
            is_whole = ended or (stage.is_apart and queue and queue[0].key[:2] != queue[-1].key[:2])
            if queue and (
                is_whole or stage.bundle_rows <= 1 or sum(block.rows for block in queue) >= stage.bundle_rows
            ):
                return queue
            if self._ordered and not ended:
                return None
        return None

    def _has_room(self, number: int) -> bool:
        reserved = self._budget * (1 - SHARED) / self._makers
        beyond = 0.0
        for other, stage in enumerate(self.stages):
            amount = stage.used + self._estimate(stage) * sum(self._is_making(task) for task in stage.tasks)
            beyond += max(0.0, amount + (self._estimate(stage) if other == number else 0) - reserved)
            if other == number and amount + self._estimate(stage) <= reserved:
                return True
        return beyond <= self._budget * SHARED

    def _estimate(self, stage: Stage) -> int:
        return max(stage.sizes) if stage.sizes else self._block_bytes

    def _has_cpu(self, stage: Stage) -> bool:
        if stage.pool or not stage.cpus:
            return True
        used = sum(self.stages[task.stage].cpus for task in self._open_tasks() if task.actor < 0 and not task.is_paused)
        of_actors = sum(one.cpus * self._working(one) for one in self.stages)
        return used + stage.cpus <= max(self._cpus - of_actors, 1.0) + LOOKAHEAD_CPUS or not used

    def _working(self, stage: Stage) -> int:
        """How many actors of a stage others leave their CPUs to."""
        if stage.keeps_cpus:
            return len(stage.actors)
        return sum(self._is_making(calls[0]) for calls in stage.actors.values() if calls)

    def _scale(self, number: int, stage: Stage, pool: tuple[int, int]) -> None:
        least, most = pool
        if self._has_ended(number) or stage.is_stopped:
            for actor in [actor for actor, calls in stage.actors.items() if not calls]:
                self._close(number, actor)
            return
        is_full = all(len(calls) >= CALLS_OF_ACTOR for calls in stage.actors.values())
        of_actors = sum(one.cpus * len(one.actors) for one in self.stages)
        spare = self._cpus - of_actors - (len(self.stages) > 1)
        may_open = is_full and len(stage.actors) < most and stage.cpus <= spare
        if (may_open or not stage.actors) and self._queue(stage) is not None:  # the last one may have made way
            self._open(number)
        for actor, since in list(stage.idle.items()):
            if len(stage.actors) > least and stage.ended - since >= IDLE_ENDS:
                self._close(number, actor)

    def _open(self, number: int) -> None:
        stage = self.stages[number]
        stage.actors[stage.actors_made] = []
        self._orders.append(Open(number, stage.actors_made))
        stage.actors_made += 1

    def _close(self, number: int, actor: int) -> None:
        stage = self.stages[number]
        del stage.actors[actor]
        stage.idle.pop(actor, None)
        stage.waiting.discard(actor)
        if stage.waiting.issuperset(stage.actors):
            stage.waiting.clear()
        self._orders.append(Close(number, actor))

    # How blocks move

    def _move(self, number: int) -> None:
        """Pass on the blocks of a stage that may go."""
        stage = self.stages[number]
        for task in list(stage.tasks):
            while task.outputs:
                self._pass_on(number, task.outputs.popleft())
            if task.is_done and task in stage.tasks:
                stage.tasks.remove(task)
            elif self._ordered:
                break

    def _pass_on(self, number: int, block: Block) -> None:
        if number not in self._reader:
            self.out.append(block)
            return
        reader, slot = self._reader[number]
        if self.stages[reader].is_stopped:
            self._count(block, -1)
            return
        self.stages[reader].queues[slot].append(block)
        self._pass_limit(reader)

    def _pass_limit(self, number: int) -> None:
        """Pass blocks on without a task, but for the last one of a limit, which is cut."""
        stage = self.stages[number]
        if stage.limit is None:
            return
        while stage.limit and (queue := self._queue(stage)):
            block = queue.popleft()
            if block.rows > stage.limit:
                self._begin(stage, Task(number, [block], block.key, cut=stage.limit))
                stage.limit = 0
            else:
                stage.limit -= block.rows
                self._pass_on(number, block)
        if not stage.limit:
            for up in stage.inputs:
                self._stop(up)
            for queue in stage.queues:
                self._drop(queue)

    def _stop(self, number: int) -> None:
        """Nobody reads the blocks of a stage any more."""
        stage = self.stages[number]
        if stage.is_stopped:
            return
        stage.is_stopped = True
        for task in stage.tasks:
            self._drop(task.outputs)
            if not task.is_done:
                self._orders.append(Cancel(task))
                for block in task.inputs:
                    self._count(block, -1)
                task.inputs, task.is_done = [], True
        stage.tasks.clear()
        for calls in stage.actors.values():
            calls.clear()
        for queue in stage.queues:
            self._drop(queue)
        for up in stage.inputs:
            self._stop(up)

    def _drop(self, queue: deque[Block]) -> None:
        while queue:
            self._count(queue.popleft(), -1)

    def _count(self, block: Block, sign: int) -> None:
        if block.stage != SOURCE:
            stage = self.stages[block.stage]
            stage.used += sign * block.bytes
            stage.peak = max(stage.peak, stage.used)

    def _has_ended(self, number: int) -> bool:
        stage = self.stages[number]
        if stage.is_stopped or (stage.limit == 0 and not stage.tasks):
            return True
        return not stage.tasks and not any(stage.queues) and all(self._has_ended(up) for up in stage.inputs)

    def _is_making(self, task: Task) -> bool:
        """Whether a task works on its next block, which another call of its actor may prevent."""
        return not task.is_paused and not task.is_done and self._is_first(task)

    def _is_first(self, task: Task) -> bool:
        calls = self.stages[task.stage].actors.get(task.actor)
        return not calls or calls[0] is task

    def _open_tasks(self) -> list[Task]:
        return [task for stage in self.stages for task in stage.tasks if not task.is_done]
