"""What makes a library's group of the workers: a class of the program with methods that run functions on all of them.

Methods of a `Backend` run on rank 0. While they do, the other workers wait for functions to run.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import cloudpickle

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.train.worker import WorkerRun, worker_run

T = TypeVar("T")


@published("mpi_runtime.train")
class BackendConfig:
    """The settings of a `Backend`: derive from it, and pass an instance as `backend_config`."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class with the methods."""
        return Backend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[object]]:
        """Makes a context in which each worker runs the function of the trainer."""
        return contextlib.nullcontext

    @contextlib.contextmanager
    def joined(self, own_gpus: float) -> Iterator[None]:
        """A context in which the group exists. `own_gpus`: the number of GPUs of this worker."""
        run = worker_run("a backend")
        backend = self.backend_cls()
        with _served(run) as group:
            if group is not None:
                backend.on_start(group, self)
                backend.on_training_start(group, self)
        with self.train_func_context():
            yield
        with _served(run) as group:
            if group is not None:
                backend.on_shutdown(group, self)


@published("mpi_runtime.train")
class Backend:
    """Base class: override what you need. The methods run on rank 0."""

    def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The workers have started."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The function begins next."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The function has ended on all workers without an error."""


class WorkerGroup:
    """The workers, for the methods of a `Backend`. An error of a function ends the training."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run

    def __len__(self) -> int:
        """The number of workers."""
        return self._run.ranks.size

    def execute(self, func: Callable[..., T], *args: object, **kwargs: object) -> list[T]:
        """Run a function on all workers at the same time, and return what it returns, by rank."""
        order = cloudpickle.dumps((func, args, kwargs), 5)
        return [pickle.loads(one) for one in _performed(self._run, order)]

    def execute_async(self, func: Callable[..., T], *args: object, **kwargs: object) -> list[object]:
        """The same, as references. They are ready when this returns."""
        return [mpi_runtime.put(one) for one in self.execute(func, *args, **kwargs)]

    def execute_single(self, worker_index: int, func: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Run a function on the worker of this rank, and return what it returns."""

        def on_one() -> T | None:
            return func(*args, **kwargs) if mpi_runtime.train.get_context().get_world_rank() == worker_index else None

        found: Any = self.execute(on_one)[range(len(self))[worker_index]]
        return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def _served(run: WorkerRun) -> Iterator[WorkerGroup | None]:
    """On rank 0 the workers, of which the others perform the orders meanwhile; None: this is another rank."""
    if run.ranks.rank:
        while order := run.exchange(b"")[0]:
            _answered(run, order)
        yield None
        return
    yield WorkerGroup(run)
    run.exchange(b"")


def _performed(run: WorkerRun, order: bytes) -> list[bytes]:
    """On rank 0: have all workers perform an order, and return their pickled values."""
    run.exchange(order)
    return _answered(run, order)


def _answered(run: WorkerRun, order: bytes) -> list[bytes]:
    func, args, kwargs = pickle.loads(order)
    return run.exchange(cloudpickle.dumps(func(*args, **kwargs), 5))
