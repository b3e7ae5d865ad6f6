"""What is told of an experiment as it goes on: the interface of callbacks, with the names of Ray Tune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi_runtime.tune.trial import Trial


class Callback:
    """Is told what happens. Subclass it and override what you need. It runs in the driver, between two decisions."""

    replays = False
    """Whether it is told of earlier runs again when an experiment is resumed, as if they happened now."""

    def setup(self, stop: Any = None, num_samples: int | None = None, **info: Any) -> None:
        """An experiment begins. `info` has its directory, `path`."""

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """An event is about to be decided about."""

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """An event was decided about."""

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """A trial was started."""

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has reported."""

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """A trial has ended well."""

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """A trial has failed, and runs again."""

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """A trial has failed for good."""

    def on_checkpoint(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, checkpoint: Any, **info: Any
    ) -> None:
        """A trial has made a checkpoint."""

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Nothing runs any more."""


def tell(callbacks: Sequence[Callback], what: Callable[[Callback], None]) -> None:
    """Tell all of them."""
    for callback in callbacks:
        what(callback)
