"""Calls that bring their own scheduler: thousands of short calls, of which the head of the job sees two.

python examples/own_scheduler.py
mpi-runtime run -n 4 examples/own_scheduler.py
"""

import random

import mpi_runtime as ray

CALLS = 1000
THROWS = 200


@ray.remote
def throw(seed: int) -> int:
    """How many of some points in a square lie in its circle."""
    draw = random.Random(seed).random
    return sum(draw() ** 2 + draw() ** 2 < 1 for _ in range(THROWS))


@ray.remote(num_cpus=1, own_scheduler=True)
def many(first: int) -> int:
    """Runs on one host. Its calls go to a scheduler of its own, over the CPUs of this call."""
    return sum(ray.get([throw.remote(seed) for seed in range(first, first + CALLS)]))


if __name__ == "__main__":
    ray.init()
    refs = [many.remote(part * CALLS) for part in range(2)]
    inside = sum(ray.get(refs))
    print(f"pi is about {4 * inside / (2 * CALLS * THROWS):.2f}")
