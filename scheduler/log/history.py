"""History: the last calls that ended, with their times, for `timeline()`.

A record takes 0.2 to 0.3 microseconds (`benchmarks.scheduler`, with and without), and 300 bytes. There are at most
HISTORY_CALLS_MAX.

Executors measure with the monotonic clock of their host, which counts from another moment on each. Every frame of an
executor tells how much the head's clock is ahead of its host's, at most: by how much the frame came later than its last
call ended. The least that was ever seen is off by no more than the fastest of these messages took.
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
    """An attempt of a call has ended."""
    state.ran += 1
    state.totals.busy_us += duration_us
    state.history.append(
        Run(
            task.call.id,
            task.function,
            executor.process,
            task.call.attempt,
            task.submitted_us,
            start_us,
            duration_us,
            outcome,
        )
    )


def record_death(state: State, executor: Executor, task: Task, now: int) -> None:
    """A call ended with its process: it began after the process was last heard of, and after it was submitted."""
    start_us = max(executor.progress_us, task.submitted_us)
    record(state, executor, task, start_us, now - start_us, DIED)


def note_clock(node: Node, end_us: int, now: int) -> None:
    """Tighten the bound on how far the head's clock is ahead of this host's: a call ended there at `end_us`."""
    node.clock_ahead_us = min(node.clock_ahead_us, now - end_us)


def history(state: State, _: bytes) -> dict[str, Any]:
    """What has run, in the order in which it ended; times are microseconds of the head's clock.

    `wall_us` is to be added for times since 1970. `dropped` is how many runs before these are forgotten.
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
    """What has run, with all that a page about the job shows: see `history`."""
    found = history(state, b"")
    asked = [(run.function.request, run.process.gpu_ids) for run in state.history]
    found["asked"] = [(request.cpu / UNIT, request.gpu / UNIT, list(devices)) for request, devices in asked]
    found["counts"] = {"ended": state.finished + state.failed, "failed": state.failed, "retried": state.retried}
    found["actors"], found["restarted"] = state.totals.actors, state.restarted
    return found
