"""Records in a circle. Python's collector does not track those of the scheduler (`gc=False`): a circle of records that
have left its tables stays in memory for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mpi_runtime.scheduler.records.records import Actor, Executor, Gang, Task
from mpi_runtime.scheduler.records.state import State

_PASSING = (Actor, Executor, Gang, Task)
"""Kinds of records that come and go in great numbers."""


class Passing:
    """The passing records that a scheduler has had."""

    def __init__(self) -> None:
        self._seen: dict[int, msgspec.Struct] = {}

    def look(self, state: State) -> None:
        """Note those that it has now."""
        for record in _roots(state):
            self._seen[id(record)] = record

    def circles(self, state: State) -> list[str]:
        """Those that it has no more, and that lead back to themselves: the kind, and the way."""
        present = {id(record) for record, _ in _reached((root, "") for root in _roots(state))}
        gone = [record for key, record in self._seen.items() if key not in present]
        return [
            f"{type(record).__name__}{way}"
            for record in gone
            for other, way in _reached(_referred(record, ""))
            if other is record
        ]


def _roots(state: State) -> Iterator[msgspec.Struct]:
    yield from state.actors.values()
    for executor in state.executors.values():
        yield executor
        yield from executor.assigned.values()
    for found in state.objects.values():
        if found.task is not None:
            yield found.task


def _reached(ways: Iterable[tuple[object, str]]) -> Iterator[tuple[object, str]]:
    """All passing records that are reached from these, each once, with the way to it."""
    visited: set[int] = set()
    ahead = list(ways)
    while ahead:
        one, way = ahead.pop()
        if id(one) not in visited:
            visited.add(id(one))
            ahead += _referred(one, way)
            if isinstance(one, _PASSING):
                yield one, way


def _referred(one: object, way: str) -> list[tuple[object, str]]:
    """What a passing record or a container refers to."""
    if isinstance(one, _PASSING):
        return [(getattr(one, name), f"{way}.{name}") for name in one.__struct_fields__]
    if isinstance(one, dict):
        return [(value, f"{way}[]") for value in one.values()]
    return [(value, f"{way}[]") for value in one] if isinstance(one, (list, tuple)) else []
