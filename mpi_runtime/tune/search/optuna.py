"""Optuna's samplers as a searcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.tune.search.learning import LearningSearcher, loss_in
from mpi_runtime.tune.space.domains import Categorical, Float, Integer, Normal
from mpi_runtime.tune.space.flat import Known, named
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

    takes_functions = takes_several = True
    _known: Sequence[tuple[Config, float]] = ()

    def __init__(
        self,
        space: Mapping[str, object] | Callable[[Trial], Mapping[str, object] | None] | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        sampler: BaseSampler | None = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        """Search a space.

        Args:
            space: domains by name; None: that of the experiment. Or a function of an Optuna trial that calls its
                `suggest_float` and so on, and may return further values.
            metric: the reported value to optimise; None: that of `TuneConfig`. A list: several at a time.
            mode: "min" or "max", or a list of them; None: that of `TuneConfig`.
            points_to_evaluate: values of the first trials.
            sampler: an Optuna sampler; None: TPE with the seed. One that has no seed cannot be resumed.
            seed: of the sampler; None: that of the experiment.
            evaluated_rewards: the metric at each of `points_to_evaluate`, which are known then, and not tried.

        Raises:
            ImportError: optuna is not installed.
            ValueError: there are not as many rewards as points.
        """
        load("OptunaSearch", "optuna")
        super().__init__(space, metric, mode, points_to_evaluate, seed)  # type: ignore[arg-type]
        if evaluated_rewards is not None and len(evaluated_rewards) != len(self.points):
            raise ValueError(f"{len(evaluated_rewards)} evaluated_rewards for {len(self.points)} points_to_evaluate")
        self.sampler = sampler
        self._known = list(zip(self.points, evaluated_rewards, strict=True)) if evaluated_rewards else []
        self.points = [] if self._known else self.points

    def begin(self, seed: int) -> None:
        import optuna

        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = self.sampler or optuna.samplers.TPESampler(seed=seed)
        self._ot_study = optuna.create_study(sampler=sampler, directions=["minimize"] * len(self._goals()))
        self._ot_trials: Config = {}  # the names that libraries read
        optuna.logging.set_verbosity(verbosity)
        self._distributions = {name: _distribution(domain) for name, domain in self.domains.items()}
        for point, value in self._known:
            self._learn(point, value)

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        if first:
            self._ot_study.enqueue_trial({name: self._number(name, value) for name, value in first.items()})
        self._ot_trials[trial_id] = trial = self._ot_study.ask(self._distributions)
        constants = (self._space(trial) or {}) if callable(self._space) else {}
        return {**{name: self._value(name, value) for name, value in trial.params.items()}, **constants}

    def on_trial_result(self, trial_id: str, result: Report) -> None:
        loss = self.loss_of(result) if isinstance(self.metric, str) else None  # Optuna compares one only
        if loss is not None and trial_id in self._ot_trials:  # not after its end
            self._ot_trials[trial_id].report(loss, int(result["training_iteration"]))

    def on_trial_complete(self, trial_id: str, result: Report | None = None, error: bool = False) -> None:
        """Report the losses of a trial to the sampler."""
        import optuna

        trial = self._ot_trials.pop(trial_id, None)
        if trial is None:
            return
        losses = [loss_in(result, *goal) for goal in self._goals()]
        if None in losses:
            self._ot_study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._ot_study.tell(trial, losses)

    def _goals(self) -> list[tuple[str, str | None]]:
        """Each metric with its mode."""
        if isinstance(self.metric, str):
            return [(self.metric, self.mode)]
        return list(zip(self.metric or (), self.mode or (), strict=True))

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn the value of a configuration that was tried elsewhere.

        Raises:
            TypeError: the space is a function, so nothing is known about its parameters.
        """
        if callable(self._space):
            raise TypeError("OptunaSearch cannot know values of a space that is a function: pass domains by name")
        if not self._has_begun and self._space is None:
            self._known = [*self._known, (parameters, value)]  # until the experiment has a space
            return
        if not self._has_begun:
            self.set_search_properties(None, None, {})
        self._learn(parameters, value, error, pruned, intermediate_values)
        self._is_restored = True  # an experiment continues with it

    def _learn(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        steps: Sequence[float] | None = None,
    ) -> None:
        import optuna

        states, sign = optuna.trial.TrialState, 1.0 if self.mode == "min" else -1.0
        known = {name: one for name, one in named(parameters, self.domains).items() if name in self._distributions}
        self._ot_study.add_trial(
            optuna.trial.create_trial(
                state=states.FAIL if error else states.PRUNED if pruned else states.COMPLETE,
                value=None if error else sign * value,
                params={name: self._number(name, one) for name, one in known.items()},
                distributions={name: self._distributions[name] for name in known},
                intermediate_values={number: sign * step for number, step in enumerate(steps or ())},
            )
        )

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
