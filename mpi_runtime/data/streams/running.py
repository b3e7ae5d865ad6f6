"""Runs a stream: performs what its decisions order with tasks and actors, in the process of the consumer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

import mpi_runtime
from mpi_runtime.data.context import MIB, DataContext
from mpi_runtime.data.plan import Building, Built, Earlier, Operator, has_order
from mpi_runtime.data.steps import BlockError, Header, Meta
from mpi_runtime.data.streams.calls import STREAMS, Call, actor_of_stage, run_task
from mpi_runtime.data.streams.lost_blocks import REBUILDS_MAX, RETRIES, STUCK_S, Rebuilding, forget, recipe_of, table_of
from mpi_runtime.data.streams.making_way import look
from mpi_runtime.data.streams.progress import Bar, Stats
from mpi_runtime.data.streams.records import Block, Cancel, Close, Open, Order, Resume, Start, Task
from mpi_runtime.data.streams.stream import Stream
from mpi_runtime.errors import ObjectLostError
from mpi_runtime.extend import ask
from mpi_runtime.scheduler.protocol.questions import Tasks
from mpi_runtime.show import log
from mpi_runtime.util.state import list_actors
from mpi_runtime.util.streams import together

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ActorHandle, ObjectRef

SHARE = 0.4
"""The part of the object stores that a stream may fill with blocks."""
BLOCKS_OF_CPU = 16
"""The budget has room for this number of blocks of each CPU: what tasks need beside it is small then."""
WAIT_S = 0.2
"""A wait that is longer looks whether the consumer has closed the stream."""
WAITING_S = 5.0
"""See after these seconds whether actors that wait for resources have them."""
CANCELLED_S = 5.0
"""The most seconds to wait for tasks that were cancelled, if what they leave behind is to be removed."""
ALIKE_S = 1.0
"""The most seconds that an error waits for those of other tasks."""


class Running:
    """A stream that runs while somebody asks for its next block. Not for several threads at a time."""

    def __init__(
        self,
        operator: Operator,
        ordered: bool,
        note: Callable[[Stats], None] | None = None,
        settings: DataContext | None = None,
        earlier: Earlier | None = None,
    ) -> None:
        """Start nothing yet. `note` gets the counts of the run; None as `settings`: those of this process."""
        context = settings or DataContext.get_current()
        total = mpi_runtime.cluster_resources()
        budget = context.execution_options.budget or int(SHARE * total.get("object_store_memory", 1 << 30))
        largest = context.target_max_block_size or budget
        cpus = total.get("CPU", 1.0)
        of_cpus = int(cpus) or 1
        block_bytes = max(1, min(largest, max(MIB, budget // (BLOCKS_OF_CPU * of_cpus))))
        building = Building(of_cpus, block_bytes, earlier.sizes(of_cpus, block_bytes) if earlier else None)
        building.add(operator)
        self._errors_max = context.max_errored_blocks
        self._built: list[Built] = building.built
        self._chains = [mpi_runtime.put(chain) for chain in building.chains(self._errors_max != 0)]
        ordered = ordered or context.execution_options.preserve_order or has_order(operator)
        stages = [one.stage for one in building.built]
        is_apart = earlier is not None and earlier.leave_out(stages)
        self.stream = Stream(stages, budget, cpus, block_bytes, ordered, is_apart)
        self.stats = Stats(self.stream, time.monotonic())
        if note is not None:
            note(self.stats)
        # If others keep all CPUs, such as the workers of a training, or actors of this stream, the rest asks for none.
        of_actors = [(stage.keeps_cpus, stage.cpus * stage.pool[0]) for stage in stages if stage.pool]
        self._cpus = cpus
        free = mpi_runtime.available_resources().get("CPU", 0.0) - sum(kept * amount for kept, amount in of_actors)
        self._have_actors_cpus = free >= sum(amount for kept, amount in of_actors if not kept)
        self._has_cpus = free >= 1
        self._looks_s = time.monotonic() + STUCK_S
        self._asks_s = 0.0
        self._keeps = any(stage.pool or built.needs.keeps for stage, built in zip(stages, self._built, strict=True))
        self._calls: dict[int, Call] = {}
        self._actors: dict[tuple[int, int], ActorHandle] = {}
        self._deaths: dict[tuple[int, int], tuple[int, int]] = {}
        """For actors that were found dead: what their stage had made then, and how often they had restarted before."""
        self._holders: set[tuple[int, int]] = set()
        """Actors that need a CPU to be created although their stage does not state it."""
        self._cancelled: list[ObjectRef[object]] = []
        self.empty: ObjectRef[pyarrow.Table] | None = None
        """A block without rows, which has the columns of a result without rows."""
        self._bar = Bar(self.stats) if context.enable_progress_bars else None
        self._is_closed = self._stops = False

    def next(self) -> Block | None:
        """Wait for the next block, which counts as memory until it is released; None: there are no more.

        Raises:
            BlockError: a function or a reader has failed.
            MpiRuntimeError: a block was lost.
        """
        while not self._is_closed and not self._stops:
            self._perform(self.stream.decide())
            self._look()
            self._perform(self.stream.decide())
            if self._bar is not None:
                self._bar.turn()
            if self.stream.out:
                return self.stream.take()
            if self.stream.is_done:
                self.close()
                return None
            self._wait()
        return None

    def release(self, block: Block) -> None:
        """The consumer needs the block no longer."""
        block.value = None
        self.stream.released(block)

    def stop(self) -> None:
        """Have the next wait for a block end without one. For other threads than that of `next`."""
        self._stops = True

    def close(self) -> None:
        """End what runs. Later calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.stats.ended_s = time.monotonic()
        for call in self._calls.values():
            self._cancel(call)
        self._calls.clear()
        for actor in self._actors.values():
            mpi_runtime.kill(actor)
        self._actors.clear()
        self.stream.close()
        if self._bar is not None:
            self._bar.turn(is_last=True)

    def wait_closed(self) -> None:
        """After `close()`, wait for what it has cancelled, but not for long."""
        if self._cancelled:
            mpi_runtime.wait(self._cancelled, num_returns=len(self._cancelled), timeout=CANCELLED_S, fetch_local=False)
            self._cancelled.clear()

    def _perform(self, orders: list[Order]) -> None:
        with together():
            for order in orders:
                self._perform_one(order)

    def _perform_one(self, order: Order) -> None:
        match order:
            case Start(task):
                self._start(task)
            case Resume(task):
                call = self._calls[id(task)]
                if call.made >= call.known:  # else it was started again, and makes a block now
                    call.generator.resume()
            case Cancel(task):
                if id(task) in self._calls:
                    self._forget(task).generator.close()
            case Open(stage, actor):
                built = self._built[stage]
                options = built.needs.options_of_calls
                if built.stage.cpus and self._have_actors_cpus and not built.stage.keeps_cpus:
                    self._holders.add((stage, actor))
                else:
                    options["num_cpus"] = built.needs.num_cpus or 0
                options |= built.needs.of_next_call()
                options |= {"max_restarts": -1, "max_task_retries": options.pop("max_retries", RETRIES)}
                self._actors[stage, actor] = actor_of_stage.options(**options).remote(self._chains[stage])
            case Close(stage, actor):
                # Its blocks are in the store. A call that is cancelled may still run there.
                self._holders.discard((stage, actor))
                self._deaths.pop((stage, actor), None)
                mpi_runtime.kill(self._actors.pop((stage, actor)))

    def _start(self, task: Task) -> None:
        before = self._calls.get(id(task))
        built = self._built[task.stage]
        header = Header(tuple(block.origin for block in task.inputs), task.key, task.cut)
        inputs = [block.value for block in task.inputs]
        chain = self._chains[task.stage]
        has_cpus = task.actor < 0 and self._has_cpus and built.needs.num_cpus is None and built.stage.cpus > 0
        if task.actor >= 0:
            method = self._actors[task.stage, task.actor].run
            generator = method.options(**STREAMS).remote(header, *inputs)
        else:
            named = {"num_cpus": built.stage.cpus if has_cpus else built.needs.num_cpus or 0, "name": built.stage.name}
            options = {"max_retries": RETRIES} | built.needs.options_of_calls | named | built.needs.of_next_call()
            generator = run_task.options(**options | STREAMS).remote(chain, header, *inputs)
        recipe = recipe_of(chain, header, tuple(task.inputs), built.needs)
        self._calls[id(task)] = call = Call(task, generator, recipe, tuple(task.inputs), has_cpus)
        if before is not None:
            call.known, call.rebuilds = max(before.made, before.known), before.rebuilds

    def _start_again(self, task: Task) -> None:
        """Start another call of a task in place of the last one; with it those that wait for it in its actor."""
        calls = self.stream.stages[task.stage].actors.get(task.actor, [task])
        self._call_again(calls[calls.index(task) :])

    def _call_again(self, tasks: list[Task]) -> None:
        for one in tasks:
            if id(one) in self._calls:  # else its start is among the next orders
                self._cancel(self._calls[id(one)])
                self._start(one)

    def _cancel(self, call: Call) -> None:
        call.generator.close()
        self._cancelled.append(call.generator.completed())

    def _wait(self) -> None:
        making = [call.generator for call in self._calls.values() if not call.task.is_paused]
        if making and mpi_runtime.wait(making, timeout=WAIT_S)[0]:
            self._looks_s = time.monotonic() + STUCK_S
            if any(stage.waiting for stage in self.stream.stages) and time.monotonic() >= self._asks_s:
                self._make_way()
        elif time.monotonic() >= self._looks_s:
            self._unstick()
            self._looks_s = time.monotonic() + STUCK_S

    def _unstick(self) -> None:
        """Nothing was made for a while: see whether something waits for what others of this stream keep."""
        self._make_way()
        found = list_actors([("state", "!=", "ALIVE")]) if self._actors else []
        waiting = {entry["actor_id"]: entry for entry in found}
        for place, handle in self._actors.items():
            if entry := waiting.get(handle._actor_id.hex()):
                self._check_deaths(place, int(entry["num_restarts"]))
        if self.has_lost_cpus():
            self._need_less()

    def _make_way(self) -> None:
        """Have actors and tasks give way to others that wait for what they keep."""
        self._asks_s = time.monotonic() + WAITING_S
        if not self._keeps:
            return
        found = look(self.stream.stages, self._calls, self._actors)
        for place in found.created:
            self.stream.created(*place)
        for (stage, actor), (_, other) in found.moves:
            self._call_again(self.stream.hand_over(stage, actor, other))
        for holder in () if found.moves else found.giving():
            if isinstance(holder, Task):
                self._start_again(holder)
            elif self.stream.stages[holder[0]].actors[holder[1]]:
                self._open_again(*holder)
            else:
                self.stream.make_way(*holder)

    def _open_again(self, stage: int, actor: int) -> None:
        """Have another actor in place of one, for its calls too."""
        self._perform_one(Close(stage, actor))
        self._perform_one(Open(stage, actor))
        if calls := self.stream.stages[stage].actors[actor]:
            self._start_again(calls[0])

    def _check_deaths(self, place: tuple[int, int], restarts: int) -> None:
        """End the stream if an actor dies again and again while its stage makes nothing, such as in its constructor."""
        built = self._built[place[0]]
        made = built.stage.blocks + built.stage.ended
        then, before = self._deaths.get(place, (0, 0))
        self._deaths[place] = made, restarts if made != then else before
        most = built.needs.options_of_calls.get("max_retries", RETRIES)
        if made == then and 0 <= most < restarts - before:  # type: ignore[operator]
            self.close()
            times = f"its process has ended {restarts - before} times"
            raise BlockError(
                f"{built.stage.name} has failed: {times} without a block. Perhaps its constructor ends it."
            )

    def has_lost_cpus(self) -> bool:
        """Whether there are fewer CPUs than at the beginning."""
        return mpi_runtime.cluster_resources().get("CPU", 0.0) < self._cpus

    def _need_less(self) -> None:
        """A node was lost. Nothing has a CPU that did not ask from now on, or waits for what is made elsewhere.

        Else calls that rebuild lost blocks could wait for the CPU of an actor that waits for these blocks.
        """
        self._has_cpus = self._have_actors_cpus = False
        running = {entry.task_id for entry in ask(Tasks()) if entry.state == "RUNNING"}

        def waits(task: Task) -> bool:
            call = self._calls.get(id(task))
            return task.is_paused or call is None or call.generator.completed().hex() not in running

        for stage, actor in list(self._holders):
            calls = self.stream.stages[stage].actors.get(actor)
            if calls is not None and all(map(waits, calls)):
                self._open_again(stage, actor)
        rebuilding = Rebuilding(waits_for_nothing=True)
        for call in list(self._calls.values()):
            task = call.task
            if not task.is_paused and call is self._calls[id(task)]:  # else it was started again just now
                is_new = rebuilding.rebuild(call.inputs)
                if is_new or (call.has_cpus and waits(task)):
                    self._start_again(task)

    def _look(self) -> None:
        """See what tasks have made."""
        first = True
        for call in list(self._calls.values()):
            task, generator = call.task, call.generator
            if task.is_paused or task.is_done or call is not self._calls.get(id(task)):
                continue
            if generator.next_ready(look=first):
                first = False
                self._take(call)
            elif generator.is_finished():
                self._ended(task)

    def _take(self, call: Call) -> None:
        """Take the next block of a call, and what it says of it."""
        task, generator = call.task, call.generator
        taken = generator.next_ref(None, resume=False)
        if taken is None:
            self._ended(task)
            return
        if taken == generator.completed():
            self._has_raised(call)
            return
        if call.block is None:
            call.block = taken
            if generator.next_ready(look=False):  # else its process may have died before the second item
                self._take(call)
            return
        ref, call.block = call.block, None
        meta = mpi_runtime.get(taken)
        assert isinstance(meta, Meta)
        call.made += 1
        if call.made <= call.known:
            generator.resume()
            return
        self.stats.seconds[task.stage] += meta.seconds
        if meta.error:
            self.stream.broken.add(task.key[:2])
            self._failed(meta.error)
        if meta.rows:
            origin = task.inputs[0].origin if task.inputs else ""
            recipe = None if call.recipe is None else replace(call.recipe, number=task.made)
            self.stream.made(task, Block(ref, meta.rows, meta.bytes, origin, rebuild=recipe))
        else:
            self.empty = self.empty or (None if meta.error else ref)
            self.stream.skipped(task)
        if meta.is_last:
            self._ended(task)

    def _has_raised(self, call: Call) -> None:
        """Start a task again if it has lost blocks. Other errors end the stream."""
        try:
            mpi_runtime.get(call.generator.completed())
        except ObjectLostError:
            call.rebuilds += 1
            if call.rebuilds <= REBUILDS_MAX and Rebuilding().rebuild(call.inputs):
                self._start_again(call.task)
                return
            self._close_failed()
            raise
        except Exception:
            self._close_failed()
            raise
        except BaseException:
            self.close()
            raise

    def _close_failed(self) -> None:
        """End what runs. Other tasks may have failed alike: read their errors, which would be logged as unhandled."""
        self.close()
        if self._cancelled:
            ended, _ = mpi_runtime.wait(
                self._cancelled, num_returns=len(self._cancelled), timeout=ALIKE_S, fetch_local=False
            )
            for ref in ended:
                with contextlib.suppress(Exception):
                    mpi_runtime.get(ref)

    def table(self, block: Block) -> pyarrow.Table:
        """The rows of a block that the consumer has taken. It is rebuilt if it is lost.

        Raises:
            ObjectLostError: it cannot be rebuilt.
        """
        return table_of(block, self.makes_way)

    def makes_way(self) -> bool:
        """The consumer waits for a block that is rebuilt: make way for that. Returns whether there are fewer CPUs."""
        if not self._is_closed:
            self._make_way()
            self._perform(self.stream.decide())
        return self.has_lost_cpus()

    def _ended(self, task: Task) -> None:
        self._forget(task)  # what waits in the task for being resumed ends with it
        self.stream.ended(task)

    def _forget(self, task: Task) -> Call:
        """Forget the call of a task, and the values of what it has read."""
        call = self._calls.pop(id(task))
        for block in call.inputs:
            forget(block)
        return call

    def _failed(self, error: str) -> None:
        self.stats.errors.append(error)
        if 0 <= self._errors_max < len(self.stats.errors):
            self.close()
            raise BlockError(f"{error}\n{len(self.stats.errors)} blocks have failed, and max_errored_blocks allows "
                             f"{self._errors_max}.")  # fmt: skip
        log.say(log.line(log.WARNING, log.DATA, f"A block was left out: {error}"), quiet=False)


def blocks_of(running: Running) -> Iterator[Block]:
    """Yield the blocks of a stream, and close it at the end, also at an early one."""
    try:
        while (block := running.next()) is not None:
            yield block
            if block.value is not None:
                running.release(block)
    finally:
        running.close()


def tables_of(running: Running) -> Iterator[pyarrow.Table]:
    """Yield the rows of each block of a stream, and close it at the end, also at an early one."""
    for block in blocks_of(running):
        yield running.table(block)
