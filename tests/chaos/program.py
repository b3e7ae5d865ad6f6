"""What runs while its processes are killed: `program.py ENOUGH SEED SIZE NAME...`, started by `judge.py`.

It goes through the programs named, again and again, each with a known answer, in two threads at a time, until the file
ENOUGH is there; then once more. In the end each call must have ended exactly once, as far as the driver was told, and
nothing may be left in the job. Its last line is then `right`, with the number of rounds and of calls.

Each program is written as somebody would who wants to survive: calls may be run again without limit, and where no retry
can help (`ObjectLostError` of what cannot be made again) it asks once more.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import asdict

import mpi_runtime as ray
from mpi_runtime.core.client import current
from mpi_runtime.errors import ActorDiedError, ActorUnavailableError, ObjectLostError, WorkerCrashedError
from mpi_runtime.scheduler.protocol.questions import Statistics
from mpi_runtime.util import get_current_placement_group, placement_group, remove_placement_group
from mpi_runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from mpi_runtime.util.state import list_objects, list_tasks

LARGE = 20_000
"""Numbers of an array that lies in the object store."""
REST_S = 30.0
T = TypeVar("T")
numbers = count(1)
submitted: list[int] = []
ends: list[int] = []
"""The journal: the numbers of the calls that have ended, as the driver is told."""


def noted(ref: Any) -> Any:
    """Have the end of a call noted in the journal."""
    number = next(numbers)
    submitted.append(number)
    ref.future().add_done_callback(lambda _: ends.append(number))
    return ref


def insist(ask: Callable[[], T]) -> T:
    """Ask again for what was lost and cannot be made again."""
    while True:
        with suppress(ObjectLostError):
            return ask()


# A graph of tasks with a known answer.


@ray.remote(max_retries=-1)
def combine(number: int, is_large: bool, *values: Any) -> Any:
    total = number + sum(value if isinstance(value, int) else int(value[-1]) for value in values)
    return np.full(LARGE, total) if is_large else total


@ray.remote(max_retries=-1)
def nest(depth: int) -> int:
    if depth == 0:
        return 1
    return 1 + sum(ray.get([nest.remote(depth - 1) for _ in range(2)]))


def graph(random: random.Random, size: int) -> None:
    refs: list[Any] = []
    totals: list[int] = []
    for number in range(30 * size):
        chosen = random.sample(range(max(0, number - 12), number), min(number, random.randrange(4)))
        totals.append(number % 7 + sum(totals[one] for one in chosen))
        is_large = random.random() < 0.4
        refs.append(noted(combine.remote(number % 7, is_large, *(refs[one] for one in chosen))))
    deep = noted(nest.remote(3))
    found = [value if isinstance(value, int) else int(value[0]) for value in ray.get(refs)]
    assert found == totals, (found, totals)
    assert ray.get(deep) == 15


# Short calls of which each needs the values of others: many are sent before these exist.


@ray.remote(max_retries=-1)
def link(number: int, *before: tuple[int, bytes]) -> tuple[int, bytes]:
    """A sum, and bytes that are others in each attempt: whoever read them must have read the same."""
    return number + sum(one for one, _ in before), os.urandom(4) + b"".join(mark[:4] for _, mark in before)


def chains(random: random.Random, size: int) -> None:
    rows: list[list[tuple[Any, list[Any], int]]] = [[(link.remote(1), [], 1) for _ in range(3)]]
    for number in range(60 * size):
        row = []
        for at in range(3):
            some = [at] if random.random() < 0.7 else range(max(0, at - 1), min(3, at + 2))
            chosen = [rows[-1][one] for one in some]
            makers = [ref for ref, _, _ in chosen]
            row.append((noted(link.remote(number, *makers)), makers, number + sum(total for _, _, total in chosen)))
        rows.append(row)
    for ref, makers, total in [one for row in rows for one in row]:
        found, mark = ray.get(ref)
        assert found == total, (found, total)
        assert mark[4:] == b"".join(other[:4] for _, other in ray.get(makers)), "a value was made twice"


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Linker:
    def link(self, number: int, *before: tuple[int, bytes]) -> tuple[int, bytes]:
        return number + sum(one for one, _ in before), os.urandom(4) + b"".join(mark[:4] for _, mark in before)


def lines(random: random.Random, size: int) -> None:
    """Calls of an actor that need each other's values, and others between them: all right, in order."""
    ours = [Linker.remote() for _ in range(2)]
    last: list[tuple[Any, int]] = [(noted(ours[0].link.remote(1)), 1)]
    checked: list[tuple[Any, list[Any], int]] = []
    for number in range(60 * size):
        chosen = last[-1:] if random.random() < 0.8 else random.sample(last, min(len(last), random.randrange(3)))
        actor = ours[random.random() < 0.05]
        makers, total = [ref for ref, _ in chosen], number + sum(one for _, one in chosen)
        last = [*last[-5:], (noted(actor.link.remote(number, *makers)), total)]
        checked.append((last[-1][0], makers, total))
    for ref, makers, total in checked:
        found, mark = ray.get(ref)
        assert found == total, (found, total)
        assert mark[4:] == b"".join(other[:4] for _, other in ray.get(makers)), "a value was made twice"


