"""Ray's controller, as far as schedulers use it."""

from __future__ import annotations

from typing import Any

from mpi_runtime.tune.trial import Trial


class Controller:
    """Passed to schedulers written for Ray. It keeps what they ask for, and what an algorithm below them decides."""

    def __init__(self) -> None:
        self._trials: list[Trial] = []
        self._stopped: set[str] = set()
        self._decided: dict[str, Any] = {}
        self.measured: tuple[float, float] = 0.0, 0.0
        """The time and the score of the report that is judged."""

    def get_trials(self) -> list[Trial]:
        """All trials so far, in the order of their creation."""
        return self._trials

    def get_live_trials(self) -> list[Trial]:
        """Those that have not ended."""
        return [trial for trial in self._trials if not trial.is_finished()]

    def stop_trial(self, trial: Trial) -> None:
        """End a trial: at once if it is paused, else at its next report."""
        self._stopped.add(trial.trial_id)

    def keep(self, verdicts: dict[str, Any]) -> None:
        """Note what an algorithm has decided about each trial."""
        self._decided.update(verdicts)

    def taken(self) -> dict[str, Any]:
        """What was noted since the last time."""
        found, self._decided = self._decided, {}
        return found

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the controller has no {name!r} here: a scheduler may call get_trials(), get_live_trials() and "
            "stop_trial(trial), and returns its decision about the trial that has reported"
        )
