"""History: the last calls that ended, with their times, for `timeline()`.

A record takes 0.2 to 0.3 microseconds (`benchmarks.scheduler`, with and without), and 300 bytes. There are at most
HISTORY_CALLS_MAX.

Executors measure with the monotonic clock of their host. Every frame of an executor gives an upper bound of the head's
clock minus its host's: the arrival of the frame minus the end of its last call. The least of these is off by no more
than the fastest message took.
"""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler.log import value_moves
from mpi_runtime.scheduler.protocol import past
from mpi_runtime.scheduler.protocol.entries import TASK_TYPES
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.past import DIED, LEFT
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.records.statistics import Run

OUTCOMES = ("", "raised", "its process died", "cancelled", "")


def record(state: State, executor: Executor, task: Task, start_us: int, duration_us: int, outcome: int) -> None:
    """Record an attempt of a call that has ended."""
    state.ran += 1
    state.totals.busy_us += duration_us
    run = Run(
        task.id,
        task.parent,
        task.function,
        executor.process,
        task.call.attempt,
        task.submitted_us,
        start_us,
        duration_us,
        outcome,
        task.driver,
    )
    state.history.append(run)


def record_death(state: State, executor: Executor, task: Task, now: int) -> None:
    """Record a call that ended with its process. It began after the last message of the process, and its submission."""
    start_us = max(executor.progress_us, task.submitted_us)
    actor = executor.actor
    # With several calls at a time it may have been another one.
    has_left = actor is not None and actor.cause == lifecycle.LEFT and not actor.spec.concurrency
    record(state, executor, task, start_us, now - start_us, LEFT if has_left else DIED)


def history(state: State) -> past.Past:
    """The last runs and moves."""
    runs, moves = part(state, 0, len(state.history)), value_moves.part(state, 0, len(state.logs.moves))
    return past.Past(runs.wall_us, runs.dropped, runs.runs, moves.moves_dropped, moves.moves)


def part(state: State, first: int, most: int) -> past.PastRuns:
    """At most `most` of the runs, from number `first` on. Forgotten runs have numbers too."""
    dropped = state.ran - len(state.history)
    begin = max(0, first - dropped)
    return past.PastRuns(state.wall_us, dropped, [_entry(run) for run in islice(state.history, begin, begin + most)])


def start_us(run: Run) -> int:
    """When it began, by the head's clock. The first node is the head's."""
    node = run.process.node
    return run.start_us + (node.clock_ahead_us if node.number and run.outcome not in (DIED, LEFT) else 0)


def _entry(run: Run) -> past.PastRun:
    process, spec, node = run.process, run.function.spec, run.process.node
    return past.PastRun(
        id=run.id.hex(),
        name=spec.name,
        type=TASK_TYPES[spec.kind.number],
        attempt=run.attempt,
        actor_id=process.actor.hex() or None,
        process=past.RunProcess(process.executor, process.pid, process.name, process.rank),
        node=past.RunNode(node.number, node.hostname),
        times=past.RunTimes(run.submitted_us, start_us(run), run.duration_us),
        error=OUTCOMES[run.outcome],
        driver=run.driver,
    )


def short(run: Run, wall_us: int) -> past.Run:
    """A run for a page."""
    process, function = run.process, run.function
    return past.Run(
        name=function.spec.name,
        kind=function.spec.kind.number,
        host=process.node.hostname,
        rank=process.rank,
        pid=process.pid,
        actor=process.name,
        submitted_us=wall_us + run.submitted_us,
        start_us=wall_us + start_us(run),
        duration_us=run.duration_us,
        outcome=run.outcome,
        attempt=run.attempt,
        cpus=function.spec.asks.cpu / UNIT,
        gpus=function.spec.asks.gpu / UNIT,
        gpu_ids=list(process.gpu_ids),
    )


def report(state: State) -> past.Runs:
    """The last runs, for a page about the job."""
    return past.Runs(state.ran, [short(run, state.wall_us) for run in state.history])