# Actors that count.


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Sequence:
    def __init__(self) -> None:
        self.life = os.urandom(8)
        self.count = 0

    def next(self, number: int) -> tuple[int, bytes, int]:
        self.count += 1
        return number, self.life, self.count


def actors(random: random.Random, size: int) -> None:
    """Calls run in order, each once in the life whose answer counts: a life counts from 1, without a gap."""
    ours = [Sequence.remote() for _ in range(2)]
    refs = [[noted(actor.next.remote(number)) for number in range(25 * size)] for actor in ours]
    for one in refs:
        life, so_far = b"", 0
        for index, (number, its_life, its_count) in enumerate(ray.get(one)):
            so_far = so_far + 1 if its_life == life else 1
            life = its_life
            assert (number, its_count) == (index, so_far), (number, its_count, index, so_far)


# Calls that run once at most.


@ray.remote(max_retries=0)
def leave_a_line(path: str, number: int) -> int:
    return write_line(path, number)


@ray.remote(max_restarts=-1, num_cpus=0)
class Writer:
    def leave_a_line(self, path: str, number: int) -> int:
        return write_line(path, number)


def write_line(path: str, number: int) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\n" % number)
    os.close(descriptor)
    return number


def once(random: random.Random, size: int) -> None:
    """What may not be run again is not, and whoever is told of its value can rely on it."""
    path = Path(f"once-{random.getrandbits(64)}")
    writer = Writer.remote()
    refs = [noted(leave_a_line.remote(str(path), number)) for number in range(20 * size)]
    refs += [noted(writer.leave_a_line.remote(str(path), len(refs) + number)) for number in range(10 * size)]
    ended = set()
    for number, ref in enumerate(refs):
        with suppress(WorkerCrashedError, ActorUnavailableError, ActorDiedError):
            assert ray.get(ref) == number
            ended.add(number)
    lines = Counter(map(int, path.read_text().split())) if path.exists() else Counter()
    path.unlink(missing_ok=True)
    assert set(lines.values()) <= {1}, lines
    assert ended <= set(lines), ended - set(lines)


# Generators.


@ray.remote(num_returns="streaming", max_retries=-1)
def count_up(end: int, is_large: bool) -> Iterator[Any]:
    for number in range(end):
        yield np.full(LARGE, number) if is_large else number


def generators(random: random.Random, size: int) -> None:
    """Items come in order, none of them twice; those that were lost with a rank cannot be made again."""

    def take(end: int, is_large: bool) -> list[int]:
        values = [ray.get(ref) for ref in count_up.remote(end, is_large)]
        return [int(value[-1]) if is_large else value for value in values]

    for is_large in (False, True):
        end = random.randrange(1, 30 * size)
        assert insist(lambda end=end, large=is_large: take(end, large)) == list(range(end))  # type: ignore[misc]


# Placement groups.


@ray.remote(max_retries=-1)
def where() -> bytes:
    group = get_current_placement_group()
    return b"" if group is None else group.id.binary()


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=1)
class Inside:
    def where(self) -> bytes:
        group = get_current_placement_group()
        return b"" if group is None else group.id.binary()


def groups(random: random.Random, size: int) -> None:
    """What is placed in a group runs in it, and its CPUs come back when it is removed."""
    strategy = random.choice(["PACK", "SPREAD"])
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy=strategy)
    inside = PlacementGroupSchedulingStrategy(group)
    actor = Inside.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote()
    refs = [noted(where.options(scheduling_strategy=inside).remote()) for _ in range(5 * size)]
    refs += [noted(actor.where.remote()) for _ in range(5 * size)]
    found = ray.get(refs)
    remove_placement_group(group)
    assert set(found) == {group.id.binary()}


# A shuffle.


@ray.remote(num_returns=4, max_retries=-1)
def split(seed: int) -> list[Any]:
    numbers = np.random.default_rng(seed).integers(0, 1000, 4 * LARGE)
    return [numbers[numbers % 4 == part] for part in range(4)]


