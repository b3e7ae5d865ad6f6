"""Estimates a finished batch on other nodes: its journal, through the scheduler in virtual time."""

from __future__ import annotations

import heapq
import itertools

import msgspec

from mpi_runtime.batch.extend import Command, Graph, History, Paths
from mpi_runtime.extend import fits
from mpi_runtime.whatif.prospects import Prospect, prospect
from mpi_runtime.whatif.virtual_cluster import Ran, Shape, VirtualCluster, Work, custom


class Shared:
    """Commands that wait for what all jobs of the batch share (`batch_resources`), as its coordinator counts it."""

    def __init__(self) -> None:
        """Begin with everything free."""
        self._used: dict[str, float] = {}
        self._waiting: dict[tuple[tuple[str, float, float], ...], list[tuple[int, int, int, Command]]] = {}
        """By name, amount and total of what they need: heaps of priority, path, serial number and command."""
        self._serial = itertools.count()

    def add(self, command: Command, path_us: int) -> None:
        """A command may start when it has its shares."""
        needs = tuple((name, amount, command.batch_resources[name]) for name, amount in command.shares.items())
        entry = -command.priority, -path_us, next(self._serial), command
        heapq.heappush(self._waiting.setdefault(needs, []), entry)

    def take(self) -> list[Command]:
        """The commands that get their shares now, the first ones first."""
        found = []
        while able := [heap for needs, heap in self._waiting.items() if heap and self._has_room(needs)]:
            command = heapq.heappop(min(able, key=lambda heap: heap[0][:3]))[3]
            self._hold(command, 1)
            found.append(command)
        return found

    def ended(self, command: Command) -> None:
        """A command returns its shares."""
        self._hold(command, -1)

    def _has_room(self, needs: tuple[tuple[str, float, float], ...]) -> bool:
        return all(self._used.get(name, 0.0) + amount <= total + 1e-9 for name, amount, total in needs)

    def _hold(self, command: Command, sign: int) -> None:
        for name, amount in command.shares.items():
            self._used[name] = self._used.get(name, 0.0) + sign * amount


class Batch:
    """Commands with their order, and how long each takes."""

    def __init__(self, history: History) -> None:
        """Read the last plan of a batch, and the last end of each command.

        The duration of a command that has not run is its `time_limit`, or that of the others in its array, or else the
        mean of all commands.
        """
        self.groups = [*history.plan.values()]
        paths = Paths()
        paths.add(self.groups)
        good = {name: ended.result for name, ended in history.ends.items() if ended.result.is_success}
        measured = {name: result.end - result.start for name, result in good.items()}
        for name, seconds in measured.items():
            paths.measured(name, seconds)
        mean_s = sum(measured.values()) / len(measured) if measured else 0.0
        self._means = _means(history)
        self.durations: dict[str, float] = {}
        """The duration of each command in seconds."""
        self.guessed = 0
        """The number of commands without a successful run."""
        for group in self.groups:
            known_s = paths.duration_s(group.name)
            for command in group.commands:
                self.guessed += command.name not in measured
                self.durations[command.name] = measured.get(command.name, mean_s if known_s is None else known_s)

    def on(self, nodes: int, shape: Shape, jobs: int = 1) -> Prospect:
        """The estimate for a number of nodes of one shape, which one job has, or several in equal parts."""
        pool = shape.pool()
        graph, paths, shared = Graph(), Paths(), Shared()  # new ones: durations are learnt only as commands end
        graph.add(self.groups)
        paths.add(self.groups)
        names: list[str] = []
        """The commands, by the tags of their works."""
        left: dict[str, int] = {}
        """By command: its ranks that have not ended. Here each is a call of its own: they need not begin together."""

        def submit() -> None:
            works = []
            ready = graph.take_ready()
            for command in ready:
                if command.shares:
                    shared.add(command, paths.path_us(command.name))
            for command in [*(one for one in ready if not one.shares), *shared.take()]:
                work = self._work(command, paths.path_us(command.name))
                if any(fits(one.request(), pool) for one in work.asked.demands()):
                    works += [work._replace(tag=len(names))] * command.ranks
                    names.append(command.name)
                    left[command.name] = command.ranks
            cluster.submit(works)

        def ended(ran: Ran) -> None:
            name = names[ran.work.tag]
            left[name] -= 1
            if left[name]:
                return
            paths.measured(name, self.durations[name])
            shared.ended(graph.commands[name])
            graph.end(name, True)
            submit()

        cluster = VirtualCluster([shape] * nodes, ended)
        submit()
        ran = cluster.run()
        seconds = max((one.end_us for one in ran), default=0) / 1e6
        never = len(self.durations) - sum(not one for one in left.values())
        return prospect(nodes, shape, seconds, ran, self._chain_s(), never, "commands", jobs)

    def _work(self, command: Command, path_us: int) -> Work:
        group = command.name.rpartition(".")[0] or command.name
        demands = [msgspec.structs.replace(one, resources=dict(custom(one.resources))) for one in command.demands()]
        known_s = self.durations[command.name]
        if command.alternatives:  # its own duration is that of the one it had
            took_s = [self._means.get((group, number), known_s) for number in range(len(demands))]
        else:
            took_s = [known_s]
        first_us, *others_us = [max(1, round(seconds * 1e6)) for seconds in took_s]
        asked = msgspec.structs.replace(
            command,
            resources=demands[0].resources,
            alternatives=tuple(demands if command.alternatives else ()),
            grace=0.0,
        )  # nothing is ended there, so that limits need no grace
        return Work(group, asked, first_us, path_us, others_us=tuple(others_us))

    def _chain_s(self) -> float:
        """The duration of the longest chain of commands."""
        graph, ends = Graph(), dict.fromkeys(self.durations, 0.0)
        graph.add(self.groups)
        owners = {command.name: group for group in self.groups for command in group.commands}
        groups: dict[str, float] = {}
        while ready := graph.take_ready():
            for command in ready:
                owner = owners[command.name]
                after = command.after if owner.is_element_wise else owner.after
                before = [ends.get(name, groups.get(name, 0.0)) for name in after]
                begin_s = max(before, default=0.0)
                ends[command.name] = end_s = begin_s + self.durations[command.name]
                groups[owner.name] = max(groups.get(owner.name, 0.0), end_s)
            for command in ready:
                graph.end(command.name, True)
        return max(ends.values(), default=0.0)


def _means(history: History) -> dict[tuple[str, int], float]:
    """The mean duration in seconds of the commands of each array with each alternative, by its index."""
    found: dict[tuple[str, int], list[float]] = {}
    for name, ended in history.ends.items():
        result = ended.result
        if result.is_success:
            key = name.rpartition(".")[0] or name, result.alternative
            found.setdefault(key, []).append(result.end - result.start)
    return {key: sum(seconds) / len(seconds) for key, seconds in found.items()}
