"""How trainings fail: the errors that `fit` raises."""

from __future__ import annotations

from collections.abc import Mapping

from mpi_runtime.core import published
from mpi_runtime.tune import Result, TuneError


@published("mpi_runtime.train")
class TrainingFailedError(TuneError):
    """A training has failed, and `FailureConfig` allows no other attempt. Its cause is the error of the worker."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result
        """What the training has reported until then."""


@published("mpi_runtime.train")
class WorkerGroupError(TrainingFailedError):
    """A training has failed because workers have."""

    def __init__(
        self, error_message: str, worker_failures: Mapping[int, Exception], result: Result | None = None
    ) -> None:
        if not isinstance(worker_failures, Mapping):
            raise TypeError(f"worker_failures must be errors by rank, such as {{0: error}}, not {worker_failures!r}")
        super().__init__(error_message, result)
        self.error_message = error_message
        """The same text as that of this error."""
        self.worker_failures = dict(worker_failures)
        """The error of the worker with which the failure began, by its rank."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.error_message, self.worker_failures, self.result)


@published("mpi_runtime.train")
class ControllerError(TrainingFailedError):
    """A training has failed outside of its workers: a callback has raised. Its cause is that error."""

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"The training has failed outside of its workers: {controller_failure}")
        self.controller_failure = controller_failure
        """The error."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.controller_failure,)
