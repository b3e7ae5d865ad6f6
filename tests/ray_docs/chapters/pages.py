"""Programs in the manner of the pages of Ray's guide of its core: each names its page."""

import os
import random

import ray

from tests.ray_docs.helpers import eventually


def gotchas_variables_of_the_driver():
    """Page "Gotchas": what the driver changes after the first call does not reach the function."""
    state = {"value": 1}

    @ray.remote
    def read():
        return state["value"]

    print(ray.get(read.remote()))
    state["value"] = 2
    print(ray.get(read.remote()), ray.get(read.remote()))


def gotchas_environment_of_the_driver():
    """Page "Gotchas": a variable that the driver sets later is not one of its tasks; `runtime_env` sets it."""
    os.environ["SET_LATE"] = "1"

    @ray.remote
    def read():
        return os.environ.get("SET_LATE", "none")

    try:
        print(ray.get(read.options(runtime_env={"env_vars": {"SET_LATE": "2"}}).remote()))
    finally:
        del os.environ["SET_LATE"]


def gotchas_global_of_each_process():
    """Page "Gotchas": an actor is where a count is kept that all tasks change."""

    @ray.remote
    class Count:
        def __init__(self):
            self.value = 0

        def add(self, by):
            self.value += by
            return self.value

    @ray.remote
    def work(count, by):
        return ray.get(count.add.remote(by))

    count = Count.remote()
    found = ray.get([work.remote(count, by) for by in range(5)])
    print(max(found), ray.get(count.add.remote(0)))


def monte_carlo():
    """Page "Monte Carlo estimation of pi": tasks count, and an actor has their progress."""

    @ray.remote
    class Progress:
        def __init__(self, total):
            self.total, self.done = total, {}

        def report(self, number, done):
            self.done[number] = done

        def share(self):
            return sum(self.done.values()) / self.total

    @ray.remote
    def sample(number, count, progress):
        drawn = random.Random(number)
        inside = sum(drawn.random() ** 2 + drawn.random() ** 2 <= 1 for _ in range(count))
        progress.report.remote(number, count)
        return inside

    progress = Progress.remote(4 * 500)
    inside = sum(ray.get([sample.remote(number, 500, progress) for number in range(4)]))
    print(2.9 < 4 * inside / 2000 < 3.4, eventually(lambda: ray.get(progress.share.remote()) == 1.0))


def sort_by_a_tree_of_tasks():
    """Page "Pattern: using nested tasks to achieve nested parallelism": a sort divides itself."""

    def halves(values):
        pivot, rest = values[0], values[1:]
        return [one for one in rest if one < pivot], pivot, [one for one in rest if one >= pivot]

    @ray.remote
    def sort(values):
        if len(values) < 20:
            return sorted(values)
        low, pivot, high = halves(values)
        parts = [sort.remote(low), sort.remote(high)]
        return [*ray.get(parts[0]), pivot, *ray.get(parts[1])]

    values = random.Random(1).sample(range(1000), 200)
    print(ray.get(sort.remote(values)) == sorted(values))


def map_reduce():
    """Page "A simple MapReduce example": each map returns a part for each reduce."""
    words = ["a b a", "b c b", "a c"]

    @ray.remote(num_returns=2)
    def count(text):
        found = [{}, {}]
        for word in text.split():
            part = found[ord(word) % 2]
            part[word] = part.get(word, 0) + 1
        return found

    @ray.remote
    def merge(*parts):
        total = {}
        for part in parts:
            for word, number in part.items():
                total[word] = total.get(word, 0) + number
        return total

    maps = [count.remote(text) for text in words]
    print([sorted(ray.get(merge.remote(*(parts[which] for parts in maps))).items()) for which in range(2)])
