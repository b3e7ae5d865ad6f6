"""Population based training, and a trial that repeats the schedule of another one.

Source: Jaderberg, Dalibard, Osindero, Czarnecki, Donahue, Razavi, Vinyals, Green, Dunning, Simonyan, Fernando,
Kavukcuoglu, "Population Based Training of Neural Networks" (arXiv:1711.09846), with truncation selection. Factors and
probabilities as in Ray Tune.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mpi_runtime.core import published
from mpi_runtime.tune import state_files
from mpi_runtime.tune.schedulers.base import CONTINUE, PAUSE, YIELD, Exploit, TrialScheduler, Verdicts, either
from mpi_runtime.tune.space.domains import Domain, Function, Rng
from mpi_runtime.tune.space.variants import rng_of
from mpi_runtime.tune.trial import Config, ReportError, Trial
from mpi_runtime.tune.unsupported import advised

Mutation = list[object] | Domain
"""What a parameter may become."""
Mutations = dict[str, Any]
"""By name: a mutation, or a dictionary of them."""
INITIAL, PERTURBATION = 2, 3
"""Streams of random numbers: for first values, and for perturbations."""


class Exploited(NamedTuple):
    """One trial continues from another one. A line in the files of Ray Tune has these values."""

    trial: str
    source: str
    at: int
    """The number of its reports."""
    source_at: int
    source_config: Config
    config: Config
    """Its new configuration."""


@published("mpi_runtime.tune.schedulers")
@advised
class PopulationBasedTraining(TrialScheduler):
    """Lets the worst trials continue from checkpoints of the best, with parameters near theirs.

    Each trial is compared after every `perturbation_interval`, and must have reported a checkpoint by then.
    """

    needs_checkpoints = True
    logs_config, _is_synchronous = True, False  # of those that an earlier version has written

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, object] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: Callable[[Config], Config] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        """Compare trials by `metric` after each interval of `time_attr`.

        Args:
            time_attr: the reported value that measures the progress of a trial; it must not decrease.
            metric: the reported value to compare; None: that of `TuneConfig`.
            mode: whether it is to be "min" or "max"; None: that of `TuneConfig`.
            perturbation_interval: between two comparisons of a trial.
            burn_in_period: before it no trial is changed.
            hyperparam_mutations: for each parameter that may change a domain, a list, or a function without
                arguments; nested like the space. A parameter that the space does not have gets its first value here.
            quantile_fraction: the part of the trials that is replaced, and the part that is copied; at most 0.5.
            resample_probability: of drawing a new value. Otherwise numbers are multiplied by one of the factors, and
                of a list the value before or after is taken.
            perturbation_factors: larger, smaller.
            custom_explore_fn: takes the new configuration and returns the one to use.
            log_config: whether the experiment has the schedules in files too: `pbt_global.txt`, and for each trial a
                `pbt_policy_....txt` that `PopulationBasedTrainingReplay` reads.
            require_attrs: whether a report without `metric` or `time_attr` is an error. It is not compared otherwise.
            synch: whether trials wait for each other at the end of each interval: all are compared at once.

        Raises:
            ValueError: an argument has no meaning, or nothing can change.
        """
        super().__init__(time_attr, metric, mode)
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ValueError("Nothing can change: pass hyperparam_mutations or custom_explore_fn")
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(f"quantile_fraction={quantile_fraction} would copy trials that are replaced: 0 to 0.5")
        if not perturbation_interval > 0:
            raise ValueError(f"perturbation_interval={perturbation_interval}: it must be above 0")
        self._mutations = _as_choices(hyperparam_mutations or {})
        self._interval = perturbation_interval
        self._burn_in = burn_in_period
        self._fraction = quantile_fraction
        self._resampling = resample_probability
        self._factors = perturbation_factors
        self._explore_fn = custom_explore_fn
        self.logs_config = log_config
        self.is_strict = require_attrs
        self._is_synchronous = synch
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._trials: dict[str, Trial] = {}
        self._scores: dict[str, float] = {}
        self._compared_at: dict[str, float] = {}
        self._count: dict[str, int] = {}
        self.policies: dict[str, list[tuple[int, Config]]] = {}
        """For each trial the configurations behind its last checkpoint, each with its first report."""
        self.exploits: list[Exploited] = []
        """All of them so far."""

    @either
    def on_trial_add(self, trial: Trial) -> None:
        """Give it a first value of each parameter that the space does not have."""
        self._trials[trial.trial_id] = trial
        self._compared_at[trial.trial_id] = 0.0
        self._count.setdefault(trial.trial_id, 0)  # it may run again after a failure
        _fill(trial.config, self._mutations, rng_of(self._seed, trial.index, INITIAL))
        self.policies.setdefault(trial.trial_id, [(0, copy.deepcopy(trial.config))])

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        me = trial.trial_id
        # After a failure a trial may be before its last comparison: no second one until then.
        if time < self._burn_in or time - self._compared_at[me] < self._interval:
            return {}
        if trial.point is None:
            raise ReportError(
                f"Trial {me} has reported no checkpoint up to {self.time_attr}={time}, so no other trial can continue "
                "from it. Population based training needs report(metrics, checkpoint=...) in each interval."
            )
        self._compared_at[me] = time
        self._scores[me] = score
        if self._is_synchronous:
            return {me: PAUSE}  # until all are as far
        worst, best = self._quantiles()
        return {me: self._exploit(trial, best) if me in worst else YIELD}

    def on_idle(self) -> Verdicts:
        """With `synch` all trials wait now: compare them."""
        if not self._is_synchronous:
            return {}
        worst, best = self._quantiles()
        waiting = [one for one in self._scores if self._trials[one].status == Trial.PAUSED]
        return {one: self._exploit(self._trials[one], best) if one in worst else CONTINUE for one in waiting}

    def _exploit(self, trial: Trial, best: list[str]) -> Exploit:
        """Let a trial continue from one of the best."""
        me, time = trial.trial_id, self._compared_at[trial.trial_id]
        self._count[me] += 1
        rng = rng_of(self._seed, trial.index, PERTURBATION, self._count[me])
        source = self._trials[best[int(rng.integers(len(best)))]]
        self._scores[me] = self._scores[source.trial_id]
        # Its next interval begins at that checkpoint, but not before now, or two trials could set each other back.
        self._compared_at[me] = max(time, self._compared_at[source.trial_id])
        config = self._explored(source.config, rng)
        at = source.checkpoint_at.iteration
        past = [one for one in self.policies[source.trial_id] if one[0] < at]
        self.policies[me] = [*(past or self.policies[source.trial_id][:1]), (at, copy.deepcopy(config))]
        steps = (trial.iteration, source.iteration)
        self.exploits.append(
            Exploited(me, source.trial_id, *steps, copy.deepcopy(source.config), copy.deepcopy(config))
        )
        return Exploit(source, config)

    def on_trial_end(self, trial: Trial) -> Verdicts:
        """Remove it from the population: a copy of its end would end at once."""
        self._scores.pop(trial.trial_id, None)
        return {}

    def _quantiles(self) -> tuple[list[str], list[str]]:
        """The worst and the best of the compared trials; of equal scores the later trial is better."""
        ranking = sorted(self._scores, key=lambda trial_id: (self._scores[trial_id], trial_id))
        count = int(-(-len(ranking) * self._fraction // 1))  # rounded up
        count = min(count, len(ranking) // 2)
        return ranking[:count], ranking[len(ranking) - count :]

    def _explored(self, config: Config, rng: Rng) -> Config:
        changed: Config = copy.deepcopy(config)
        self._explore(changed, self._mutations, rng)
        return self._agreed(changed)

    def _agreed(self, changed: Config) -> Config:
        """Apply the user's function to a new configuration."""
        if self._explore_fn is None:
            return changed
        found = self._explore_fn(changed)
        if not isinstance(found, dict):
            raise TypeError(f"custom_explore_fn returned {found!r}. It must return the configuration to use.")
        return found

    def _explore(self, config: Config, mutations: Mutations, rng: Rng) -> None:
        for key, mutation in mutations.items():
            if isinstance(mutation, dict):
                self._explore(config.setdefault(key, {}), mutation, rng)
            elif rng.random() < self._resampling:
                config[key] = _sampled(mutation, rng)
            else:
                config[key] = self._neighbour(config[key], mutation, rng)

    def _neighbour(self, value: object, mutation: Mutation, rng: Rng) -> object:
        if isinstance(mutation, list):
            if value not in mutation:
                return _sampled(mutation, rng)
            place = mutation.index(value) + int(rng.choice([-1, 1]))
            return mutation[min(max(place, 0), len(mutation) - 1)]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _sampled(mutation, rng)
        changed = value * self._factors[int(rng.integers(2))]
        return round(changed) if isinstance(value, int) else type(value)(changed)


