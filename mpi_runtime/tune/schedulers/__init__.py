"""Schedulers of trials, by the names that Ray Tune gives them. Each decides which trials continue.

A new one subclasses `TrialScheduler` of `base.py`.

- `base.py`: the interface of schedulers, and first in, first out
- `controller.py`: the controller that schedulers written for Ray receive
- `controlled.py`: asks schedulers written for Ray Tune, which take a controller
- `asha.py`: asynchronous successive halving
- `hyperband.py`: HyperBand: brackets of successive halving
- `median_stopping.py`: stops trials that are worse than the median
- `pbt.py`: population based training, and the replay of a schedule that it has found
- `pb2.py`: population based bandits: new parameters come from a model
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "asha": "ASHAScheduler AsyncHyperBandScheduler _Cut _Rung",  # a scheduler on disk has its empty rungs
    "base": "FIFOScheduler TrialScheduler",
    "hyperband": "HyperBandForBOHB HyperBandScheduler",
    "median_stopping": "MedianStoppingRule",
    "pb2": "PB2",
    "pbt": "PopulationBasedTraining PopulationBasedTrainingReplay",
}

__all__ = [
    "PB2", "ASHAScheduler", "AsyncHyperBandScheduler", "FIFOScheduler", "HyperBandForBOHB", "HyperBandScheduler",
    "MedianStoppingRule", "PopulationBasedTraining", "PopulationBasedTrainingReplay", "TrialScheduler",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.tune.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler
    from mpi_runtime.tune.schedulers.base import FIFOScheduler, TrialScheduler
    from mpi_runtime.tune.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
    from mpi_runtime.tune.schedulers.median_stopping import MedianStoppingRule
    from mpi_runtime.tune.schedulers.pb2 import PB2
    from mpi_runtime.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
