"""Writes `ray.json`: what the schedulers of Ray Tune decide about reports that are made up here.

    python -m tests.tune.record_ray     # in an environment with ray[tune], from the root of the checkout

No cluster is started: a scheduler receives trials and reports as from Ray's controller, which is imitated as far
as schedulers look at it. `test_tune_peers.py` gives the same reports to ours.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("ray.json")
CURVES = Path(__file__).with_name("curves.json")
SEEDS, TRIALS, SLOTS = 30, 143, 8
"""Of searches in the table of learning curves. 143 trials fill the brackets of HyperBand with 81 epochs once."""

ASHA: dict[str, dict[str, Any]] = {
    "plain": {},
    "the least, with other rungs": {
        "falls": True,
        "mode": "min",
        "grace_period": 2,
        "max_t": 54,
        "reduction_factor": 3,
    },
    "a factor that is no integer": {"max_t": 40, "reduction_factor": 2.5},
    "ties": {"max_t": 27, "reduction_factor": 3, "values": 3},
    "brackets": {"max_t": 81, "reduction_factor": 3, "brackets": 3},
    "no end": {"max_t": 16, "reduction_factor": 2, "stop_last_trials": False},
    "no end, and jumps": {"max_t": 64, "reduction_factor": 2, "stop_last_trials": False, "jumps": True},
    "jumps": {"max_t": 64, "reduction_factor": 2, "jumps": True},
    "not a number": {"max_t": 27, "reduction_factor": 3, "nan": 0.2},
    "powers of ten": {"max_t": 1000, "reduction_factor": 10, "stop_last_trials": False, "jumps": True},
}
"""Arguments of the scheduler, and of the reports: how many values there are, whether times are left out, how often
there is no number."""
MEDIAN: dict[str, dict[str, Any]] = {
    "plain": {},
    "the least": {"mode": "min", "min_samples_required": 5, "falls": True},
    "ties": {"values": 4},
    "jumps": {"jumps": True},
    "not a number": {"nan": 0.05},
    "told of ends": {"ends": True},
}
FED = ("values", "jumps", "nan", "ends", "falls")


class Trial:
    """What schedulers look at."""

    is_saving = False

    def __init__(self, number: int) -> None:
        self.trial_id = f"{number:05d}"
        self.number = number
        self.status = "PENDING"
        self.config: dict[str, Any] = {}
        self.last_result: dict[str, Any] = {}

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def is_finished(self) -> bool:
        return self.status in ("TERMINATED", "ERROR")


class Controller:
    """What schedulers ask of their controller."""

    def __init__(self, scheduler: Any, trials: list[Trial]) -> None:
        self.scheduler, self.trials = scheduler, trials
        self.search_alg = None

    def get_trials(self) -> list[Trial]:
        return self.trials

    def get_live_trials(self) -> list[Trial]:
        return []  # the trials that wait before this one: none, so the median rule pauses nothing for others

    def stop_trial(self, trial: Trial) -> None:
        if trial.is_finished():
            return
        if trial.status == "RUNNING":
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(self, trial)
        trial.status = "TERMINATED"


def made_up(count: int, rng: random.Random, fed: dict[str, Any]) -> Generator[tuple[int, int, float], bool, None]:
    """Reports of trials that run side by side: number, time, value. The answer is whether the trial continues."""
    quality = [rng.random() for _ in range(count)]
    times = [0] * count
    running = list(range(count))
    while running:
        number = running[int(rng.random() * min(len(running), 12))]
        times[number] += 1 + (int(rng.random() * 9) if fed.get("jumps") else 0)
        value = quality[number] + 0.5 * (rng.random() - 0.5) - 1 / times[number]
        if fed.get("falls"):
            value = -value  # what is learned makes it less
        if fed.get("values"):
            value = float(math.floor(value * fed["values"]))
        if rng.random() < fed.get("nan", 0.0):
            value = math.nan
        goes_on = yield number, times[number], round(value, 6)
        if not goes_on:
            running.remove(number)


def decided(make: Callable[..., Any], cases: dict[str, dict[str, Any]], count: int) -> dict[str, Any]:
    """For each case its arguments and every report with what was decided about it: S stops, C continues."""
    found = {}
    for place, (name, arguments) in enumerate(cases.items()):
        own = {key: value for key, value in arguments.items() if key not in FED}
        fed = {key: value for key, value in arguments.items() if key in FED}
        scheduler = make(time_attr="t", metric="v", **{"mode": "max", **own})
        scheduler.set_search_properties(None, None)
        trials = [Trial(number) for number in range(count)]
        controller = Controller(scheduler, trials)
        import numpy

        numpy.random.seed(place)
        for trial in trials:
            scheduler.on_trial_add(controller, trial)
            trial.status = "RUNNING"
        groups = getattr(scheduler, "_brackets", [])
        most = own.get("max_t", 30 if not groups else 100) * 1.2
        in_bracket = [groups.index(scheduler._trial_info[one.trial_id]) for one in trials] if groups else []
        events = []
        reports = made_up(count, random.Random(place), fed)
        number, time, value = next(reports)
        while True:
            result = trials[number].last_result = {"t": time, "v": value}
            verdict = scheduler.on_trial_result(controller, trials[number], result)
            if verdict == "STOP" and (fed.get("ends") or groups):
                controller.stop_trial(trials[number])
            events.append([number, time, None if math.isnan(value) else value, verdict[0]])
            try:
                number, time, value = reports.send(verdict == "CONTINUE" and time < most)
            except StopIteration:
                break
        rungs = [sorted(at for at, _ in group._rungs) for group in groups]
        found[name] = {"arguments": own, "brackets": in_bracket, "rungs": rungs, "reports": events}
    return found


def halvings(bracket: Any) -> list[list[int]]:
    """How many trials a bracket of HyperBand begins with, and keeps, and up to which time each of them goes."""
    for number in range(bracket._n):
        bracket.add_trial(Trial(number))
    steps = [[bracket._n, bracket._cumul_r]]
    while bracket._halves:
        for trial in bracket._live_trials:
            bracket._live_trials[trial] = {"t": bracket._cumul_r, "v": trial.number}
        good, bad = bracket.successive_halving("v", 1.0)
        for trial in bad:
            bracket.cleanup_trial(trial)
        steps.append([len(good), bracket._cumul_r])
    return steps


def tables() -> dict[str, Any]:
    from ray.tune.schedulers import HyperBandScheduler

    found = {}
    for most in (81, 27, 100, 50):
        scheduler = HyperBandScheduler(time_attr="t", metric="v", mode="max", max_t=most, reduction_factor=3)
        sizes = [s for s in range(scheduler._s_max_1) if scheduler._get_r0(s)]
        found[str(most)] = [halvings(scheduler._create_bracket(s)) for s in sizes]
    return found


def quantiles() -> list[Any]:
    """Of populations: scores, the fraction, who has ended, and the worst and the best."""
    from ray.tune.schedulers import PopulationBasedTraining

    rng = random.Random(7)
    found = []
    for count in range(1, 13):
        for fraction in (0.1, 0.25, 0.5):
            scheduler = PopulationBasedTraining(quantile_fraction=fraction, hyperparam_mutations={"x": [1]})
            scores = [round(rng.random(), 2) for _ in range(count)]
            ended = [number for number in range(count) if rng.random() < 0.2]
            for number, score in enumerate(scores):
                trial = Trial(number)
                trial.status = "TERMINATED" if number in ended else "RUNNING"
                scheduler._trial_state[trial] = type("State", (), {"last_score": score})()
            worst, best = scheduler._quantiles()
            found.append([scores, fraction, ended, [one.number for one in worst], [one.number for one in best]])
    return found


def neighbours() -> list[Any]:
    """For a value and what it may become: every value that it becomes without a new draw."""
    from ray import tune
    from ray.tune.schedulers.pbt import _explore

    found = []
    for value, listed in [
        (2, None),
        (1, None),
        (16, None),
        (0.5, None),
        (3, [1, 2, 3, 4]),
        (1, [1, 2]),
        ("b", list("abc")),
    ]:
        mutation = listed or tune.uniform(0, 100)
        seen = {json.dumps(_explore({"x": value}, {"x": mutation}, 0.0, (1.2, 0.8), None)[0]["x"]) for _ in range(200)}
        found.append([value, listed, sorted(map(json.loads, seen))])
    return found


def searched(scheduler: Any, networks: list[dict[str, Any]], rows: list[int]) -> list[tuple[int, int, float]]:
    """Run a search in the table in virtual time. Each report: which row, which epoch, which loss."""
    trials = [Trial(number) for number in range(len(rows))]
    controller = Controller(scheduler, trials)
    for trial in trials:
        # All at once: Ray tells its schedulers of some at a time, and may halve brackets that are not full yet.
        scheduler.on_trial_add(controller, trial)
    queue: list[tuple[float, int]] = []
    reports = []

    def fill(now: float) -> None:
        while len(queue) < SLOTS:
            trial = scheduler.choose_trial_to_run(controller)
            if trial is None:
                return
            trial.status = "RUNNING"
            heapq.heappush(queue, (now + networks[rows[trial.number]]["seconds"], trial.number))

    fill(0.0)
    while queue:
        now, number = heapq.heappop(queue)
        trial, network = trials[number], networks[rows[number]]
        epoch = trial.last_result.get("t", 0) + 1
        loss = network["losses"][epoch - 1]
        trial.last_result = {"t": epoch, "v": math.nan if loss is None else loss / 1e4}
        reports.append((rows[number], epoch, trial.last_result["v"]))
        verdict = scheduler.on_trial_result(controller, trial, trial.last_result)
        if verdict == "STOP" or epoch == len(network["losses"]):
            controller.stop_trial(trial)
        elif verdict == "PAUSE":
            trial.status = "PAUSED"
        else:
            heapq.heappush(queue, (now + network["seconds"], number))
            continue
        fill(now)
    assert all(trial.is_finished() for trial in trials)
    return reports


def figures(reports: list[tuple[int, int, float]], goal: float) -> list[float | int | None]:
    """How many epochs were spent, after how many a loss was within 1 % of the goal, and the best loss."""
    near = next((count for count, (_, _, loss) in enumerate(reports, 1) if loss <= goal * 1.01), None)
    return [len(reports), near, min(loss for _, _, loss in reports if not math.isnan(loss))]


def rows_of(seed: int, count: int) -> list[int]:
    """The networks that a search with this seed tries, in this order."""
    rows = list(range(count))
    random.Random(seed).shuffle(rows)
    return rows[:TRIALS]


def searches() -> dict[str, Any]:
    from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler, MedianStoppingRule

    networks = json.loads(CURVES.read_text())
    named = {"time_attr": "t", "metric": "v", "mode": "min"}
    made: dict[str, Callable[[], Any]] = {
        "asha": lambda: AsyncHyperBandScheduler(**named, max_t=81, reduction_factor=3),
        "hyperband": lambda: HyperBandScheduler(**named, max_t=81, reduction_factor=3),
        "median": lambda: MedianStoppingRule(**named, grace_period=3),
    }
    found: dict[str, Any] = {name: [] for name in made}
    for seed in range(SEEDS):
        rows = rows_of(seed, len(networks))
        goal = min(loss for row in rows for loss in networks[row]["losses"] if loss is not None) / 1e4
        for name, make in made.items():
            found[name].append(figures(searched(make(), networks, rows), goal))
    return found


def main() -> None:
    import ray
    from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule

    warnings.simplefilter("ignore")  # of numpy, about quantiles of nothing but NaN
    recorded = {
        "version": ray.__version__,
        "asha": decided(AsyncHyperBandScheduler, ASHA, 80),
        "median": decided(lambda **more: MedianStoppingRule(**{"grace_period": 2, **more}), MEDIAN, 30),
        "hyperband": tables(),
        "quantiles": quantiles(),
        "neighbours": neighbours(),
        "searches": searches(),
    }
    FILE.write_text(
        json.dumps(recorded, separators=(",", ":")).replace('},"', '},\n"').replace('}},"', '}},\n"') + "\n"
    )


if __name__ == "__main__":
    main()
