"""Hyper-parameter search: spaces, searchers, schedulers and stoppers with the names of Ray Tune.

    from mpi_runtime import tune

`tune.simulate` runs an experiment in virtual time.
"""

from mpi_runtime.tune import schedulers, search
from mpi_runtime.tune.settings import FailureConfig, RunConfig, TuneConfig
from mpi_runtime.tune.simulate import Simulated, simulate
from mpi_runtime.tune.space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from mpi_runtime.tune.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FailureConfig",
    "FunctionStopper",
    "MaximumIterationStopper",
    "RunConfig",
    "Simulated",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
    "TuneConfig",
    "choice",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "schedulers",
    "search",
    "simulate",
    "uniform",
]
