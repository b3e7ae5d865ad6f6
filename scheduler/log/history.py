"""History: the last calls that ended, with their times, for `timeline()`.

A record takes 0.2 to 0.3 microseconds (`benchmarks.scheduler`, with and without), and 300 bytes. There are at most
HISTORY_CALLS_MAX.

Executors measure with the monotonic clock of their host. Every frame of an executor gives an upper bound of the head's
clock minus its host's: the arrival of the frame minus the end of its last call. The least of these is off by no more
than the fastest message took.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from mpi_runtime.scheduler.log import value_moves
from mpi_runtime.scheduler.log.listing import KINDS
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.records.statistics import Run

RETURNED, RAISED, DIED = range(3)
OUTCOMES = ("", "raised", "its process died")


def record(state: State, executor: Executor, task: Task, start_us: int, duration_us: int, outcome: int) -> None:
    """Record an attempt of a call that has ended."""
    state.ran += 1
    state.totals.busy_us += duration_us
    run = Run(
        task.id, task.function, executor.process, task.call.attempt, task.submitted_us, start_us, duration_us, outcome
    )
    state.history.append(run)


def record_death(state: State, executor: Executor, task: Task, now: int) -> None:
    """Record a call that ended with its process. It began after the last message of the process, and its submission."""
    start_us = max(executor.progress_us, task.submitted_us)
    record(state, executor, task, start_us, now - start_us, DIED)


def history(state: State, _: bytes) -> dict[str, Any]:
    """The last runs, in the order of their ends, with times in microseconds of the head's clock.

    Add `wall_us` for times since 1970. `dropped`: the number of earlier runs that are forgotten.
    """
    return {**part(state, 0, len(state.history)), **value_moves.part(state, 0, len(state.logs.moves))}


def part(state: State, first: int, most: int) -> dict[str, Any]:
    """The same of a part of the runs: at most `most`, from number `first` on. Forgotten runs have numbers too."""
    dropped = state.ran - len(state.history)
    begin = max(0, first - dropped)
    return {
        "wall_us": state.wall_us,
        "dropped": dropped,
        "runs": [_entry(run) for run in islice(state.history, begin, begin + most)],
    }


def _start_us(run: Run) -> int:
    """When it began, by the head's clock. The first node is the head's."""
    node = run.process.node
    return run.start_us + (node.clock_ahead_us if node.number and run.outcome != DIED else 0)


def _entry(run: Run) -> tuple[Any, ...]:
    process, spec, node = run.process, run.function.spec, run.process.node
    return (
        run.id.hex(),
        spec.name,
        KINDS[spec.kind.number],
        run.attempt,
        process.actor.hex() or None,
        (process.executor, process.pid, process.name, process.rank),
        (node.number, node.hostname),
        (run.submitted_us, _start_us(run), run.duration_us),
        OUTCOMES[run.outcome],
    )


def short(run: Run, wall_us: int) -> tuple[Any, ...]:
    """A run for a page, with times in microseconds since 1970.

    Name, kind, host, rank, pid, name of its actor, submission, start, duration, outcome, attempt, CPUs, GPUs, and the
    ids of the GPUs.
    """
    process, function = run.process, run.function
    return (
        function.spec.name,
        function.spec.kind.number,
        process.node.hostname,
        process.rank,
        process.pid,
        process.name,
        wall_us + run.submitted_us,
        wall_us + _start_us(run),
        run.duration_us,
        run.outcome,
        run.attempt,
        function.spec.asks.cpu / UNIT,
        function.spec.asks.gpu / UNIT,
        list(process.gpu_ids),
    )


def report(state: State, _: bytes) -> dict[str, Any]:
    """The last runs, for a page about the job: see `short`."""
    return {"ran": state.ran, "runs": [short(run, state.wall_us) for run in state.history]}
