"""History: the last calls that ended, with their times, for `timeline()`.

A record takes 0.2 to 0.3 microseconds (`benchmarks.scheduler`, with and without), and 300 bytes. There are at most
HISTORY_CALLS_MAX.

Executors measure with the monotonic clock of their host. Every frame of an executor gives an upper bound of the head's
clock minus its host's: the arrival of the frame minus the end of its last call. The least of these is off by no more
than the fastest message took.
"""

from __future__ import annotations

from typing import Any

from mpi_runtime.scheduler.log.listing import KINDS
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.records.records import Executor, Node, Task
from mpi_runtime.scheduler.records.state import Run, State

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
    head = next(iter(state.nodes.values()), None)
    return {
        "wall_us": state.wall_us,
        "dropped": state.ran - len(state.history),
        "runs": [_entry(run, head) for run in state.history],
    }


def _entry(run: Run, head: Node | None) -> tuple[Any, ...]:
    process, spec, node = run.process, run.function.spec, run.process.node
    start_us = run.start_us
    if node is not head and run.outcome != DIED:
        start_us += node.clock_ahead_us
    return (
        run.id.hex(),
        spec.name,
        KINDS[spec.kind],
        run.attempt,
        process.actor.hex() or None,
        (process.executor, process.pid, process.name, process.rank),
        (node.number, node.hostname),
        (run.submitted_us, start_us, run.duration_us),
        OUTCOMES[run.outcome],
    )


def report(state: State, _: bytes) -> dict[str, Any]:
    """The last runs, with all data for a page about the job: see `history`."""
    found = history(state, b"")
    asked = [(run.function.request, run.process.gpu_ids) for run in state.history]
    found["asked"] = [(request.cpu / UNIT, request.gpu / UNIT, list(devices)) for request, devices in asked]
    found["counts"] = {"ended": state.finished + state.failed, "failed": state.failed, "retried": state.retried}
    found["actors"], found["restarted"] = state.totals.actors, state.restarted
    return found