@ray.remote(max_retries=-1)
def merge(*parts: Any) -> Any:
    return np.sort(np.concatenate(parts))


def shuffle(random: random.Random, size: int) -> None:
    seeds = [random.randrange(1000) for _ in range(2 * size)]
    parts = [split.remote(seed) for seed in seeds]
    refs = [noted(merge.remote(*(one[part] for one in parts))) for part in range(4)]
    numbers = np.concatenate([np.random.default_rng(seed).integers(0, 1000, 4 * LARGE) for seed in seeds])
    for part, merged in enumerate(ray.get(refs)):
        assert np.array_equal(merged, np.sort(numbers[numbers % 4 == part]))


# A parameter server.


def step(weights: Any, version: int, number: int) -> Any:
    return (3 * weights + version + number) % 1009


@ray.remote(max_retries=-1)
def gradient(weights: Any, version: int, number: int) -> Any:
    return step(weights, version, number)


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Server:
    def __init__(self) -> None:
        self.version = -1
        self.weights: Any = None

    def restore(self, version: int, weights: Any) -> None:
        self.version, self.weights = version, weights

    def push(self, version: int, *gradients: Any) -> bool:
        """Whether it had the weights of that version: a server that was created again has none."""
        if self.version != version:
            return False
        self.restore(version + 1, sum(gradients) % 1009)
        return True

    def pull(self) -> tuple[int, Any]:
        return self.version, self.weights


def parameter_server(random: random.Random, size: int) -> None:
    """Each version follows from the one before. A server that has forgotten is given the last one that was pulled."""
    server = Server.remote()
    weights = expected = np.arange(LARGE)
    ray.get(server.restore.remote(0, weights))
    version = 0
    while version < 2 * size:
        now = ray.put(weights)
        gradients = [noted(gradient.remote(now, version, number)) for number in range(3)]
        if ray.get(noted(server.push.remote(version, *gradients))):
            found, pulled = insist(lambda: ray.get(server.pull.remote()))
            if found == version + 1:
                expected = sum(step(expected, version, number) for number in range(3)) % 1009
                assert np.array_equal(pulled, expected)
                version, weights = found, pulled
                continue
        ray.get(noted(server.restore.remote(version, now)))


# A map.


@ray.remote(max_retries=-1)
def square(number: int) -> int:
    return number * number


def squares(random: random.Random, size: int) -> None:
    many = 1_000_000 if size >= 10 else 2000 * size
    assert sum(square.map(range(many))) == (many - 1) * many * (2 * many - 1) // 6


PROGRAMS: dict[str, Callable[[random.Random, int], None]] = {
    one.__name__: one
    for one in (graph, chains, lines, actors, once, generators, groups, shuffle, parameter_server, squares)
}


def rounds(enough: Path, random: random.Random, size: int, names: list[str], failed: list[str]) -> int:
    """Go through the programs until there is enough; how often that was."""
    done, is_last = 0, False
    while not (is_last or failed):
        is_last = enough.exists()
        random.shuffle(names)
        for name in names:
            PROGRAMS[name](random, size)
            done += 1
    return done


def cpus() -> float:
    """How many are free: all that there are, if nothing runs. With a host goes what it has."""
    return ray.available_resources().get("CPU", 0)


def wait_until_at_rest() -> None:
    """Fail if a call has not ended just once, or anything is left in the job."""
    end = time.monotonic() + REST_S
    while True:
        gc.collect()
        counts = asdict(current.client().questions.ask(Statistics()))
        left = {name: counts[name] for name in ("objects", "actors", "stored_extents", "ready") if counts[name]}
        if len(ends) >= len(submitted) and not left and cpus() == ray.cluster_resources()["CPU"]:
            break
        assert time.monotonic() < end, (left, cpus(), len(submitted), len(ends), list_tasks(), list_objects())
        time.sleep(0.05)
    assert sorted(ends) == sorted(submitted), [one for one in Counter(ends).items() if one[1] > 1]


def main(enough: str, seed: str, size: str, *names: str) -> int:
    ray.init(num_cpus=4, object_store_memory=256 << 20)
    print("ready", flush=True)
    failed: list[str] = []
    counts: list[int] = []

    def work(number: int) -> None:
        try:
            own = random.Random(f"{seed} {number}")
            counts.append(rounds(Path(enough), own, int(size), list(names or PROGRAMS), failed))
        except BaseException:
            failed.append(traceback.format_exc())
            print(failed[-1], file=sys.stderr, flush=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not failed:
        wait_until_at_rest()
        print("right", sum(counts), len(submitted), flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
