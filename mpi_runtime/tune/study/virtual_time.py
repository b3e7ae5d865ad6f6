"""An experiment in virtual time: the decisions of a real one, without the training."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mpi_runtime.core import published
from mpi_runtime.tune.study.events import Continue, Ended, Event, Fail, Failed, Order, Reported, Start, Woken
from mpi_runtime.tune.study.settings import RunConfig, TuneConfig
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Config, Point, Trial, TuneError

Steps = Iterator[tuple[float, Mapping[str, object], Point]]
"""A simulated trial: for each report seconds of work, metrics and a checkpoint."""


@published("mpi_runtime.tune")
@dataclass(frozen=True)
class Simulated:
    """The course of an experiment in virtual time."""

    trials: list[Trial]
    """The trials at their ends, in the order of their starts."""
    seconds: float
    """The duration of the experiment."""
    busy_seconds: float
    """The work of all trials, each up to its last report."""
    reports: int
    """The number of reports."""


@published("mpi_runtime.tune")
def simulate(
    steps: Callable[[Config, Point], Steps],
    *,
    param_space: Mapping[str, object] | None = None,
    tune_config: TuneConfig | None = None,
    run_config: RunConfig | None = None,
    slots: int = 1,
) -> Simulated:
    """Run an experiment in virtual seconds, with a table or a cost function instead of training.

        def steps(config, checkpoint):  # checkpoint: None, or what was yielded last before the trial paused
            for epoch in range(checkpoint or 0, 81):
                yield 30.0, {"loss": table[config["lr"]][epoch]}, epoch + 1

        tune.simulate(steps, param_space={"lr": tune.choice(list(table))}, tune_config=config, slots=1000)

    Args:
        steps: takes a configuration and a checkpoint, and yields seconds, metrics and a checkpoint for each report.
            An error that it raises is an error of the trial, as is a report without the metric.
        param_space: values and domains by name; nested dictionaries and lists may have domains too.
        tune_config: metric, searcher and scheduler.
        run_config: what ends trials, and what happens to those that fail.
        slots: the number of trials that run at a time.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is invalid.
    """
    study = Study(param_space or {}, tune_config or TuneConfig(), run_config or RunConfig(), slots)
    return _Simulation(study, steps).run()


class _Simulation:
    """The next event of each working trial, and its time."""

    def __init__(self, study: Study, steps: Callable[[Config, Point], Steps]) -> None:
        self._study = study
        self._steps = steps
        self._working: dict[str, tuple[int, float, Steps]] = {}
        """By trial: the number of its next event, the work until then, and its further steps."""
        self._queue: list[tuple[float, int, str, Event]] = []
        self._count = 0
        self._busy = 0.0
        self._reports = 0

    def run(self) -> Simulated:
        return self.to_the_end(self._study.begin(0.0), 0.0)

    def to_the_end(self, orders: list[Order], now: float) -> Simulated:
        """Perform these orders, and all that follow from them."""
        self._obey(orders, now)
        while not self._study.is_done:
            at, number, trial_id, event = heapq.heappop(self._queue)
            awaited, seconds, _ = self._working.get(trial_id, (0, 0.0, None))
            if awaited != number:
                continue  # it was halted
            now = min(at, self._study.deadline)
            if at > now:
                event = Woken()
            elif isinstance(event, Reported):
                self._reports += 1
                self._busy += seconds
            self._obey(self._study.handle(event, now), now)
        return Simulated(list(self._study.trials.values()), now, self._busy, self._reports)

    def _obey(self, orders: list[Order], now: float) -> None:
        for order in orders:
            if isinstance(order, Start):
                self._step(order.trial_id, self._steps(order.config, order.checkpoint), now)
            elif isinstance(order, Continue):
                self._step(order.trial_id, self._working[order.trial_id][2], now)
            elif isinstance(order, Fail):
                self._obey(self._study.handle(Failed(order.trial_id, TuneError(order.why)), now), now)
            else:
                self._working.pop(order.trial_id, None)

    def _step(self, trial_id: str, steps: Steps, now: float) -> None:
        event: Event
        seconds = 0.0
        try:
            seconds, metrics, checkpoint = next(steps)
            event = Reported(trial_id, metrics, checkpoint)
        except StopIteration:
            event = Ended(trial_id)
        except Exception as error:
            event = Failed(trial_id, error)
        self._count += 1
        self._working[trial_id] = self._count, seconds, steps
        heapq.heappush(self._queue, (now + seconds, self._count, trial_id, event))
