"""Training with torch: `TorchTrainer` joins the workers in a process group; the functions prepare what they train."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpi_runtime.errors import optional
from mpi_runtime.extend import kind_in_torch
from mpi_runtime.train.backend import BackendConfig
from mpi_runtime.train.reporting import get_context
from mpi_runtime.train.scaling import ScalingConfig
from mpi_runtime.train.shards import DataConfig
from mpi_runtime.train.trainer import DataParallelTrainer
from mpi_runtime.train.validation import ValidationConfig
from mpi_runtime.train.worker import gpus
from mpi_runtime.tune import RunConfig
from mpi_runtime.tune.extend import StopTrial, advised

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

__all__ = [
    "TorchConfig", "TorchTrainer", "enable_reproducibility", "get_device", "get_devices", "prepare_data_loader",
    "prepare_model",
]  # fmt: skip

_LOADER = (
    *("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "persistent_workers"),
)
"""The arguments of a data loader that one with another sampler has too."""
_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}
"""The collective operations of GPUs, by their name in torch."""
_load = functools.partial(optional.load, "mpi_runtime.train.torch")


@dataclass(frozen=True)
class TorchConfig(BackendConfig):
    """How the process group of the workers is made."""

    backend: str | None = None
    """"gloo", "nccl" or another one of torch; None: "nccl" if workers have GPUs ("xccl" for Intel's), else "gloo"."""
    init_method: str = "env"
    """"env" or "tcp". Both use `MASTER_ADDR` and `MASTER_PORT`, which each worker has."""
    timeout_s: float = 1800
    """Seconds after which a collective operation that does not end is an error."""

    def __post_init__(self) -> None:
        if self.init_method not in ("env", "tcp"):
            raise ValueError(f'init_method must be "env" or "tcp", not {self.init_method!r}')

    @contextlib.contextmanager
    def joined(self, own_gpus: float) -> Iterator[None]:
        """A context in which this worker is in the process group."""
        torch, distributed = _load("torch"), _load("torch.distributed", "torch")
        kind = kind_in_torch(torch) if own_gpus else None
        if kind:
            getattr(torch, kind).set_device(get_device())
        backend = self.backend or (_BACKENDS[kind or "cuda"] if own_gpus else "gloo")
        timeout = datetime.timedelta(seconds=self.timeout_s)
        distributed.init_process_group(backend, init_method="env://", timeout=timeout)
        try:
            yield
        except StopTrial:  # all workers stop here
            _leave(distributed)
            raise
        # After another error the gang is killed. To leave could wait for workers that are in a collective operation.
        _leave(distributed)


def _leave(distributed: ModuleType) -> None:
    if distributed.is_initialized():  # else the function has left the group itself
        distributed.destroy_process_group()


@advised
class TorchTrainer(DataParallelTrainer):
    """A trainer whose workers are in one process group of `torch.distributed`, from before the function to its end."""

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        train_loop_config: Mapping[str, object] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        """Define a training. The other arguments are those of `DataParallelTrainer`.

        Args:
            torch_config: how the process group is made.

        Raises:
            TypeError: an argument has a wrong type.
        """
        if not isinstance(torch_config, TorchConfig | None):
            raise TypeError(f"torch_config must be a TorchConfig, not {torch_config!r}")
        super().__init__(
            train_loop_per_worker, train_loop_config=train_loop_config, scaling_config=scaling_config,
            run_config=run_config, datasets=datasets, dataset_config=dataset_config,
            backend_config=torch_config or TorchConfig(), validation_config=validation_config,
        )  # fmt: skip


def get_devices() -> list[torch.device]:
    """Return the devices of this worker: its GPUs, or the CPU. All GPUs of its node's workers are visible to it."""
    torch, wanted = _load("torch"), gpus()
    kind = kind_in_torch(torch) if wanted else None
    count = getattr(torch, kind).device_count() if kind else 0
    if not count:
        return [torch.device("cpu")]
    first = min(int(get_context().get_local_rank() * wanted), count - 1)
    return [torch.device(f"{kind}:{number}") for number in range(first, min(first + max(1, int(wanted)), count))]


def get_device() -> torch.device:
    """Return the device of this worker: its first GPU, or the CPU."""
    return get_devices()[0]


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, object] | None = None,
) -> torch.nn.Module:
    """Return a model that trains together with those of the other workers.

    Args:
        model: the same on all workers.
        move_to_device: whether to move it to the device of this worker; or another device.
        parallel_strategy: "ddp" (each worker has the whole model), "fsdp" (each has a part) or None. A single worker
            needs neither.
        parallel_strategy_kwargs: arguments of `DistributedDataParallel` or `FullyShardedDataParallel`.

    Raises:
        ValueError: there is no such strategy.
    """
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f'parallel_strategy must be "ddp", "fsdp" or None, not {parallel_strategy!r}')
    device = get_device() if isinstance(move_to_device, bool) else move_to_device
    if move_to_device is not False:
        model = model.to(device)
    if parallel_strategy is None or get_context().get_world_size() == 1:
        return model
    given = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        made = _load("torch.distributed.fsdp", "torch").FullyShardedDataParallel(model, **given)
    else:
        if device.type in _BACKENDS and move_to_device is not False:
            given = {"device_ids": [device], "output_device": device, **given}
        made = _load("torch.nn.parallel", "torch").DistributedDataParallel(model, **given)
    prepared: torch.nn.Module = made
    return prepared


def prepare_data_loader(
    data_loader: DataLoader[Any], add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> Any:
    """Return a data loader with this worker's part of the data, and with its batches on the device of the worker.

    Args:
        data_loader: a data loader of all data. With `sampler.set_epoch` each epoch has another order, if it shuffles.
        add_dist_sampler: whether to cut the data, if there are several workers. Data that are streams, and loaders with
            a `DistributedSampler` or a sampler of batches, are left as they are.
        move_to_device: whether to move batches to the GPU of this worker.
        auto_transfer: whether to copy them from pinned memory without waiting.
    """
    data = _load("torch.utils.data", "torch")
    size, rank = get_context().get_world_size(), get_context().get_world_rank()
    is_whole = not isinstance(data_loader.sampler, data.DistributedSampler) and data_loader.batch_size is not None
    if add_dist_sampler and size > 1 and is_whole and not isinstance(data_loader.dataset, data.IterableDataset):
        shuffles = not isinstance(data_loader.sampler, data.SequentialSampler)
        sampler = data.DistributedSampler(data_loader.dataset, size, rank, shuffle=shuffles)
        given = {name: getattr(data_loader, name) for name in _LOADER}
        data_loader = data.DataLoader(data_loader.dataset, sampler=sampler, **given)
    device = get_device()
    return _Moving(data_loader, device, auto_transfer) if move_to_device and device.type != "cpu" else data_loader


class _Moving:
    """A data loader whose batches are moved to a device."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, is_async: bool) -> None:
        self._loader, self._device, self._is_async = loader, device, is_async

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield self._moved(batch)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def _moved(self, batch: Any) -> Any:
        if isinstance(batch, Mapping):
            return {name: self._moved(value) for name, value in batch.items()}
        if isinstance(batch, tuple | list):
            parts = [self._moved(value) for value in batch]
            return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
        return batch.to(self._device, non_blocking=self._is_async) if hasattr(batch, "to") else batch


def enable_reproducibility(seed: int = 0) -> None:
    """Seed the random numbers of this worker, and have torch use algorithms with the same result each time.

    Args:
        seed: of all random numbers.
    """
    torch = _load("torch")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    _load("numpy").random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
