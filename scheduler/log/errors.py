"""Errors of calls for people who look at the job: equal ones are counted together, and the number of kinds is bounded.

Two errors of a function are equal if their texts differ only in numbers: "no pose after 200 steps" and "after 210".
"""

from __future__ import annotations

import re

from mpi_runtime.scheduler.protocol.window_questions import ErrorEntry
from mpi_runtime.scheduler.records.lifecycle import first_line
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.records.statistics import ErrorSeen, Failed

KINDS_MAX = 100
"""The most kinds of errors. Further kinds are counted as one."""
TEXT_MAX = 300
OTHERS = ("", "errors of other kinds")
_NUMBERS = re.compile(r"\d+")


def note(
    state: State,
    task: Task,
    text: str,
    executor: Executor | None,
    trace: str = "",
    again: bool = False,
    code: str = "",
    is_cancelled: bool = False,
) -> None:
    """Count an error of an attempt, unless it was cancelled.

    `again`: the call is retried; else it has failed. `code`: one of the runtime.
    """
    name = task.function.spec.name
    text = first_line(text)[:TEXT_MAX]
    _remember(state, task, text, code)
    if is_cancelled:
        return  # somebody wanted it
    key = (name, _NUMBERS.sub("#", text))
    seen = state.errors.get(key)
    if seen is None and len(state.errors) >= KINDS_MAX:
        seen = state.errors.setdefault(OTHERS, ErrorSeen(*OTHERS))
    elif seen is None:
        seen = state.errors[key] = ErrorSeen(name, text)
    seen.failed += not again
    seen.retried += again
    seen.last_us = state.stories.now
    if executor is not None:
        seen.rank, seen.host = executor.rank.number, executor.rank.node.hostname
    if trace:
        seen.trace = trace
        seen.text = text


def _remember(state: State, task: Task, text: str, code: str) -> None:
    """Remember the error for lists of ended calls."""
    function = task.function
    actor = task.id if function.is_actor else task.call.actor
    times = (task.submitted_us, state.stories.now)
    failed = Failed(
        task.id, task.parent, actor, function, task.call.attempt, *times, code, text, state.ran, task.driver
    )
    state.logs.failed.append(failed)


def errors(state: State, name: str | None = None) -> list[ErrorEntry]:
    """The kinds of errors, the most frequent first; `name`: only those of this function, with tracebacks."""
    chosen = [seen for seen in state.errors.values() if name is None or seen.function == name]
    chosen.sort(key=lambda one: (-one.failed, -one.retried))
    return [_entry(seen, state.wall_us, seen.trace if name is not None else "") for seen in chosen]


def _entry(seen: ErrorSeen, wall_us: int, trace: str) -> ErrorEntry:
    last_us = seen.last_us + wall_us
    return ErrorEntry(seen.function, seen.text, seen.failed, seen.retried, last_us, seen.rank, seen.host, trace)
