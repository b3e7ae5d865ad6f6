"""Durations of commands and of the longest chain behind each, so that long chains start first.

The duration of a command is its `time_limit`, else the mean of its array, else the mean of all known durations. With
`expect` it is the mean of its array, and before that is known what was expected. If nothing is known, each command
counts as a second, so that the number of steps decides. Arrays are treated as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpi_runtime.batch.file.parse import Group

_NOTHING_KNOWN_S = 1.0


class Paths:
    """The lengths of chains in a batch."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._owners: dict[str, str] = {}
        """The group of each command."""
        self._measured: dict[str, tuple[int, float]] = {}
        """For each group the number of its commands that were measured, and the sum of their seconds."""
        self._all = (0, 0.0)
        """The same of all groups together."""
        self._paths: dict[str, float] = {}
        self._look_again_at = 0
        """The number of measured groups at which paths are computed again: each time twice as many."""

    def add(self, groups: Iterable[Group]) -> None:
        """Take more commands into account."""
        for group in groups:
            self._groups[group.name] = group
            for command in group.commands:
                self._owners[command.name] = group.name
        self._look_again_at = 0

    def measured(self, name: str, seconds: float) -> None:
        """Note how long a command took."""
        owner = self._owners.get(name)
        if owner is not None:
            count, known_s = self._measured.get(owner, (0, 0.0))
            self._measured[owner] = count + 1, known_s + seconds
            self._all = self._all[0] + 1, self._all[1] + seconds

    def expected_s(self, name: str) -> float:
        """How long a command takes: as others of its array, else its `expect`, else as all, within its limit."""
        owner = self._owners.get(name, "")
        first = self._groups[owner].commands[0] if owner in self._groups else None
        count, seconds = self._measured.get(owner, (0, 0.0))
        if not count and first is not None and first.expect is not None:
            return first.expect
        if not count:
            count, seconds = self._all
        found = seconds / count if count else _NOTHING_KNOWN_S
        return found if first is None or first.time_limit is None else min(found, first.time_limit)

    def path_us(self, name: str) -> int:
        """How long a command and the longest chain after it take, in microseconds, rounded down to a power of two.

        Rounded, because the scheduler has a queue for each length.
        """
        if len(self._measured) >= self._look_again_at:
            self._look_again_at = 2 * len(self._measured) + 1
            self._find()
        path_us = int(self._paths.get(self._owners.get(name, ""), 0.0) * 1e6)
        return 1 << path_us.bit_length() - 1 if path_us else 0

    def duration_s(self, name: str) -> float | None:
        """How long the commands of a group take; None if this is not known."""
        group = self._groups[name]
        first = group.commands[0] if group.commands else None
        if first is not None and first.time_limit is not None and first.expect is None:
            return first.time_limit
        count, seconds = self._measured.get(name, (0, 0.0))
        return seconds / count if count else first.expect if first is not None else None

    def _find(self) -> None:
        durations = {name: self.duration_s(name) for name in self._groups}
        known = [one for one in durations.values() if one is not None]
        default_s = sum(known) / len(known) if known else _NOTHING_KNOWN_S
        before: dict[str, list[str]] = {}
        followers = dict.fromkeys(self._groups, 0)
        for name, group in self._groups.items():
            names = [self._owners.get(one, one) for one in group.after]
            before[name] = [one for one in dict.fromkeys(names) if one in self._groups]
            for one in before[name]:
                followers[one] += 1
        self._paths = {}
        longest = dict.fromkeys(self._groups, 0.0)
        last = [name for name, count in followers.items() if not count]
        while last:
            name = last.pop()
            own_s = durations[name]
            path_s = self._paths[name] = longest[name] + (default_s if own_s is None else own_s)
            for one in before[name]:
                longest[one] = max(longest[one], path_s)
                followers[one] -= 1
                if not followers[one]:
                    last.append(one)
