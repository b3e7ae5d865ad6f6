"""Two programs share a session; one of them is killed and started again every few seconds.

`python -m tests.e2e.sessions.soak --seconds 1000` runs for long. It prints what it has seen, and ends with 1 if a value
was wrong, something was left of a killed program, or the memory of the session's own processes has grown.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.e2e.sessions.started import content, driver, session
from tests.helpers import Program

PROGRAM = """
import os, random, sys
import numpy as np

@ray.remote
def total(array, add):
    return int(array.sum()) + add

@ray.remote
class Counter:
    def __init__(self): self.count = 0
    def add(self):
        self.count += 1
        return self.count

mine = Counter.options(num_cpus=0).remote()
shared = Counter.options(num_cpus=0, name="shared", lifetime="detached", get_if_exists=True).remote()
seed, rounds, seen = random.Random(int(sys.argv[1])), 0, 0
while not os.path.exists(sys.argv[2]):
    array = np.full(seed.randrange(1, 200_000), seed.randrange(9))
    ref, adds = ray.put(array), [seed.randrange(1000) for _ in range(20)]
    refs = [total.remote(ref, add) for add in adds]
    count = mine.add.remote()
    wrong = [got for got, add in zip(ray.get(refs), adds) if got != int(array.sum()) + add]
    rounds += 1
    now = ray.get(shared.add.remote())
    if wrong or ray.get(count) != rounds or now <= seen:
        print("WRONG", wrong, rounds, now, seen, flush=True)
    seen = now
    print("round", rounds, flush=True)
"""
LEFT = """
import json
from mpi_runtime.extend import ask
from mpi_runtime.scheduler.protocol.questions import Drivers, Statistics

ray.kill(ray.get_actor("shared"))
import time
for _ in range(100):
    counts, found = ask(Statistics()), ask(Drivers())
    open_calls = counts.submitted - counts.finished - counts.failed
    left = [open_calls, counts.executors, counts.actors, counts.stored_extents, len(found.drivers) - 1]
    if not any(left): break
    time.sleep(0.2)
print(json.dumps(left))
"""


class Seen(NamedTuple):
    """What a soak has seen."""

    rounds: int
    kills: int
    wrong: list[str]
    left: str
    """Open calls, executors, actors, extents, drivers."""
    memory: list[int]
    """Of the session's own processes together, in kB, before each kill."""

    @property
    def growth(self) -> float:
        """The memory of the last third of the time, as a multiple of that of the middle third."""
        third = len(self.memory) // 3
        return statistics.median(self.memory[-third:]) / statistics.median(self.memory[third:-third]) if third else 1.0


def soak(state: Path, seconds: float, every_s: float) -> Seen:
    """Run the two programs for a while."""
    gate = state / "gate"
    memory: list[int] = []
    wrong: list[str] = []
    rounds = 0
    with session(state, "--num-cpus", "2", "--object-store-memory", "200e6"):
        steady = driver(state, PROGRAM, "0", str(gate))
        end_s, kills = time.monotonic() + seconds, 0
        while time.monotonic() < end_s:
            other = driver(state, PROGRAM, str(kills + 1), str(gate))
            other.wait_for_line("round 1", 120)
            time.sleep(every_s * random.Random(kills).uniform(0.7, 1.3))
            memory.append(_memory(state))
            other.signal(signal.SIGKILL)
            rounds += _take(other, wrong, -signal.SIGKILL)
            kills += 1
        gate.touch()
        rounds += _take(steady, wrong, 0)
        with driver(state, LEFT) as looks:
            left = looks.finish().expect(0).stdout.strip()
    return Seen(rounds, kills, wrong, left, memory)


def _take(program: Program, wrong: list[str], code: int) -> int:
    """Wait for the end of a program, and return the number of its rounds."""
    lines = program.finish().expect(code).stdout.splitlines()
    wrong += [line for line in lines if line.startswith("WRONG")]
    return sum(line.startswith("round") for line in lines)


def _memory(state: Path) -> int:
    """The memory of the keeper, the head and the forkserver, in kB, without what they share."""
    found = content(state)
    assert found is not None
    own = [found.pid]
    for pid in own:  # it grows
        for task in Path(f"/proc/{pid}/task").iterdir():
            own += [int(one) for one in (task / "children").read_text().split() if _is_own(int(one))]
    return sum(_private(pid) for pid in own)


def _is_own(pid: int) -> bool:
    try:
        return "mpi-rt-head" in Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))


def main() -> int:
    """Soak, and print what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        seen = soak(Path(place), options.seconds, options.every)
    print(f"{seen.rounds} rounds, {seen.kills} kills, {len(seen.wrong)} wrong, left: {seen.left}")
    print(f"memory in MB: {[round(one / 1024, 1) for one in seen.memory]}; growth {seen.growth:.3f}")
    return int(bool(seen.wrong) or seen.left != "[0, 0, 0, 0, 0]" or seen.growth > 1.1)


if __name__ == "__main__":
    os.environ.setdefault("MPI_RUNTIME_QUIET", "1")
    raise SystemExit(main())
