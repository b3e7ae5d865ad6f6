"""PyTorch Lightning in the function of a `TorchTrainer`: its trainer takes the workers, their devices and their group.

trainer = lightning.pytorch.Trainer(
devices="auto", accelerator="auto",
strategy=DDPStrategy(), plugins=[WorkerEnvironment()], callbacks=[ReportCallback()],
)
prepare_trainer(trainer).fit(model, loader)
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from mpi_runtime.errors.optional import load
from mpi_runtime.train.reporting import get_context, report
from mpi_runtime.train.torch import get_device
from mpi_runtime.tune import Checkpoint

__all__ = [
    "DDPStrategy", "DeepSpeedStrategy", "FSDPStrategy", "ReportCallback", "WorkerEnvironment", "prepare_trainer",
]  # fmt: skip

T = TypeVar("T")


def _library() -> Any:
    """Lightning by the name that the program uses, else an installed one: they have classes of their own."""
    names = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda one: one not in sys.modules)
    try:
        return import_module(names[0])
    except ImportError:
        return load("mpi_runtime.train.lightning", names[1], "lightning")


if TYPE_CHECKING:
    _DDP = object
    _FSDP = object
    _DeepSpeed = object
    _Environment = object
    _Callback = object
else:
    _lightning = _library()
    _strategies = import_module(f"{_lightning.__name__}.strategies")
    _DDP, _FSDP, _DeepSpeed = _strategies.DDPStrategy, _strategies.FSDPStrategy, _strategies.DeepSpeedStrategy
    _Environment = import_module(f"{_lightning.__name__}.plugins.environments").LightningEnvironment
    _Callback = _lightning.Callback


class _OfWorker:
    """What strategies take from the worker."""

    @property
    def root_device(self) -> Any:
        """The device of this worker."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        """Which part of the data this worker has."""
        here = get_context()
        return {"num_replicas": here.get_world_size(), "rank": here.get_world_rank()}


class DDPStrategy(_OfWorker, _DDP):
    """Each worker has the whole model. Arguments are those of Lightning's strategy."""


class FSDPStrategy(_OfWorker, _FSDP):
    """Each worker has a part of the model. Arguments are those of Lightning's strategy."""


class DeepSpeedStrategy(_OfWorker, _DeepSpeed):
    """DeepSpeed divides the model. Arguments are those of Lightning's strategy."""


class WorkerEnvironment(_Environment):
    """Informs Lightning about the worker: `Trainer(plugins=[WorkerEnvironment()])`."""

    @property
    def creates_processes_externally(self) -> bool:
        """True: the workers run already."""
        return True

    def world_size(self) -> int:
        """The number of workers."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """The number of this worker."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """The number of this worker among those of its node."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """The number of this node."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Do nothing: the workers stay."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: the workers stay."""

    def teardown(self) -> None:
        """Do nothing: the variables are those of the worker."""


class ReportCallback(_Callback):
    """Reports what was logged, the epoch and the step at the end of each epoch, with a checkpoint."""

    CHECKPOINT_NAME = "checkpoint.ckpt"
    """The name of the file in the checkpoint."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report on all workers."""
        values = {name: value.item() for name, value in trainer.callback_metrics.items()}
        values |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            trainer.save_checkpoint(os.path.join(folder, self.CHECKPOINT_NAME), weights_only=False)
            report(values, Checkpoint.from_directory(folder) if os.listdir(folder) else None)


def prepare_trainer(trainer: T) -> T:
    """Return a trainer of Lightning, checked.

    Raises:
        RuntimeError: its strategy or its environment is not one of this module.
    """
    strategy: Any = trainer.strategy  # type: ignore[attr-defined]
    if not isinstance(strategy, DDPStrategy | FSDPStrategy | DeepSpeedStrategy):
        raise RuntimeError(
            f"the trainer has the strategy {type(strategy).__name__}: pass strategy=DDPStrategy(), or another one of "
            "mpi_runtime.train.lightning"
        )
    found = getattr(strategy, "cluster_environment", None)
    if found is not None and not isinstance(found, WorkerEnvironment):
        raise RuntimeError(
            f"the trainer has the environment {type(found).__name__}: pass plugins=[WorkerEnvironment()] of "
            "mpi_runtime.train.lightning"
        )
    return trainer
