"""Schedulers and searchers by the names of Ray Tune."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.tune import schedulers, search
from mpi_runtime.tune.schedulers.base import TrialScheduler
from mpi_runtime.tune.search.base import Searcher
from mpi_runtime.tune.study.settings import TuneConfig
from mpi_runtime.tune.unsupported import ADVICE

SCHEDULERS = {
    "fifo": "FIFOScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "asynchyperband": "AsyncHyperBandScheduler",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
}
SEARCHERS = {
    "variant_generator": "BasicVariantGenerator",
    "random": "BasicVariantGenerator",
    "hyperopt": "HyperOptSearch",
    "bayesopt": "BayesOptSearch",
    "bohb": "TuneBOHB",
    "nevergrad": "NevergradSearch",
    "optuna": "OptunaSearch",
}


@published("mpi_runtime.tune")
def create_scheduler(scheduler: str, **arguments: Any) -> TrialScheduler:
    """A scheduler by name, such as "async_hyperband", with its arguments. Unknown ones have no effect, as in Ray.

    Raises:
        ValueError: there is no such scheduler.
    """
    made: TrialScheduler = _made(_found("scheduler", schedulers, SCHEDULERS, scheduler), arguments)
    return made


@published("mpi_runtime.tune")
def create_searcher(search_alg: str, **arguments: Any) -> Searcher:
    """A searcher by name, such as "optuna", with its arguments. Unknown ones have no effect, as in Ray.

    Raises:
        ImportError: its library is not installed.
        ValueError: there is no such searcher.
    """
    made: Searcher = _made(_found("search_alg", search, SEARCHERS, search_alg), arguments)
    return made


def with_objects(tune: TuneConfig) -> TuneConfig:
    """The settings, checked, with a searcher and a scheduler in the place of their names."""
    if not isinstance(tune, TuneConfig):
        raise TypeError(f"tune_config must be a TuneConfig, not {tune!r}")
    if isinstance(tune.search_alg, str):
        tune = replace(tune, search_alg=create_searcher(tune.search_alg))
    if isinstance(tune.scheduler, str):
        tune = replace(tune, scheduler=create_scheduler(tune.scheduler))
    return tune


def _made(kind: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """An object of a class, with those arguments that it or Ray's class knows."""
    known = {*inspect.signature(kind).parameters, *ADVICE}
    return kind(**{name: one for name, one in arguments.items() if name in known})


def _found(argument: str, room: ModuleType, names: dict[str, str], name: str) -> Callable[..., Any]:
    if not isinstance(name, str) or name.lower() not in names:
        raise ValueError(f"{argument} must be one of {sorted(names)}, not {name!r}")
    found: Callable[..., Any] = getattr(room, names[name.lower()])
    return found
