"""Searchers, by the names that Ray Tune gives them. Those around other libraries need these when they are made."""

from mpi_runtime.tune.bayesopt_search import BayesOptSearch
from mpi_runtime.tune.bohb import TuneBOHB
from mpi_runtime.tune.hyperopt_search import HyperOptSearch
from mpi_runtime.tune.limiters import ConcurrencyLimiter, Repeater
from mpi_runtime.tune.nevergrad_search import NevergradSearch
from mpi_runtime.tune.optuna_search import OptunaSearch
from mpi_runtime.tune.searcher import BasicVariantGenerator, Searcher

__all__ = [
    "BasicVariantGenerator",
    "BayesOptSearch",
    "ConcurrencyLimiter",
    "HyperOptSearch",
    "NevergradSearch",
    "OptunaSearch",
    "Repeater",
    "Searcher",
    "TuneBOHB",
]
