"""Searchers, by the names that Ray Tune gives them. Each suggests configurations.

A new one subclasses `Searcher` of `base.py`. Those around other libraries import the library on creation.

- `base.py`: the interface of searchers, and the one for grids and random numbers
- `limiters.py`: searchers around another one: fewer trials at a time, or repeated ones
- `bohb.py`: BOHB's model of good configurations
- `learning.py`: the common part of searchers around other libraries
- `optuna.py`: Optuna's samplers
- `hyperopt.py`: Hyperopt's TPE
- `bayesopt.py`: the library bayesian-optimization
- `nevergrad.py`: Nevergrad's optimizers
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "base": "BasicVariantGenerator Searcher",
    "bayesopt": "BayesOptSearch",
    "bohb": "TuneBOHB",
    "hyperopt": "HyperOptSearch",
    "limiters": "ConcurrencyLimiter Repeater",
    "nevergrad": "NevergradSearch",
    "optuna": "OptunaSearch",
}

__all__ = [
    "BasicVariantGenerator", "BayesOptSearch", "ConcurrencyLimiter", "HyperOptSearch", "NevergradSearch",
    "OptunaSearch", "Repeater", "Searcher", "TuneBOHB",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.tune.search.base import BasicVariantGenerator, Searcher
    from mpi_runtime.tune.search.bayesopt import BayesOptSearch
    from mpi_runtime.tune.search.bohb import TuneBOHB
    from mpi_runtime.tune.search.hyperopt import HyperOptSearch
    from mpi_runtime.tune.search.limiters import ConcurrencyLimiter, Repeater
    from mpi_runtime.tune.search.nevergrad import NevergradSearch
    from mpi_runtime.tune.search.optuna import OptunaSearch
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
