"""Training with XGBoost: `XGBoostTrainer` joins the workers in one group, so they grow the same trees together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from mpi_runtime.errors import optional
from mpi_runtime.train.backend import BackendConfig
from mpi_runtime.train.trainer import DataParallelTrainer
from mpi_runtime.train.worker import WorkerRun, worker_run
from mpi_runtime.tune.extend import AbsentArgumentError, StopTrial, advised
from mpi_runtime.util import get_node_ip_address

__all__ = ["XGBoostConfig", "XGBoostTrainer"]

_load = partial(optional.load, "mpi_runtime.train.xgboost")


@dataclass(frozen=True)
class XGBoostConfig(BackendConfig):
    """How the group of the workers is made."""

    xgboost_communicator: str = "rabit"
    """The only kind that XGBoost has."""

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise NotImplementedError(f'xgboost_communicator must be "rabit", not {self.xgboost_communicator!r}')

    @contextlib.contextmanager
    def joined(self, own_gpus: float) -> Iterator[None]:
        """A context in which this worker is in the group."""
        run = worker_run("XGBoostConfig")
        if run.ranks.size == 1:
            yield
            return
        collective = _load("xgboost.collective", "xgboost")
        tracker = _tracker(run) if run.ranks.rank == 0 else None
        address = run.share(tracker.worker_args() if tracker is not None else {})
        # XGBoost sorts the workers by these names, so they have the same ranks in its group.
        collective.init(**address, dmlc_task_id=f"rank-{run.ranks.rank:08}")
        try:
            yield
        except StopTrial:  # all workers stop here
            _leave(collective, tracker)
            raise
        # After another error the gang is killed. To leave could wait for workers that are in a collective operation.
        _leave(collective, tracker)


def _tracker(run: WorkerRun) -> Any:
    """The place where the workers find each other: a thread of rank 0."""
    made = _load("xgboost.tracker", "xgboost").RabitTracker(
        n_workers=run.ranks.size, host_ip=get_node_ip_address(), sortby="task"
    )
    made.start()
    return made


def _leave(collective: Any, tracker: Any) -> None:
    """Leave the group. Workers do that at the tracker, which lives until the last has: they may have more to do."""
    collective.finalize()
    if tracker is not None:
        tracker.wait_for()


@advised
class XGBoostTrainer(DataParallelTrainer):
    """A trainer whose workers are in one group of XGBoost, from before the function to its end."""

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        xgboost_config: XGBoostConfig | None = None,
        **arguments: Any,
    ) -> None:
        """Define a training.

        Args:
            train_loop_per_worker: the function that each worker runs. It calls `xgboost.train` with its own rows.
            xgboost_config: how the group is made.
            arguments: the other arguments of `DataParallelTrainer`.

        Raises:
            TypeError: an argument has a wrong type.
        """
        if not isinstance(xgboost_config, XGBoostConfig | None):
            raise TypeError(f"xgboost_config must be an XGBoostConfig, not {xgboost_config!r}")
        super().__init__(train_loop_per_worker, backend_config=xgboost_config or XGBoostConfig(), **arguments)

    @classmethod
    def get_model(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raise DeprecationWarning, as in Ray: the callback that has saved a model reads it."""
        raise AbsentArgumentError("XGBoostTrainer.get_model() is not here: use get_model() of the callback")
