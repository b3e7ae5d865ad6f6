"""A backend for joblib, and so for scikit-learn, that runs batches of calls as tasks of the job.

from joblib import Parallel, delayed, parallel_config
from mpi_runtime.util.joblib import register_mpi_runtime

register_mpi_runtime()
with parallel_config(backend="mpi_runtime"):
    print(Parallel()(delayed(pow)(n, 2) for n in range(100)))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from mpi_runtime import cluster_resources
from mpi_runtime.extend import blocked
from mpi_runtime.util.background_calls import Pending
from mpi_runtime.util.futures import Executor

try:
    from joblib.parallel import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
        register_parallel_backend,
    )
except ImportError as error:
    raise ModuleNotFoundError(
        "mpi_runtime.util.joblib needs joblib, which cannot be imported here: pip install joblib"
    ) from error

__all__ = ["register_mpi_runtime"]


def register_mpi_runtime() -> None:
    """Register the backend "mpi_runtime" with joblib, for `parallel_config`, `parallel_backend` and `Parallel`.

        with parallel_config(backend="mpi_runtime", n_jobs=8, ray_remote_args={"num_cpus": 2}): ...

    `n_jobs` is the largest number of batches in the runtime: -1, the default, is the CPUs of the job, -2 is one less.
    With 1 all calls run in the calling process. `ray_remote_args` are options of the tasks, as for `remote`. A
    `Parallel` inside a call runs as tasks too if it states `n_jobs`. Errors of calls are raised unchanged, with the
    remote traceback as their `__cause__`. Without a job, one with defaults is started.
    """
    register_parallel_backend("mpi_runtime", Backend)


class Backend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """The backend. Each `parallel_config` has its own; it is sent along with batches."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self, nesting_level: int | None = None, ray_remote_args: Mapping[str, Any] | None = None, **others: object
    ) -> None:
        super().__init__(nesting_level=nesting_level, **others)
        self._options = dict(ray_remote_args or {})
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The largest number of unfinished batches."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning: give a number, or -1 for all CPUs of the job")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max(1, int(cluster_resources().get("CPU", 1)) + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: object) -> int:
        """Begin a `Parallel`. joblib's other arguments are about memory maps and threads, which are not used here."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._executor = Executor(n_jobs, **self._options)
        return n_jobs

    def submit(self, func: Callable[[], object], callback: Callable[[Pending], object] | None = None) -> Pending:
        """Compute a batch, and then call joblib back unless the `Parallel` has been aborted."""
        executor = self._executor

        def call_back(future: Pending) -> None:
            # Batches of an aborted `Parallel` end later: the same object, used again, must not count them.
            if callback is not None and executor is self._executor:
                callback(future)

        future = Pending()
        with suppress(RuntimeError):  # aborted since joblib's check: the result is not needed
            if executor is not None:
                future = executor.submit(func)
                future.add_done_callback(call_back)
        return future

    def retrieve_result_callback(self, out: Pending) -> Any:
        """The result of a batch that has ended."""
        return out.result()

    def retrieval_context(self) -> AbstractContextManager[None]:
        """A context that `Parallel` enters while it waits for results."""
        return blocked()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Start no more batches of this `Parallel`. Batches in the runtime run to their end."""
        self.terminate()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)

    def terminate(self) -> None:
        """End a `Parallel`, or its `with` block."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Backend, int]:
        """The default backend and number of jobs of a `Parallel` inside a call."""
        return Backend(nesting_level=(self.nesting_level or 0) + 1, ray_remote_args=self._options), 1
