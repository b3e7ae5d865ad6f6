"""Hyperopt's TPE as a searcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.tune.search.learning import LearningSearcher
from mpi_runtime.tune.space.unit_cube import UnitCube
from mpi_runtime.tune.trial import Config


@published("mpi_runtime.tune.search")
class HyperOptSearch(LearningSearcher):
    """Asks hyperopt's TPE for configurations. The model sees the space as the unit cube, and choices by number."""

    def __init__(
        self,
        space: Mapping[str, object] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
        seed: int | None = None,
    ) -> None:
        """Search a space.

        Args:
            space: domains by name; None: that of the experiment.
            metric: the reported value to optimise; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            points_to_evaluate: values of the first trials.
            n_initial_points: the number of random trials before the model is asked.
            random_state_seed: another name of `seed`.
            gamma: the share of results that count as good.
            seed: of random numbers; None: that of the experiment.

        Raises:
            ImportError: hyperopt is not installed.
        """
        load("HyperOptSearch", "hyperopt")
        super().__init__(space, metric, mode, points_to_evaluate, random_state_seed if seed is None else seed)
        self._initial, self._gamma = n_initial_points, gamma

    def begin(self, seed: int) -> None:
        from hyperopt import Domain, Trials, hp

        self._cube = UnitCube(self.domains)
        space = {}
        for name, count in zip(self.domains, self._cube.counts, strict=True):
            space[name] = hp.choice(name, list(range(count))) if count else hp.uniform(name, 0.0, 1.0)
        self._domain = Domain(lambda _: 0.0, space)
        self._known = Trials()
        self._numbers: dict[str, int] = {}
        self._random = np.random.default_rng(seed)

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        from hyperopt import JOB_STATE_RUNNING, tpe

        number = self._known.new_trial_ids(1)[0]
        self._known.refresh()
        draw = int(self._random.integers(2**31 - 1))
        options = {"n_startup_jobs": self._initial, "gamma": self._gamma, "verbose": False}
        document = tpe.suggest([number], self._domain, self._known, draw, **options)[0]
        found = document["misc"]["vals"]
        if first:
            given = self._cube.point({**self._cube.values(self._point(found)), **first})
            found.update({name: [number] for name, number in self._cube.numbers(given).items()})
        document["state"] = JOB_STATE_RUNNING
        self._known.insert_trial_docs([document])
        self._known.refresh()
        self._numbers[trial_id] = number
        return {**self._cube.values(self._point(found)), **(first or {})}

    def _point(self, found: Mapping[str, list[float]]) -> np.ndarray:
        return self._cube.from_numbers({name: one[0] for name, one in found.items()})

    def tell(self, trial_id: str, loss: float | None) -> None:
        from hyperopt import JOB_STATE_DONE, JOB_STATE_ERROR, STATUS_FAIL, STATUS_OK

        number = self._numbers.pop(trial_id)
        document = next(one for one in self._known._dynamic_trials if one["tid"] == number)
        document["state"] = JOB_STATE_ERROR if loss is None else JOB_STATE_DONE
        document["result"] = {"status": STATUS_FAIL} if loss is None else {"loss": loss, "status": STATUS_OK}
        self._known.refresh()
