"""A program with a journal: its first argument is the directory of the journal, its second that of the marks of calls.

`journal-3.11/` was recorded by it before the package was divided into a core and libraries; it must find that again.
"""

import enum
import os
import sys
from dataclasses import dataclass

import numpy as np

import mpi_runtime as ray

ray.init(num_cpus=2, journal=sys.argv[1], journal_sync_s=0)


def ran(name):
    with open(os.path.join(sys.argv[2], str(name)), "a") as file:
        file.write("x")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: float
    colour: Colour


@ray.remote
def square(x):
    ran(f"square_{x}")
    return x * x


@ray.remote
def squares(n):
    ran("squares")
    return ray.get([square.remote(one) for one in range(n)])


@ray.remote
def point(x):
    ran("point")
    return Point(x, Colour.BLUE)


@ray.remote
def large(n):
    ran("large")
    return np.arange(n, dtype=np.float64)


@ray.remote
def functions():
    """Things of the package in a value."""
    ran("functions")
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy("node", soft=True)
    return {
        "function": square,
        "class": Counter,
        "strategy": strategy,
        "error": ray.exceptions.TaskTimeoutError("late"),
    }


@ray.remote
def total(array, points):
    ran("total")
    return float(array.sum()) + sum(one.x for one in points)


@ray.remote(checkpoint_calls=1)
class Counter:
    def __init__(self, start):
        self.count = start

    def add(self, n):
        ran("add")
        self.count += n
        return self.count

    def save_state(self):
        return {"count": self.count, "function": square, "point": Point(1.0, Colour.RED)}

    def load_state(self, state):
        ran("load_state")
        assert state["point"] == Point(1.0, Colour.RED)
        self.count = state["count"]


print(ray.get(squares.remote(3)))
print(ray.get(point.remote(2.5)) == Point(2.5, Colour.BLUE))
array = large.remote(10_000)
print(ray.get(total.remote(array, [Point(0.5, Colour.RED)])))
print(square.map(range(4, 8)).get())
found = ray.get(functions.remote())
print(ray.get(found["function"].remote(9)), found["strategy"].soft, type(found["error"]).__name__)
counter = Counter.remote(10)
print(ray.get([counter.add.remote(n) for n in (1, 2, 3)]))
ray.shutdown()
