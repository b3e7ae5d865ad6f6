"""Actors: state that lives in a process of its own, and answers one call at a time.

A counter that several tasks increment, a logger that all of them write to, and a pool of actors kept busy with `wait`.

    python examples/actors.py
    mpi-runtime run -n 4 examples/actors.py
"""

import math
import os
from typing import Any

import mpi_runtime

mpi_runtime.init(num_cpus=4)


@mpi_runtime.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def increment(self, by: int = 1) -> int:
        self.value += by
        return self.value


@mpi_runtime.remote
class Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line)

    def read(self) -> list[str]:
        return self.lines


@mpi_runtime.remote
class Factorizer:
    """A member of the pool; a real one would load a model or open a data set here, once."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def factors(self, number: int) -> tuple[int, list[int], int]:
        rest, found = number, []
        for candidate in range(2, math.isqrt(number) + 1):
            while rest % candidate == 0:
                found.append(candidate)
                rest //= candidate
        return number, found + [rest] * (rest > 1), self.pid


@mpi_runtime.remote
def count_up(counter: Any, logger: Any, task: int) -> None:
    """Handles are values: they go to tasks, to other actors, into lists."""
    last = mpi_runtime.get([counter.increment.remote() for _ in range(25)])[-1]
    mpi_runtime.get(logger.write.remote(f"task {task} in process {os.getpid()} saw the counter at {last}"))


counter, logger = Counter.remote(), Logger.remote()
assert mpi_runtime.get([counter.increment.remote() for _ in range(5)]) == [1, 2, 3, 4, 5]  # in the order of the calls

mpi_runtime.get([count_up.remote(counter, logger, task) for task in range(4)])
lines = mpi_runtime.get(logger.read.remote())
print(*lines, sep="\n")
total = mpi_runtime.get(counter.increment.remote(0))
print(f"the counter stands at {total} after 5 calls from here and 4 x 25 from tasks")
assert total == 105
assert len(lines) == 4

# The pool: an actor that has answered is given the next number; none idles while there is work.
numbers = [600_000_007 + 2 * n for n in range(24)]
waiting = list(reversed(numbers))
pool = [Factorizer.remote() for _ in range(3)]
busy = {actor.factors.remote(waiting.pop()): actor for actor in pool}
answers = {}
while busy:
    [ready], _ = mpi_runtime.wait(list(busy))
    actor = busy.pop(ready)
    number, factors, pid = mpi_runtime.get(ready)
    answers[number] = factors
    if waiting:
        busy[actor.factors.remote(waiting.pop())] = actor
primes = [number for number in numbers if answers[number] == [number]]
print(f"a pool of {len(pool)} actors factorised {len(answers)} numbers; primes among them: {primes}")
assert sorted(answers) == numbers
assert all(math.prod(factors) == number for number, factors in answers.items())
