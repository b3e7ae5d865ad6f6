"""The order of a batch: which commands may start, and which are skipped after a failed one.

A name stands for a command or for all commands of an array. Arrays are nodes of the graph themselves, so that a
thousand commands after a thousand others are two thousand arrows and not a million.

`Paths` has the longest chain behind each command, so that long chains start first. The duration of a command is the
mean of its array, before that is known its `expect` or its `time_limit`, else the mean of all known durations. If
nothing is known, each command counts as a second, so that the number of steps decides. Arrays are treated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mpi_runtime.batch.file.entries import Problem, unknown
from mpi_runtime.batch.file.model import CONTINUE, STOP, Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import NAMES_MAX

WAITING, STARTED, DONE, FAILED, SKIPPED = "waiting", "started", "done", "failed", "skipped"

WRONG_SHOWN = 3
"""How many unknown names are shown of an array whose commands come after different ones."""


class Graph:
    """The commands of a batch with their states. It starts nothing itself."""

    def __init__(self, settled: Callable[[str, list[str]], object] = lambda _name, _members: None) -> None:
        """Make a graph without commands.

        `settled` is called with each array that has ended and its members, before any of its followers is ready.
        """
        self._settled = settled
        self._members: dict[str, list[str]] = {}
        self.commands: dict[str, Command] = {}
        self.states: dict[str, str] = {}
        self.counts = dict.fromkeys((WAITING, STARTED, DONE, FAILED, SKIPPED), 0)
        self.is_stopped = False
        self._ready: list[Command] = []
        self._waits_for: dict[str, int] = {}
        """For a command: how many names it waits for. For an array: how many of its members have not ended."""
        self._followers: dict[str, list[str]] = {}
        """The commands that wait for a name, and the array of a command."""
        self.outcomes: dict[str, str] = {}
        """The outcome of each name, of commands and of arrays: `DONE`, `FAILED` or `SKIPPED`; "" until it has ended."""
        self._is_broken: set[str] = set()
        """Commands that will be skipped once all that they wait for has ended, and arrays with such members."""

    def add(self, groups: Iterable[Group]) -> None:
        """Add commands. The names in their `after` are known, or are added with them."""
        groups = list(groups)
        for group in groups:
            for command in group.commands:
                self.commands[command.name] = command
                self.states[command.name] = WAITING
                self.outcomes[command.name] = ""
                self._followers[command.name] = [group.name] if group.is_array else []
            if group.is_array:
                self.outcomes[group.name] = "" if group.commands else DONE
                self._waits_for[group.name] = len(group.commands)
                self._members[group.name] = [command.name for command in group.commands]
                self._followers[group.name] = []
            self.counts[WAITING] += len(group.commands)
        for group in groups:
            open_names, is_broken = self._before(() if group.is_element_wise else group.after)
            for command in group.commands:
                if group.is_element_wise:
                    open_names, is_broken = self._before(command.after)
                self._waits_for[command.name] = len(open_names)
                for name in open_names:
                    self._followers[name].append(command.name)
                if is_broken:
                    self._is_broken.add(command.name)
                if not open_names:
                    for name, outcome in self._settle(command.name):
                        self._ended(name, outcome)
        if self.is_stopped:
            self.stop()

    def _before(self, after: Sequence[str]) -> tuple[list[str], bool]:
        """Those of these names that have not ended, and whether one of the others keeps what follows from running."""
        is_broken = any(self.outcomes[name] in (FAILED, SKIPPED) for name in after)
        return [name for name in after if not self.outcomes[name]], is_broken

    def take_ready(self) -> list[Command]:
        """Take the commands that may start. They count as started."""
        taken, self._ready = self._ready, []
        taken = [command for command in taken if self.states[command.name] == WAITING]
        for command in taken:
            self._move(command.name, STARTED)
        return taken

    def end(self, name: str, is_success: bool) -> None:
        """Note the end of a started command."""
        policy = self.commands[name].on_failure
        self._move(name, DONE if is_success else FAILED)
        if not is_success and policy == STOP:
            self.stop()
        self._ended(name, DONE if is_success or policy == CONTINUE else FAILED)

    def cancelled(self, name: str) -> None:
        """Note that a command was cancelled: it counts as skipped."""
        self._move(name, SKIPPED)
        self._ended(name, SKIPPED)

    def stop(self) -> None:
        """Start nothing more."""
        self.is_stopped = True
        for name, state in self.states.items():
            if state == WAITING:
                self._move(name, SKIPPED)

    def is_over(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self.counts[WAITING] and not self.counts[STARTED]

    def skipped(self) -> set[str]:
        """The commands that do not run."""
        return {name for name, state in self.states.items() if state == SKIPPED} if self.counts[SKIPPED] else set()

    def members_of(self, name: str) -> list[str] | None:
        """The commands that a name stands for; None: it is unknown."""
        return [name] if name in self.commands else self._members.get(name)

    def _move(self, name: str, state: str) -> None:
        self.counts[self.states[name]] -= 1
        self.states[name] = state
        self.counts[state] += 1

    def _ended(self, name: str, outcome: str) -> None:
        """Pass the end of a name on to its followers and theirs. Not by recursion: chains may be long."""
        ended = [(name, outcome)]
        while ended:
            name, outcome = ended.pop()
            self.outcomes[name] = outcome
            for follower in self._followers.pop(name):
                self._waits_for[follower] -= 1
                if outcome != DONE:
                    self._is_broken.add(follower)
                if not self._waits_for[follower]:
                    ended += self._settle(follower)

    def _settle(self, name: str) -> list[tuple[str, str]]:
        """Handle a name that waits for nothing more: it is ready, or it has ended too, which is returned."""
        is_broken = name in self._is_broken
        if name not in self.commands:
            self._settled(name, self._members[name])
            return [(name, FAILED if is_broken else DONE)]
        if self.states[name] != WAITING:
            return []
        if self.is_stopped or is_broken:
            self._move(name, SKIPPED)
            return [(name, SKIPPED)]
        self._ready.append(self.commands[name])
        return []


def wrong_names(groups: Sequence[Group], graph: Graph | None = None) -> list[Problem]:
    """Problems of the names of new groups: given twice, unknown, or in a cycle. `graph` has the commands so far."""
    problems: list[Problem] = []
    before = graph.outcomes if graph is not None else {}
    owners: dict[str, int] = {}
    for number, group in enumerate(groups):
        for name in dict.fromkeys([group.name, *(command.name for command in group.commands)]):
            if name in owners or name in before:
                problems.append(Problem(*group.place, f"there are two of the name {name!r}"))
                break
            owners[name] = number
    known = [*owners, *before][:NAMES_MAX]
    wrong_arrays = {group.name for group in groups if group.is_wrong and group.is_array}
    for group in groups:
        wrong = [name for name in group.after if name not in owners and name not in before]
        wrong = [name for name in wrong if name.rpartition(".")[0] not in wrong_arrays]
        shown = wrong[:WRONG_SHOWN] if group.is_element_wise else wrong
        problems += [Problem(*group.after_place, unknown("command or array", name, known)) for name in shown]
    return problems + _cycles(groups, owners)


def _cycles(groups: Sequence[Group], owners: dict[str, int]) -> list[Problem]:
    """A problem for each cycle among the groups that remain after all others have run."""
    before = [{owners[name] for name in group.after if name in owners} for group in groups]
    followers: list[list[int]] = [[] for _ in groups]
    for number, numbers in enumerate(before):
        for one in numbers:
            followers[one].append(number)
    missing = [len(numbers) for numbers in before]
    free = [number for number, count in enumerate(missing) if not count]
    left = set(range(len(groups)))
    while free:
        number = free.pop()
        left.discard(number)
        for one in followers[number]:
            missing[one] -= 1
            if not missing[one]:
                free.append(one)
    problems = []
    while left:
        path = [min(left)]  # each of them waits for another of them: follow these until one repeats
        while (following := min(before[path[-1]] & left, default=-1)) not in (*path, -1):
            path.append(following)
        if following >= 0:
            cycle = path[path.index(following) :]
            names = " after ".join(groups[number].name for number in [*cycle, cycle[0]])
            problems.append(Problem(*groups[min(cycle)].after_place, f"a cycle: {names}"))
        left -= set(path)
    return problems


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

    def is_measured(self, name: str) -> bool:
        """Whether a command of the same array has ended."""
        return self._owners.get(name, "") in self._measured

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
        count, seconds = self._measured.get(name, (0, 0.0))
        if count or first is None:
            return seconds / count if count else None
        return first.time_limit if first.expect is None else first.expect

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
