"""Schedulers of trials, by the names that Ray Tune gives them."""

from mpi_runtime.tune.asha import ASHAScheduler, AsyncHyperBandScheduler
from mpi_runtime.tune.bohb import HyperBandForBOHB
from mpi_runtime.tune.hyperband import HyperBandScheduler
from mpi_runtime.tune.median_stopping import MedianStoppingRule
from mpi_runtime.tune.pb2 import PB2
from mpi_runtime.tune.pbt import PopulationBasedTraining
from mpi_runtime.tune.pbt_replay import PopulationBasedTrainingReplay
from mpi_runtime.tune.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "PB2",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "TrialScheduler",
]
