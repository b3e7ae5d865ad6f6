"""Searchers around another searcher: fewer trials at a time, or repeated configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mpi_runtime.core import published
from mpi_runtime.tune.search.base import BasicVariantGenerator, Searcher
from mpi_runtime.tune.trial import Config, Report, number_in
from mpi_runtime.tune.unsupported import BadSettingError

TRIAL_INDEX = "__trial_index__"
"""The key for the number of a repetition in the configuration."""


class _Around(Searcher):
    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"{type(self).__name__} takes a Searcher, not {searcher!r}")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher
        self.takes_grids = searcher.takes_grids

    def set_search_properties(self, metric: str | None, mode: str | None, config: Config, **spec: int) -> bool:
        super().set_search_properties(metric, mode, config, **spec)
        self.forget()
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def forget(self) -> None:
        """Reset for a new experiment."""

    def trials(self, num_samples: int) -> int | None:
        return self.searcher.trials(num_samples)

    def save(self, checkpoint_path: str) -> None:
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)

    def get_state(self) -> Config:
        """Its own state, without that of the searcher."""
        return {name: value for name, value in vars(self).items() if name != "searcher"}

    def set_state(self, state: Config) -> None:
        vars(self).update(state)


@published("mpi_runtime.tune.search")
class ConcurrencyLimiter(_Around):
    """Limits how many suggestions of a searcher are unfinished, so that it learns from earlier ones."""

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        """Limit a searcher.

        Args:
            searcher: the searcher to ask.
            max_concurrent: the most trials that have a configuration and have not ended.
            batch: whether the searcher receives results, and is asked again, only when all of them have ended.

        Raises:
            ValueError: `max_concurrent` is below 1.
        """
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise BadSettingError(
                f"max_concurrent={max_concurrent} would never start a trial: it must be a whole number, at least 1"
            )
        super().__init__(searcher)
        self.max_concurrent = max_concurrent
        self.batch = batch
        self._limits = not searcher.set_max_concurrency(max_concurrent)
        self.forget()

    _limits: bool = True
    """Whether the searcher does not see to the limit itself."""

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Those of an earlier version have `batch` under another name."""
        super().__setstate__({"batch" if name == "_is_batch" else name: value for name, value in state.items()})

    def forget(self) -> None:
        self.live_trials: set[str] = set()
        """The trials that have a configuration; with `batch` until all of them have ended."""
        self.cached_results: dict[str, tuple[Config | None, bool]] = {}
        """With `batch`: the last reports of those that have ended, and whether they failed."""

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Change the limit."""
        self.max_concurrent = max_concurrent
        self._limits = not self.searcher.set_max_concurrency(max_concurrent)
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        """A configuration, or None at the limit."""
        if not self._limits:
            return self.searcher.suggest(trial_id)
        if len(self.live_trials) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if isinstance(config, dict):
            self.live_trials.add(trial_id)
        return config

    def on_trial_result(self, trial_id: str, result: Report) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Report | None = None, error: bool = False) -> None:
        """Pass it on; with `batch` when all have ended. Nothing happens for a trial that it does not know."""
        if not self._limits:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
        if trial_id not in self.live_trials:
            return
        self.cached_results[trial_id] = result, error
        if self.batch and len(self.cached_results) < len(self.live_trials):
            return
        ended, self.cached_results = self.cached_results, {}
        self.live_trials -= ended.keys()
        for trial, (last, failed) in ended.items():
            self.searcher.on_trial_complete(trial, result=last, error=failed)


@published("mpi_runtime.tune.search")
class Repeater(_Around):
    """Runs each configuration several times, and reports the mean of the last values to the searcher.

    `num_samples` counts repetitions too, as in Ray Tune.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        """Repeat what a searcher suggests.

        Args:
            searcher: the searcher to ask.
            repeat: how many trials have the same configuration.
            set_index: whether the configuration has the number of the repetition as `"__trial_index__"`.

        Raises:
            ValueError: `repeat` is below 1, or the searcher makes grids, where `num_samples` repeats.
        """
        if repeat < 1:
            raise ValueError(f"repeat={repeat} would start no trial: it must be at least 1")
        if isinstance(searcher, BasicVariantGenerator):
            raise ValueError("Repeater is for searchers that learn. For grids and random search set num_samples.")
        super().__init__(searcher)
        self.repeat = repeat
        self._sets_index = set_index
        self.forget()

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Those of an earlier version have `repeat` under another name."""
        super().__setstate__({"repeat" if name == "_repeat" else name: value for name, value in state.items()})

    def forget(self) -> None:
        self._leader: dict[str, str] = {}
        """For each trial the first trial of its configuration."""
        self._groups: dict[str, tuple[Config, list[str], list[Config | None]]] = {}
        self._open: str | None = None

    def suggest(self, trial_id: str) -> Config | str | None:
        """The same configuration `repeat` times, then another."""
        if self._open is None:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            self._groups[trial_id] = config, [], []
            self._open = trial_id
        leader = self._open
        config, members, _ = self._groups[leader]
        number = len(members)
        members.append(trial_id)
        self._leader[trial_id] = leader
        if len(members) == self.repeat:
            self._open = None
        return {**config, TRIAL_INDEX: number} if self._sets_index else dict(config)

    def on_trial_complete(self, trial_id: str, result: Report | None = None, error: bool = False) -> None:
        """Report to the searcher when the last repetition has ended. The mean leaves out failures and NaN."""
        leader = self._leader.pop(trial_id)
        _, _, results = self._groups[leader]
        results.append(None if error else result)
        if len(results) < self.repeat:
            return
        del self._groups[leader]
        good = [one for one in results if one is not None]
        if not good or self.metric is None:
            self.searcher.on_trial_complete(leader, result=good[-1] if good else None, error=not good)
            return
        values = [value for one in good if (value := number_in(one, self.metric)) is not None]
        mean = math.fsum(values) / len(values) if values else math.nan
        self.searcher.on_trial_complete(leader, result={**good[-1], self.metric: mean}, error=False)
