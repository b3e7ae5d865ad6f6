"""Wrong arguments are refused where they are given, in words for users. `tests.fuzz_api` found them."""

from threading import Lock
from typing import Any

import numpy as np
import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import (
    PB2,
    ASHAScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from mpi_runtime.tune.search import BasicVariantGenerator, TuneBOHB


class Asking(tune.Trainable):
    """Says what its trials need."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Ask for two CPUs."""
        return tune.PlacementGroupFactory([{"CPU": 2}])


AT_END = tune.CheckpointConfig(checkpoint_at_end=True)
WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (tune.uniform(0, 1).sample, (), {"random_state": -1}, ValueError, "random_state must be a seed"),
    (tune.quniform, (-float("inf"), 9, 2), {}, ValueError, "both bounds must be finite"),
    (tune.randint, (1, float("inf")), {}, ValueError, "both bounds must be finite"),
    (tune.quniform, (1, 9, float("inf")), {}, ValueError, "above 0, and finite"),
    (tune.qrandn, (0, float("inf"), 1), {}, ValueError, "0 or more, and finite"),
    (tune.uniform, ([1], [2]), {}, TypeError, r"uniform needs numbers, not \[1\]"),
    (tune.uniform, ("a", "b"), {}, TypeError, "needs numbers, not 'a'"),
    (tune.uniform, ((1, "a"), np.zeros(3)), {}, TypeError, r"numbers, not \(1, 'a'\)"),
    (tune.loguniform, (1, None), {}, TypeError, "loguniform needs numbers, not None"),
    (tune.loguniform, (1, 2), {"base": "e"}, TypeError, "needs numbers, not 'e'"),
    (tune.randn, (np.zeros(3),), {}, TypeError, "needs numbers, not"),
    (tune.qrandn, (0, [1], 1), {}, TypeError, "needs numbers, not"),
    (tune.quniform, (1.0, 9.0, 10**400), {}, ValueError, "each must fit into a float"),
    (tune.uniform(0, 4).quantized, ("2",), {}, TypeError, "needs numbers, not '2'"),
    (tune.Checkpoint.from_directory, (2,), {}, TypeError, "not int"),
    (tune.TimeoutStopper, ("a",), {}, ValueError, "timeout must be a number of seconds"),
    (tune.TimeoutStopper, (float("nan"),), {}, ValueError, "timeout must be a number of seconds"),
    (tune.Tuner, (min,), {"tune_config": 1}, TypeError, "tune_config must be a TuneConfig, not 1"),
    (tune.Tuner, (min,), {"run_config": 1}, TypeError, "run_config must be a RunConfig, not 1"),
    (tune.Tuner, (min,), {"param_space": "x"}, ValueError, "param_space must be a dictionary of values"),
    (tune.Tuner, (Lock().acquire,), {}, TypeError, "The trainable cannot be serialised, so no trial can have it"),
    (tune.Experiment, ("a", min), {"config": [1]}, ValueError, "config must be a dictionary of values"),
    (tune.Experiment, ("a", min), {"stop": 3}, ValueError, "stop must be a dictionary, a function"),
    (tune.Experiment, ("a", min), {"checkpoint_config": AT_END}, ValueError, "checkpoint_at_end"),
    (tune.run, ([],), {}, ValueError, "has no experiment to run"),
    (tune.run, (Asking,), {"resources_per_trial": {"cpu": 1}}, tune.TuneError, "leave out resources_per_trial"),
    (ASHAScheduler, (), {"max_t": 0}, AssertionError, "0 < grace_period <= max_t"),
    (ASHAScheduler, (), {"metric": "x", "mode": "best"}, AssertionError, 'mode must be "min" or "max"'),
    (HyperBandScheduler, (), {"max_t": 0}, AssertionError, "at least 1, and finite"),
    (tune.Tuner, (min,), {"tune_config": tune.TuneConfig(seed=-1)}, TypeError, "seed must be a whole number"),
    (tune.Tuner, (min,), {"tune_config": tune.TuneConfig("\udc80", "min")}, ValueError, "metric must be text that"),
    (tune.RunConfig, (), {"failure_config": 1}, TypeError, "failure_config must be a FailureConfig, not 1"),
    (tune.RunConfig, (), {"storage_path": "s3://bucket/results"}, ValueError, "'s3://bucket/results' is an address"),
    (tune.create_scheduler, (1,), {}, ValueError, "scheduler must be one of"),
    (tune.create_searcher, ([],), {}, ValueError, "search_alg must be one of"),
    (tune.register_trainable, (1, min), {}, TypeError, "the name of a trainable must be a string, not 1"),
    (tune.with_resources, (min, {1: 1}), {}, TypeError, "names of resources are strings"),
    (ASHAScheduler, (), {"max_t": float("inf")}, ValueError, "grace_period <= max_t < infinity"),
    (HyperBandScheduler, (), {"max_t": float("inf")}, ValueError, "at least 1, and finite"),
    (ASHAScheduler, (), {"max_t": 10**400}, ValueError, "grace_period <= max_t < infinity"),
    (HyperBandScheduler, (), {"max_t": 10**400}, ValueError, "at least 1, and finite"),
    (tune.TrialPlateauStopper, ("x",), {"num_results": [4]}, ValueError, "num_results must be a whole number"),
    (tune.TrialPlateauStopper, ("x",), {"grace_period": ()}, ValueError, "grace_period must be a whole number"),
    (tune.TrialPlateauStopper, ("x",), {"std": "a"}, ValueError, "std must be a number"),
    (tune.ExperimentPlateauStopper, ("x",), {"top": [10]}, ValueError, "top must be a whole number"),
    (PB2, (), {"hyperparam_bounds": {"x": [1]}}, TypeError, "must be a dictionary of pairs by name"),
    (PopulationBasedTraining, (), {"hyperparam_mutations": 1}, TypeError, "must be a dictionary by name"),
    (PopulationBasedTrainingReplay, ([()],), {}, TypeError, "the policy must be a list of pairs"),
    (BasicVariantGenerator, ("ab",), {}, TypeError, "points_to_evaluate must be a list of dictionaries"),
    (TuneBOHB, (), {"points_to_evaluate": {"x": 1}}, TypeError, "points_to_evaluate must be a list of dictionaries"),
    (TuneBOHB, (), {"bohb_config": "a"}, TypeError, "bohb_config must be a dictionary"),
]


def test_wrong_arguments_are_refused_in_words() -> None:
    for target, args, named, kind, words in WRONG:
        with pytest.raises(kind, match=words):
            target(*args, **named)


def test_settings_that_are_none_are_the_defaults_as_in_ray() -> None:
    found = tune.RunConfig(failure_config=None, checkpoint_config=None, callbacks=None)  # type: ignore[arg-type]
    assert found == tune.RunConfig()