@published("mpi_runtime.tune.schedulers")
@advised
class PopulationBasedTrainingReplay(TrialScheduler):
    """Changes the parameters of a trial by a schedule, `ResultGrid.policy(trial_id)` of an earlier experiment.

    Each report at which they change needs a checkpoint.
    """

    needs_metric = False
    needs_checkpoints = True

    def __init__(
        self,
        policy: Sequence[tuple[int, Config]] | str | None = None,
        policy_file: str | None = None,
    ) -> None:
        """Follow a schedule.

        Args:
            policy: pairs of a number of reports and the configuration from then on, the first one at 0; or a file.
            policy_file: a `pbt_policy_....txt` that an experiment has written.

        Raises:
            ValueError: it is empty or does not begin at 0, or there is no such file, or it has something else.
        """
        super().__init__("training_iteration", None, None)
        file = policy_file if policy is None else policy
        if state_files.is_path(file):
            policy = _schedule_in(str(file))
        if not isinstance(policy, list | tuple) or not all(
            isinstance(one, list | tuple) and len(one) == 2 for one in policy
        ):
            raise TypeError(f"the policy must be a list of pairs, as from ResultGrid.policy(...), not {policy!r}")
        if not policy or policy[0][0] != 0:
            raise ValueError("the policy must begin with the configuration at 0 reports: take ResultGrid.policy(...)")
        self._policy = [(int(at), dict(config)) for at, config in policy]
        self.config = self._policy[0][1]
        """The first configuration."""
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._next: dict[str, int] = {}

    @either
    def on_trial_add(self, trial: Trial) -> None:
        trial.config = copy.deepcopy(self._policy[0][1])
        self._next[trial.trial_id] = 1

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """Change its parameters at the reports of the schedule."""
        place = self._next[trial.trial_id]
        if place == len(self._policy) or time < self._policy[place][0]:
            return {}
        if trial.point is None or trial.checkpoint_at.iteration != trial.iteration:
            raise ReportError(
                f"The parameters of trial {trial.trial_id} change at report {time:g}, but that has no checkpoint to "
                "continue from. Use report(metrics, checkpoint=...) as in the experiment that is replayed."
            )
        self._next[trial.trial_id] = place + 1
        return {trial.trial_id: Exploit(trial, copy.deepcopy(self._policy[place][1]))}


