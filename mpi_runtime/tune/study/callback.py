"""The callback interface, with the names of Ray Tune."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.tune.study.events import Crashed, Event, Failed, Reported
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Report, Trial


@published("mpi_runtime.tune")
class Callback:
    """Base class of callbacks. Override what you need. It runs in the driver, between two decisions."""

    replays = False
    """Whether it receives the events of earlier runs again when an experiment is resumed."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        *,
        path: str = "",
        **info: object,
    ) -> None:
        """An experiment begins, in the directory `path`. `total_num_samples` counts all its trials."""

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        """The driver waits for events, again and again. `iteration` counts this from 1."""

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        """The driver has handled all events that have arrived."""

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A trial was started."""

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        """A trial has reported."""

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A trial has ended without an error."""

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A trial has failed, and runs again."""

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A trial has failed for good."""

    def on_checkpoint(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, checkpoint: Any, **info: object
    ) -> None:
        """A trial has reported a checkpoint."""

    def on_trial_save(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A trial has a new checkpoint."""

    def on_trial_restore(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """Never called: in Ray a trial that runs already goes back to a checkpoint. Here `on_trial_start` follows."""

    def get_state(self) -> dict[str, Any] | None:
        """What a later run of this experiment has to know, by name; None: nothing."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """An experiment continues, and an earlier run of it had this state."""

    def on_experiment_end(self, trials: Sequence[Trial], **info: object) -> None:
        """The experiment has ended."""


def checked(callback: object) -> Callback:
    """Raise TypeError unless it is a callback."""
    if not isinstance(callback, Callback):
        raise TypeError(f"callbacks must be instances of Callback, not {callback!r}")
    return callback


def notify(callbacks: Iterable[Callback], count: int, study: Study, event: Event, changed: Iterable[Trial]) -> None:
    """Call the callbacks for an event and the trials that it has changed."""
    trials = study.created
    changed = list(changed)
    failed = study.trials[event.trial_id] if isinstance(event, Failed | Crashed) else None
    for callback in callbacks:  # arguments by name: a method may take some of them and `**info`
        if failed is not None and failed.status != Trial.ERROR:
            callback.on_trial_recover(iteration=count, trials=trials, trial=failed)
        if isinstance(event, Reported):
            trial = study.trials[event.trial_id]
            callback.on_trial_result(iteration=count, trials=trials, trial=trial, result=trial.last_result)
            if event.checkpoint is not None:
                if type(callback).on_checkpoint is not Callback.on_checkpoint:  # reading one in memory takes time
                    found = _opened(event.checkpoint, trial)
                    if found is not None:
                        callback.on_checkpoint(iteration=count, trials=trials, trial=trial, checkpoint=found)
                callback.on_trial_save(iteration=count, trials=trials, trial=trial)
        for trial in changed:
            if trial.status == Trial.RUNNING:
                callback.on_trial_start(iteration=count, trials=trials, trial=trial)
            elif trial.status == Trial.TERMINATED:
                callback.on_trial_complete(iteration=count, trials=trials, trial=trial)
            elif trial.status == Trial.ERROR:
                callback.on_trial_error(iteration=count, trials=trials, trial=trial)


def _opened(reported: Any, trial: Trial) -> Any:
    """A checkpoint as users know it; None: it is lost. In virtual time it is whatever the steps have yielded."""
    opened = getattr(reported, "opened", None)
    try:
        return reported if opened is None else opened(trial.local_experiment_path)
    except Exception:  # it was in memory alone, and died with the process of its trial, which runs again
        return None
