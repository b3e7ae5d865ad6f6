"""An experiment as pages and plots see it: `ResultGrid`, or what an experiment has written so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from mpi_runtime.tune.show.remaining import Remaining
from mpi_runtime.tune.trial import Config, Report, Trial


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
    is_halted: bool
    """See `Trial`."""

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


EARLY = "STOPPED EARLY"
"""The state of such a trial, where people read it; its `status` is TERMINATED, as in Ray."""
_WORDS = {Trial.TERMINATED: "done", Trial.ERROR: "failed", Trial.PENDING: "waiting"}


def state_word(state: str) -> str:
    """The word for a state on all pages, lines and tables; Ray's constants are for programs."""
    return _WORDS.get(state, state.lower())


def stopped_early(trials: Iterable[tuple[str, str, bool, int]]) -> set[str]:
    """Return the ids of trials that the experiment has ended after fewer reports than the longest trial has made.

    Those that it ends at the end, such as `max_t` of a scheduler, are done like those that have ended by themselves.

    Args:
        trials: id, status, `is_halted` of `Trial`, and the number of reports of each.
    """
    known = list(trials)
    most = max((reports for *_, reports in known), default=0)
    return {
        id for id, status, is_halted, reports in known if status == Trial.TERMINATED and is_halted and reports < most
    }


def first_line(error: object) -> str:
    """Class and text of an error. What was read from files is its traceback."""
    cause = getattr(error, "cause", error)
    if cause is None:
        return ""
    _, begin, trace = str(cause).rpartition("Traceback (most recent call last):\n")
    ends = [line for line in trace.split("\n") if line and not line.startswith(" ")] if begin else []
    text = ends[0] if ends else cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
    return text.strip().partition("\n")[0][:300]
