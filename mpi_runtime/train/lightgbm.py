"""Training with LightGBM: `LightGBMTrainer` gives each worker the addresses of all, so they grow the same trees."""

from __future__ import annotations

import contextlib
import socket
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from mpi_runtime.errors.optional import load
from mpi_runtime.train.backend import BackendConfig
from mpi_runtime.train.trainer import DataParallelTrainer
from mpi_runtime.train.worker import worker_run
from mpi_runtime.tune.extend import AbsentArgumentError, advised
from mpi_runtime.util import get_node_ip_address

if TYPE_CHECKING:
    import pandas

__all__ = ["LightGBMConfig", "LightGBMTrainer", "get_network_params", "normalize_pandas_for_lightgbm"]

_network: dict[str, object] = {}
"""What LightGBM needs to find the other workers; empty: this is not a worker, or the only one."""


@dataclass(frozen=True)
class LightGBMConfig(BackendConfig):
    """How the workers find each other."""

    @contextlib.contextmanager
    def joined(self, own_gpus: float) -> Iterator[None]:
        """A context in which `get_network_params` knows the addresses."""
        run = worker_run("LightGBMConfig")
        # The port is free until LightGBM listens there, unless another program is quicker.
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        addresses = run.exchange(f"{get_node_ip_address()}:{port}".encode())
        _network.update(
            num_machines=run.ranks.size, local_listen_port=port, machines=",".join(one.decode() for one in addresses)
        )
        try:
            yield
        finally:
            _network.clear()


def get_network_params() -> dict[str, object]:
    """Return the parameters by which LightGBM finds the other workers: add them to those of `lightgbm.train`.

    Outside of the function of a `LightGBMTrainer` there are none, and a warning.
    """
    if not _network:
        warnings.warn("get_network_params() has nothing outside of the workers of a LightGBMTrainer", stacklevel=2)
    return dict(_network)


def normalize_pandas_for_lightgbm(df: pandas.DataFrame) -> pandas.DataFrame:
    """Return a data frame whose numbers LightGBM can read: columns of Arrow get the nullable types of pandas.

    Args:
        df: the data frame. Its other columns stay as they are.
    """
    arrow = load("normalize_pandas_for_lightgbm", "pandas").ArrowDtype
    kinds = {}
    for name, kind in df.dtypes.items():
        if isinstance(kind, arrow):
            dtype = kind.numpy_dtype
            if dtype.kind in "iuf":
                word = {"i": "Int", "u": "UInt", "f": "Float"}[dtype.kind]
                kinds[name] = f"{word}{8 * dtype.itemsize}"
            elif dtype.kind == "b":
                kinds[name] = "boolean"
    return df.astype(kinds) if kinds else df


@advised
class LightGBMTrainer(DataParallelTrainer):
    """A trainer whose workers can find each other for `lightgbm.train`."""

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        lightgbm_config: LightGBMConfig | None = None,
        **arguments: Any,
    ) -> None:
        """Define a training.

        Args:
            train_loop_per_worker: the function that each worker runs. It calls `lightgbm.train` with its own rows, and
                with the parameters that `get_network_params` returns.
            lightgbm_config: how the workers find each other.
            arguments: the other arguments of `DataParallelTrainer`.

        Raises:
            TypeError: an argument has a wrong type.
        """
        if not isinstance(lightgbm_config, LightGBMConfig | None):
            raise TypeError(f"lightgbm_config must be a LightGBMConfig, not {lightgbm_config!r}")
        super().__init__(train_loop_per_worker, backend_config=lightgbm_config or LightGBMConfig(), **arguments)

    @classmethod
    def get_model(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raise DeprecationWarning, as in Ray: the callback that has saved a model reads it."""
        raise AbsentArgumentError("LightGBMTrainer.get_model() is not here: use get_model() of the callback")
