"""Programs of common shapes in the names of Ray's core API: fan-in, chain, tree, nested calls, 1 MB values, actors."""

from typing import Any

import numpy as np

from benchmarks.systems.work import Work, clock, repeated

FAN = 100
LEAVES = 64
CHILDREN = 10
MB_FLOATS = 10**6 // 8


def one(*needed: object) -> int:
    """A task that needs others."""
    return 1


def add(left: int, right: int) -> int:
    """A node of a tree."""
    return left + right


def make() -> Any:
    """A value of 1 MB."""
    return np.ones(MB_FLOATS)


def gradient(parameters: Any) -> Any:
    """A worker's part of a step."""
    return parameters * 0.5


class Server:
    """Has 1 MB of parameters."""

    def __init__(self) -> None:
        self.parameters = np.ones(MB_FLOATS)

    def read(self) -> Any:
        """The parameters."""
        return self.parameters

    def apply(self, *gradients: Any) -> int:
        """Change them."""
        self.parameters = self.parameters - sum(gradients)
        return 1


def works(ray: Any) -> dict[str, Work]:
    """All work, done through the module `ray`, which has been initialised."""
    return {**_calls(ray), **_values(ray)}


def _calls(ray: Any) -> dict[str, Work]:
    task, node = ray.remote(one), ray.remote(add)

    @ray.remote(num_cpus=0)
    def parent() -> int:
        return sum(ray.get([task.remote() for _ in range(CHILDREN)]))

    def tree() -> None:
        level = [task.remote() for _ in range(LEAVES)]
        while len(level) > 1:
            level = [node.remote(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
        assert ray.get(level[0]) == LEAVES

    def chain(count: int) -> float:
        started = clock()
        last = task.remote()
        for _ in range(count - 1):
            last = task.remote(last)
        ray.get(last)
        return clock() - started

    def wait_loop(count: int) -> float:
        started = clock()
        left = [task.remote() for _ in range(count)]
        while left:
            _, left = ray.wait(left)
        return clock() - started

    return {
        "fan_in": repeated(lambda: ray.get(task.remote(*[task.remote() for _ in range(FAN)]))),
        "chain": chain,
        "tree": repeated(tree),
        "wait_loop": wait_loop,
        "nested": repeated(lambda: ray.get(parent.remote())),
    }


def _values(ray: Any) -> dict[str, Work]:
    task, maker, worker, kind = ray.remote(one), ray.remote(make), ray.remote(gradient), ray.remote(Server)
    server, array = kind.remote(), make()

    def step() -> None:
        parameters = server.read.remote()
        ray.get(server.apply.remote(*[worker.remote(parameters) for _ in range(2)]))

    def results(count: int) -> float:
        started = clock()
        for ref in [maker.remote() for _ in range(count)]:
            assert ray.get(ref).nbytes == array.nbytes
        return clock() - started

    def warm_results(count: int) -> float:
        """Into memory that earlier results have left, and that both workers have in their page tables."""
        for _ in range(10):
            results(count)
        return results(count)

    def arguments(count: int) -> float:
        started = clock()
        ray.get([task.remote(array) for _ in range(count)])
        return clock() - started

    def actors(count: int) -> float:
        started = clock()
        made = [kind.remote() for _ in range(count)]
        ray.get([actor.apply.remote() for actor in made])
        return clock() - started

    return {
        "mb_argument": arguments,
        "mb_result": results,
        "mb_result_warm": warm_results,
        "parameter_server": repeated(step),
        "actors": actors,
    }
