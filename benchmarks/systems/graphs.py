"""Graphs of tasks by the definitions of Task Bench, and how they are measured; `graphs_*.py` bring the systems.

Task Bench: Slaughter and others, "Task Bench: A Parameterized Benchmark for Evaluating Parallel Runtime Performance",
SC20. A graph is `steps` rows of `width` points; a task at a point reads what tasks of the row before have returned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.launching import emit
from benchmarks.systems.work import WORKERS, timed

RADIX = 3
"""`random_nearest` reads from a point's own column and, each by chance, from its two neighbours."""
CONNECTED = 0.25
LONGEST_US = 16_000.0
SHORTEST_US = 0.5
USEFUL_S = 0.5
"""What the tasks of one graph compute on each core, in seconds."""
FEWEST_STEPS, MOST_STEPS = 30, 3_000
ENOUGH = 0.4
"""Below this efficiency nothing shorter is tried: the 50 % lie between two lengths that were."""

Value = tuple[int, int]
"""What a task returns: its step and its point, as in Task Bench. 16 bytes there."""


@dataclass(frozen=True)
class Graph:
    """One graph: its pattern, how wide and how long it is, and how long each task computes."""

    pattern: str
    width: int
    steps: int
    loops: int
    """Turns of the loop in each task."""

    def points(self, step: int) -> range:
        """The points of a row: all but at the root of a tree, which doubles until it is as wide as the graph."""
        return range(min(self.width, 1 << min(step, 30)) if self.pattern == "tree" else self.width)

    def reads(self, step: int, point: int) -> list[int]:
        """The points of the row before that this task reads."""
        before = self.points(step - 1) if step else range(0)
        return [one for one in PATTERNS[self.pattern](self.width, step, point) if one in before]

    @property
    def tasks(self) -> int:
        """How many there are."""
        return sum(len(self.points(step)) for step in range(self.steps))

    def unread(self) -> list[Value]:
        """The tasks whose results no other task reads: when these have ended, all have."""
        read = {
            (step - 1, one)
            for step in range(1, self.steps)
            for point in self.points(step)
            for one in self.reads(step, point)
        }
        return [(step, p) for step in range(self.steps) for p in self.points(step) if (step, p) not in read]


def _fft(width: int, step: int, point: int) -> list[int]:
    stages = max(1, (width - 1).bit_length())
    distance = 1 << ((step - 1) % stages)
    return [point - distance, point, point + distance]


def _random_nearest(width: int, step: int, point: int) -> list[int]:
    near = range(point - RADIX // 2, point + (RADIX - 1) // 2 + 1)
    return [one for one in near if one == point or random.Random(f"{step} {one} {point}").random() < CONNECTED]


PATTERNS: dict[str, Callable[[int, int, int], Sequence[int]]] = {
    "trivial": lambda width, step, point: (),
    "stencil_1d": lambda width, step, point: (point - 1, point, point + 1),
    "fft": _fft,
    "tree": lambda width, step, point: (point // 2,),
    "random_nearest": _random_nearest,
}
"""What a task reads, by width, step and point, in Task Bench's names; points outside of a row are left out."""


def compute(loops: int) -> None:
    """What a task does: a loop of a fixed number of turns, so that a core that is taken away counts as lost."""
    for _ in range(loops):
        pass


def task(step: int, point: int, loops: int, *read: Value) -> Value:
    """One task. It checks what it reads, as Task Bench does: each value is of the row before."""
    for before, _ in read:
        assert before == step - 1
    compute(loops)
    return step, point


def loops_per_us() -> float:
    """Turns of the loop in a microsecond on this machine when nothing else runs: the best of several."""
    loops = 200_000
    best_s = min(timed(lambda: compute(loops)) for _ in range(15))
    return loops / (1e6 * best_s)


def measure(
    run: Callable[[Graph], float],
    patterns: Sequence[str],
    widths: Sequence[int],
    speed: float,
    report: Callable[..., None] = emit,
) -> None:
    """Run graphs of ever shorter tasks, and report seconds and efficiency of each, by default as a line of JSON.

    `run` does one graph and returns its seconds; `speed` is `loops_per_us()`, the same for all systems.
    """
    for pattern in patterns:
        for width in widths:
            run(Graph(pattern, width, FEWEST_STEPS, 0))  # warm
            length_us, efficiency = LONGEST_US, 1.0
            while length_us >= SHORTEST_US and efficiency >= ENOUGH:
                steps = round(1e6 * WORKERS * USEFUL_S / (width * length_us))
                graph = Graph(pattern, width, min(max(steps, FEWEST_STEPS), MOST_STEPS), round(speed * length_us))
                seconds = run(graph)
                efficiency = graph.tasks * length_us / (1e6 * seconds * WORKERS)
                report(pattern=pattern, width=width, length_us=length_us, seconds=seconds, efficiency=efficiency)
                length_us /= 2
