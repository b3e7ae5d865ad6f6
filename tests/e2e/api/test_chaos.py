"""Everything at once: threads that submit, wait, pass on and drop, large and small, while executors and actors die.

What comes back must be right, and in the end nothing may be left. A run is not repeated exactly by its seed, since
processes run as the system lets them; what a seed fixes is what is asked for.
"""

import re

import pytest

from tests.helpers import run_program

PROGRAM = r"""
import gc, os, random, sys, threading, time, traceback
import numpy as np
from msgspec.structs import asdict
import mpi_runtime as ray
from mpi_runtime.core.client import current
from mpi_runtime.scheduler.protocol.questions import Statistics
from mpi_runtime.util.state import list_objects, list_tasks

seed, operations, cpus, threads = map(int, sys.argv[1:])
ray.init(num_cpus=cpus, object_store_memory=400 << 20)
SIZES = [10, 1000, 100_000, 1_000_000]
LIMIT_S = 100
DEATHS_MAX = 4
# So often a call may kill its process. By chance it might do so for longer than anybody waits here: from the eighth
# time on it is run again after five seconds, and nobody waits for a call whose reference was dropped.


def dies():
    with open(f"{ray.get_runtime_context().get_task_id()}.deaths", "a") as file:
        if file.tell() < DEATHS_MAX and random.random() < 0.5:
            file.write("x")
            file.flush()
            os.kill(os.getpid(), 9)


@ray.remote(max_retries=-1)
def work(kind, size, depth, *values):
    number = sum(value if isinstance(value, int) else int(np.sum(value)) for value in values)
    if kind == "die":
        dies()
    if kind == "sleep":
        time.sleep(size / 1e6)
    if kind == "nest" and depth:
        return len(ray.get([work.remote(inner, size, depth - 1, 1) for inner in ("plain", "big", "nest", "die")]))
    if kind == "big":
        return np.ones(size, np.int8)
    if kind == "put":
        return [ray.put(np.ones(size, np.int8)), number]
    return number


@ray.remote
class Actor:
    def __init__(self):
        self.calls = 0
        self.kept = []

    def add(self, value):
        self.calls += 1
        return self.calls

    def keep(self, value):
        self.kept = [*self.kept[-2:], value]

    def pass_on(self, other):
        return ray.get(other.add.remote(0))

    def die(self):
        os._exit(1)


class Caller:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.refs, self.actors, self.calls = [], [], {}

    def submit(self):
        arguments = self.random.sample(self.refs, min(len(self.refs), self.random.randrange(3)))
        kind = self.random.choice(["plain", "big", "nest", "sleep", "die"])
        self.refs.append(work.remote(kind, self.random.choice(SIZES), 2, *arguments))
        del self.refs[:-30]

    def get(self):
        ray.get(self.random.choice(self.refs), timeout=LIMIT_S)

    def wait(self):
        ray.wait(self.refs, num_returns=min(3, len(self.refs)), timeout=LIMIT_S)

    def get_inside(self):
        size = self.random.choice(SIZES)
        inner, _ = ray.get(work.remote("put", size, 0), timeout=LIMIT_S)
        assert ray.get(inner, timeout=LIMIT_S).sum() == size

    def call(self):
        if len(self.actors) < 4:
            self.actors.append(Actor.remote())
            self.calls[self.actors[-1]] = 0
        actor = self.random.choice(self.actors)
        before, count = self.calls[actor], self.random.randrange(1, 20)
        found = ray.get([actor.add.remote(ray.put(n)) for n in range(count)], timeout=LIMIT_S)
        assert found == list(range(before + 1, before + count + 1)), (found, before)
        self.calls[actor] += count
        actor.keep.remote(np.ones(self.random.choice(SIZES), np.int8))

    def pass_on(self):
        if len(self.actors) > 1:
            first, second = self.random.sample(self.actors, 2)
            self.calls[second] += 1
            assert ray.get(first.pass_on.remote(second), timeout=LIMIT_S) == self.calls[second]

    def end_actor(self):
        if self.actors:
            actor = self.actors.pop(self.random.randrange(len(self.actors)))
            del self.calls[actor]
            how = self.random.choice(["kill", "die", "drop"])
            if how == "kill":
                ray.kill(actor)
            elif how == "die":
                try:
                    ray.get(actor.die.remote(), timeout=LIMIT_S)
                    raise AssertionError("it lives")
                except ray.exceptions.ActorDiedError:
                    pass

    def run(self):
        self.submit()
        choices = [self.submit] * 9 + [self.get] * 2 + [self.wait] * 2 + [self.get_inside, self.pass_on]
        choices += [self.call] * 4 + [self.end_actor]
        for _ in range(operations):
            self.random.choice(choices)()
        ray.get(self.refs, timeout=LIMIT_S)


failures = []


def run(number):
    try:
        Caller(seed * 100 + number).run()
    except BaseException:
        failures.append(number)
        traceback.print_exc()


callers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
if failures:
    sys.exit(1)
end = time.monotonic() + 30
while True:
    gc.collect()
    counts = asdict(current.client().questions.ask(Statistics()))
    left = {name: counts[name] for name in ("objects", "actors", "stored_extents", "ready") if counts[name]}
    if not left and ray.available_resources()["CPU"] == cpus:
        break
    assert time.monotonic() < end, (left, ray.available_resources(), list_tasks(), list_objects())
    time.sleep(0.05)
assert len(ray.get(ray.put(np.zeros(390 << 20, np.int8)))) == 390 << 20, "memory was lost"
print("nothing left")
"""


TOLD = re.compile(
    r"[\d:]{8} mpi_runtime: (\S+ is run again \(|actor .* It is (not )?started again|unhandled error of ).*"
)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("way", "seed", "operations", "cpus", "threads"),
    [
        pytest.param({}, 1, 150, 4, 4, id="plain"),
        pytest.param({}, 2, 150, 1, 2, id="one-cpu"),
        pytest.param({"ranks": 4, "mpi": "mpich"}, 4, 150, 3, 3, id="mpich", marks=pytest.mark.mpi),
    ],
)
def test_chaos(way: dict[str, object], seed: int, operations: int, cpus: int, threads: int) -> None:
    arguments = [str(number) for number in (seed, operations, cpus, threads)]
    completed = run_program(PROGRAM, *arguments, **way, timeout=200).expect(0)  # type: ignore[arg-type]
    assert completed.stdout == "nothing left\n"
    # Only what was killed is told of.
    others = [line for line in completed.stderr.splitlines() if not TOLD.fullmatch(line)]
    assert not others