def _schedule_in(file: str) -> list[tuple[int, Config]]:
    """The schedule in a file. It has each change of the trials from which this one comes, the last one last."""
    found: list[tuple[int, Config]] = []
    first: Config = {}
    earlier = None
    for line in reversed(state_files.lines_of(file)):
        if not isinstance(line, list) or len(line) != 6:
            raise ValueError(f"{file} does not have the schedule of a trial: it has the line {line!r:.100}")
        trial, source, _, source_at, source_config, config = line
        if earlier is not None and trial != earlier:
            break  # of another trial, whose changes were overwritten
        earlier, first = source, source_config
        found.append((int(source_at), config))
    return [(0, first), *reversed(found)]


def _as_choices(mutations: Mapping[str, object]) -> Mutations:
    """The mutations, with a domain or a list for each parameter."""
    if not isinstance(mutations, Mapping):
        raise TypeError(f"hyperparam_mutations must be a dictionary by name, not {mutations!r}")
    found: Mutations = {}
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping):
            found[key] = _as_choices(mutation)
        elif isinstance(mutation, Domain) or (isinstance(mutation, list | tuple) and mutation):
            found[key] = list(mutation) if isinstance(mutation, tuple) else mutation
        elif callable(mutation):
            found[key] = Function(mutation)
        else:
            raise ValueError(f"hyperparam_mutations[{key!r}] is {mutation!r}: pass a domain, a list or a function")
        if hasattr(mutation, "categories"):
            found[key] = list(mutation.categories)
    return found


def _sampled(mutation: Mutation, rng: Rng) -> object:
    if isinstance(mutation, list):
        return mutation[int(rng.integers(len(mutation)))]
    return mutation.draw(rng, {})


def _fill(config: Config, mutations: Mutations, rng: Rng) -> None:
    for key, mutation in mutations.items():
        if isinstance(mutation, dict):
            _fill(config.setdefault(key, {}), mutation, rng)
        elif key not in config:
            config[key] = _sampled(mutation, rng)
