"""Simulate elastic batches: `python -m tests.simulation.batches.run [--seed N | --seeds A:B] [-v]`.

Each seed makes a batch, jobs that come and go, and a file system with its faults. The same seed makes the same run.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpi_runtime.batch.history.batch_history import History
from tests.simulation.batches.jobs import Batch, Job, Nodes, Task, WrongError
from tests.simulation.batches.world import Faults, FileSystem, World


def simulate(seed: int, scene: str = "") -> tuple[Counter[str], list[str]]:
    """Run one simulation; return what it has explored, and its log.

    Args:
        seed: of all choices.
        scene: STALLS: the file system stalls for long, and nothing else happens; SUCCESSIONS: coordinators are killed
            while their commands hold what all jobs share; RERUNS: the line of a killed coordinator is started again
            at once; empty: anything happens.

    Raises:
        WrongError: a rule was broken, with the log.
    """
    world = World(seed)
    rng = random.Random(-seed - 1)
    is_plain = scene in ("", STALLS) and seed % 3 > 0  # most seeds: others have more to decide, and end later
    scale = LONG if scene else rng.choice([0.2, 2.0, 8.0, LONG])
    kinds = ({},) if is_plain else KINDS[-3:] if scene == SUCCESSIONS else KINDS
    tasks = tasks_of(rng, kinds, scale)
    nodes = [LARGEST[is_plain], *(nodes_of(rng, is_plain) for _ in range(rng.randint(2 if scene else 0, 4)))]
    nodes = nodes[:1] * len(nodes) if scene == SUCCESSIONS else nodes
    lasts_s = lasts_at_least_s(tasks, nodes)
    faults = {STALLS: stalls_of, SUCCESSIONS: lambda *_: Faults()}.get(scene, faults_of)(rng, lasts_s)
    batch = Batch(world, FileSystem(world, faults), tasks)
    jobs = [Job(batch, f"job{number}", f"host{number % 3}", own, LASTS_S) for number, own in enumerate(nodes)]
    for number, job in enumerate(jobs):
        world.add(job, rng.uniform(0, lasts_s / 2) if number else 0.0)
    for _ in range({STALLS: 0, SUCCESSIONS: 4}.get(scene, rng.randint(0, 4))):
        trouble(world, jobs, rng, lasts_s, scene == SUCCESSIONS)
    for _ in range(rng.randint(1, 4) if scene == RERUNS else 0):
        rerun(world, batch, jobs, rng, lasts_s)
    try:
        world.run()
        judge_end(batch, rng)
    except BaseException as error:
        raise WrongError(f"seed {seed}: {type(error).__name__}: {error}\n" + "\n".join(world.log[-60:])) from error
    return world.counters, world.log


STALLS, SUCCESSIONS, RERUNS = "stalls", "successions", "reruns"
LASTS_S = 3000.0
"""The time of each job."""
LARGEST: tuple[Nodes, Nodes] = (({"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 0.0}), ({"CPU": 4.0},))
"""The nodes of the first job: everything fits there; the second ones if all commands are plain."""
KINDS: tuple[dict[str, Any], ...] = (
    *[{}] * 4,
    {"ranks": 2, "requests": ((("CPU", 2.0),),), "ranks_per_node": 1},
    {"ranks": 3, "requests": ((("CPU", 2.0),),)},
    {"requests": ((("GPU", 1.0),), (("CPU", 3.0),))},
    {"requests": ((("CPU", 16.0),), (("CPU", 1.0), ("GPU", 1.0)))},
    {"shares": (("licence", 1.0, 2.0),)},
    {"shares": (("licence", 2.0, 2.0),), "ranks": 2, "requests": ((("CPU", 1.0),),)},
    {"group": "few", "group_limit": 2},
)
"""Ranks, alternatives, resources that all jobs share, and limits of groups."""


LONG = 40.0
"""In some seeds most commands are longer than the file system stalls, and still run after that."""


def nodes_of(rng: random.Random, is_plain: bool) -> Nodes:
    if is_plain:
        return ({"CPU": rng.choice([1.0, 2.0, 4.0])},)
    count = rng.choice([1, 1, 2])
    return tuple({"CPU": rng.choice([1.0, 2.0, 4.0]), "GPU": rng.choice([0.0, 0.0, 1.0])} for _ in range(count))


def tasks_of(rng: random.Random, kinds: Sequence[dict[str, Any]], scale: float) -> dict[str, Task]:
    count = rng.randint(5, 60 if scale < LONG else 20)
    found: dict[str, Task] = {}
    for number in range(count):
        names = [*found]
        after = tuple(sorted(rng.sample(names, min(len(names), rng.choice([0, 0, 1, 2])))))
        cpus = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0])
        task = Task(f"c{number}", rng.uniform(0.1, 2) * scale, ((("CPU", cpus),),), after)
        found[task.name] = replace(task, **rng.choice(kinds))
    return found


def lasts_at_least_s(tasks: Mapping[str, Task], nodes: Sequence[Nodes]) -> float:
    """How long the batch takes with all jobs from the start, if nothing happens: troubles come within this time."""
    cpus = sum(node["CPU"] for job in nodes for node in job)
    needed: defaultdict[str, float] = defaultdict(float)
    for task in tasks.values():
        needed["CPU"] += task.seconds * task.ranks * dict(task.requests[0]).get("CPU", 1.0) / cpus
        needed[task.group] += task.seconds / (task.group_limit or math.inf)
        for name, amount, total in task.shares:
            needed[name] += task.seconds * amount / total
    return 5.0 + max(needed.values())


def faults_of(rng: random.Random, lasts_s: float) -> Faults:
    found = Faults()
    if rng.random() < 0.6:
        found.names_s, found.sizes_s = rng.choice([(30.0, 3.0), (2.0, 1.0)])
    found.fails = rng.choice([0.0, 0.0, 0.005, 0.03])
    for _ in range(rng.choice([0, 0, 1, 2])):
        begin = rng.uniform(0, lasts_s)
        found.stalls.append((begin, begin + rng.choice([8.0, 25.0, 60.0])))
    for _ in range(rng.choice([0, 0, 0, 1])):
        begin = rng.uniform(0, lasts_s)
        found.full.append((begin, begin + rng.uniform(5, 40)))
    return found


def stalls_of(rng: random.Random, lasts_s: float) -> Faults:
    """Stalls when all jobs have joined."""
    begin = rng.uniform(0.5, 0.6) * lasts_s
    return Faults(stalls=[(begin + 40 * number, begin + 40 * number + 30) for number in range(4)])


def trouble(world: World, jobs: list[Job], rng: random.Random, lasts_s: float, is_kill: bool) -> None:
    """Plan that a job is killed, or stopped and continued; `is_kill`: that the coordinator is killed."""
    kind = "kill" if is_kill else rng.choice(["kill", "stop driver", "stop all", "leave"])
    is_coordinator = is_kill or rng.random() < 0.5
    seconds = rng.choice([3.0, 20.0, 60.0, 150.0])

    def strike() -> None:
        alive = [job for job in jobs if not (job.is_killed or job.has_left)]
        chosen = [job for job in alive if job.role == "coordinator"] if is_coordinator else alive
        job = world.rng.choice(chosen) if chosen else None
        if job is None or (kind in ("kill", "leave") and not can_end_without(job, alive)):
            return
        if kind == "kill":
            killed(job)
        elif kind == "leave":
            world.counters[kind] += 1
            world.note(f"{kind} {job.name} ({job.role})")
            job.drain_s = min(job.drain_s, world.now + 30)
        else:
            stopped(job, seconds, kind)

    world.at(rng.uniform(1, lasts_s), strike)


def rerun(world: World, batch: Batch, jobs: list[Job], rng: random.Random, lasts_s: float) -> None:
    """Plan that the coordinator is killed, and its line started again at once on its host: once, or twice."""
    delays_s = [rng.choice([0.0, rng.uniform(0, 5), rng.uniform(0, 30)]) for _ in range(rng.choice([1, 1, 2]))]
    is_stopped = rng.random() < 0.3

    def strike() -> None:
        alive = [job for job in jobs if not (job.is_killed or job.has_left)]
        for job in alive:
            if job.role == "coordinator":
                killed(job)
                for delay_s in delays_s:
                    jobs.append(Job(batch, f"job{len(jobs)}", job.host, job.nodes, LASTS_S))
                    world.add(jobs[-1], world.now + delay_s)
            elif is_stopped:
                stopped(job, world.rng.choice([4.0, 20.0]), "stop driver")

    world.at(rng.uniform(1, lasts_s), strike)


def killed(job: Job) -> None:
    job.world.counters["kill"] += 1
    job.world.note(f"kill {job.name} ({job.role})")
    job.troubled_s = job.world.now
    job.is_killed = True
    for _, execution in job.running.values():
        execution.is_aborted = True


def stopped(job: Job, seconds: float, kind: str) -> None:
    """A driver stands still for some time; or `stop all`: its scheduler, too."""
    world = job.world
    world.counters[kind] += 1
    world.note(f"{kind} {job.name} ({job.role})")
    if job.role == "coordinator":
        job.batch.doubtful_until = world.now + seconds + 90
    job.troubled_s = job.stopped_until = max(job.stopped_until, world.now + seconds)
    job.is_tree_stopped = kind == "stop all"


def can_end_without(job: Job, alive: list[Job]) -> bool:
    """Whether another job stays that has room for each command."""
    return any(other.nodes in LARGEST for other in alive if other is not job and other.drain_s >= LASTS_S)


def judge_end(batch: Batch, rng: random.Random) -> None:
    """All is done, and the records say this in whatever order they are read."""
    records = [file.versions for path, file in batch.system.files.items() if path.startswith("segment-")]
    rng.shuffle(records)
    history = History()
    for segment in records:
        for what, content in segment:
            if what == "ended":
                history.note(content)
    for name, task in batch.tasks.items():
        ended = history.ends.get(name)
        if ended is None or not ended.result.is_success:
            raise WrongError(f"{name} is not done")
        if any(history.ends[one].number >= ended.number for one in task.after):
            raise WrongError(f"{name} does not come after {task.after}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("-v", action="store_true")
    chosen = parser.parse_args()
    begin, end = (chosen.seed, chosen.seed + 1) if chosen.seed is not None else map(int, chosen.seeds.split(":"))
    total: Counter[str] = Counter()
    failed = 0
    for seed in range(begin, end):
        try:
            counters, log = simulate(seed)
        except WrongError as error:
            failed += 1
            print(error, "\n")
            if failed >= 3:
                break
            continue
        total += counters
        if chosen.v:
            print("\n".join(log) if chosen.seed is not None else f"{seed}: {dict(counters)}")
    print(f"{end - begin} seeds, {failed} failed: {dict(total)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
