"""What the user sets: the arguments of an experiment."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mpi_runtime.tune.searcher import BasicVariantGenerator, Searcher
from mpi_runtime.tune.stoppers import Stopper, as_stopper
from mpi_runtime.tune.study import Limits, Study
from mpi_runtime.tune.trial_scheduler import FIFOScheduler, TrialScheduler


@dataclass(frozen=True)
class TuneConfig:
    """What is searched for, and how.

    Attributes:
        metric: the reported value to be best; None if trials are not compared.
        mode: whether "min" or "max" is best.
        search_alg: suggests configurations; None: grids and random values.
        scheduler: decides which trials go on; None: all of them.
        num_samples: how many trials, or how many for each combination of the grids; -1: until a limit of time.
        max_concurrent_trials: the most that run at a time; None: as many as have room.
        time_budget_s: seconds after which the experiment ends.
        seed: of everything that is drawn. What is drawn for a trial depends on the seed and its number alone.
    """

    metric: str | None = None
    mode: str | None = None
    search_alg: Searcher | None = None
    scheduler: TrialScheduler | None = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | datetime.timedelta | None = None
    seed: int = 0


@dataclass(frozen=True)
class FailureConfig:
    """What becomes of trials that fail.

    Attributes:
        max_failures: how often a trial that raised an error runs again, from its last checkpoint; -1: always.
        fail_fast: whether the first trial that fails for good ends the experiment.
    """

    max_failures: int = 0
    fail_fast: bool = False


@dataclass(frozen=True)
class RunConfig:
    """How an experiment runs, whatever is searched for.

    Attributes:
        stop: ends trials: a dictionary of reported values (one that is reached suffices), a function of trial id and
            report, or a `Stopper`.
        failure_config: what becomes of trials that fail.
    """

    stop: Stopper | Mapping[str, float] | Callable[[str, dict[str, Any]], bool] | None = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)


def study_of(space: Mapping[str, Any], tune: TuneConfig, run: RunConfig, slots: int) -> Study:
    """The state machine of an experiment with room for so many trials.

    Raises:
        TypeError: a setting has a wrong type.
        ValueError: a setting has no meaning, or settings contradict each other.
    """
    if tune.scheduler is not None and not isinstance(tune.scheduler, TrialScheduler):
        raise TypeError(f"scheduler={tune.scheduler!r} is none: pass for example ASHAScheduler()")
    if tune.search_alg is not None and not isinstance(tune.search_alg, Searcher):
        raise TypeError(f"search_alg={tune.search_alg!r} is none: pass a Searcher, or None for grids and random values")
    budget = tune.time_budget_s
    if isinstance(budget, datetime.timedelta):
        budget = budget.total_seconds()
    limits = Limits(
        num_samples=tune.num_samples,
        max_concurrent=slots if tune.max_concurrent_trials is None else min(slots, tune.max_concurrent_trials),
        max_failures=run.failure_config.max_failures,
        fail_fast=run.failure_config.fail_fast,
        time_budget_s=math.inf if budget is None else budget,
    )
    return Study(
        space=dict(space),
        searcher=tune.search_alg or BasicVariantGenerator(),
        scheduler=tune.scheduler or FIFOScheduler(),
        stopper=as_stopper(run.stop),
        metric=tune.metric,
        mode=tune.mode,
        seed=tune.seed,
        limits=limits,
    )
