"""Optuna's samplers as a searcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.tune.search.learning import LearningSearcher
from mpi_runtime.tune.space.domains import Categorical, Float, Integer, Normal
from mpi_runtime.tune.space.flat import Known
from mpi_runtime.tune.trial import Config, Report
from mpi_runtime.tune.unsupported import advised

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler


@published("mpi_runtime.tune.search")
@advised
class OptunaSearch(LearningSearcher):
    """Asks an Optuna sampler, by default TPE, for configurations, and reports the last value of each trial to it."""

    takes_functions = True

    def __init__(
        self,
        space: Mapping[str, object] | Callable[[Trial], Mapping[str, object] | None] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        sampler: BaseSampler | None = None,
        seed: int | None = None,
    ) -> None:
        """Search a space.

        Args:
            space: domains by name; None: that of the experiment. Or a function of an Optuna trial that calls its
                `suggest_float` and so on, and may return further values.
            metric: the reported value to optimise; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            points_to_evaluate: values of the first trials.
            sampler: an Optuna sampler; None: TPE with the seed. One that has no seed cannot be resumed.
            seed: of the sampler; None: that of the experiment.

        Raises:
            ImportError: optuna is not installed.
        """
        load("OptunaSearch", "optuna")
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self.sampler = sampler

    def begin(self, seed: int) -> None:
        import optuna

        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = self.sampler or optuna.samplers.TPESampler(seed=seed)
        self._study = optuna.create_study(sampler=sampler)
        optuna.logging.set_verbosity(verbosity)
        self._distributions = {name: _distribution(domain) for name, domain in self.domains.items()}
        self._ot_trials: Config = {}  # the name that libraries read

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        if first:
            self._study.enqueue_trial({name: self._number(name, value) for name, value in first.items()})
        self._ot_trials[trial_id] = trial = self._study.ask(self._distributions)
        constants = (self._space(trial) or {}) if callable(self._space) else {}
        return {**{name: self._value(name, value) for name, value in trial.params.items()}, **constants}

    def on_trial_result(self, trial_id: str, result: Report) -> None:
        loss = self.loss_of(result)
        if loss is not None and trial_id in self._ot_trials:  # not after its end
            self._ot_trials[trial_id].report(loss, int(result["training_iteration"]))

    def tell(self, trial_id: str, loss: float | None) -> None:
        import optuna

        trial = self._ot_trials.pop(trial_id, None)
        if trial is None:
            return
        if loss is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, loss)

    def _value(self, name: str, value: Any) -> object:
        domain = self.domains.get(name)
        return domain.categories[value] if isinstance(domain, Categorical) else value

    def _number(self, name: str, value: object) -> object:
        domain = self.domains.get(name)
        return list(domain.categories).index(value) if isinstance(domain, Categorical) else value


def _distribution(domain: Known) -> BaseDistribution:
    """A domain as Optuna's distribution. Choices are by number: their values may be anything."""
    from optuna import distributions

    if isinstance(domain, Categorical):
        return distributions.CategoricalDistribution(list(range(len(domain.categories))))
    if isinstance(domain, Integer):
        if domain.log and domain.q != 1:
            raise ValueError("Optuna has no integers in steps with logarithms: use lograndint or qrandint")
        return distributions.IntDistribution(domain.first, domain.last, log=domain.log, step=domain.q)
    if isinstance(domain, Normal):
        raise ValueError("Optuna has no normal distributions: use uniform, or sample_from for values it need not know")
    assert isinstance(domain, Float)
    if domain.log and domain.q is not None:
        raise ValueError("Optuna has no numbers in steps with logarithms: use loguniform or quniform")
    return distributions.FloatDistribution(domain.lower, domain.upper, log=domain.log, step=domain.q)
