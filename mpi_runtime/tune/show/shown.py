"""An experiment as pages and plots see it: `ResultGrid`, or what an experiment has written so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from mpi_runtime.tune.show.remaining import Remaining
from mpi_runtime.tune.trial import Config, Report


class HasPath(Protocol):
    """A checkpoint."""

    path: str


class ShownTrial(Protocol):
    """A trial."""

    trial_id: str
    config: Config
    status: str
    path: str
    error: Exception | None

    @property
    def metrics(self) -> Report:
        """Its last report."""

    @property
    def history(self) -> list[Report]:
        """Its reports, in order."""

    @property
    def checkpoint(self) -> HasPath | None:
        """Its last checkpoint."""


class Experiment(Protocol):
    """Trials in the order of their creation."""

    @property
    def metric(self) -> str | None:
        """The reported value by which trials are compared."""

    @property
    def mode(self) -> str | None:
        """Whether "min" or "max" of it is best."""

    @property
    def experiment_path(self) -> str:
        """The directory of the experiment."""

    def __len__(self) -> int:
        """The number of trials."""

    def __iter__(self) -> Iterator[ShownTrial]:
        """The trials."""

    def __getitem__(self, index: int, /) -> ShownTrial:
        """A trial."""


class Finished(Experiment, Protocol):
    """An experiment with results."""

    def get_best_result(self, metric: str, mode: str) -> ShownTrial:
        """The best trial."""


@runtime_checkable
class Running(Experiment, Protocol):
    """An experiment that may continue."""

    most: int | None
    """The number of trials; None: unlimited, or not known."""

    def remaining(self) -> Remaining | None:
        """How long it still takes; None: not known."""


def first_line(error: object) -> str:
    """Class and text of an error. What was read from files is its traceback."""
    cause = getattr(error, "cause", error)
    if cause is None:
        return ""
    _, begin, trace = str(cause).rpartition("Traceback (most recent call last):\n")
    ends = [line for line in trace.split("\n") if line and not line.startswith(" ")] if begin else []
    text = ends[0] if ends else cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
    return text.strip().partition("\n")[0][:300]
