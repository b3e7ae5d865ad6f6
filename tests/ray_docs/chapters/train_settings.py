"""Training: the settings of a trainer, their defaults and their limits, and small objects that programs make by hand."""

import os
import pickle
import tempfile
from pathlib import Path

import ray
import ray.train
import ray.train.constants
import ray.tune
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.ray_docs.helpers import raised

KINDS = ("ValueError", "TypeError", "RuntimeError")


def settings_have_defaults():
    """Those of a run are objects, and not None."""
    run = RunConfig()
    print(run.failure_config == FailureConfig(), run.checkpoint_config == CheckpointConfig())
    print(list(run.callbacks), FailureConfig().max_failures, run.failure_config.max_failures)
    checkpoints = run.checkpoint_config
    print(checkpoints.num_to_keep, checkpoints.checkpoint_score_attribute, checkpoints.checkpoint_score_order)
    workers = ScalingConfig()
    print(workers.num_workers, workers.use_gpu, workers.resources_per_worker, workers.placement_strategy)
    print(workers.accelerator_type, workers.label_selector, workers.trainer_resources)


def runs_have_names():
    """A run without a name has one as soon as it is made, and another is another."""
    print(isinstance(RunConfig().name, str), RunConfig(name="mine").name)


def paths_become_text():
    """The storage path may be a `Path`."""
    with tempfile.TemporaryDirectory() as folder:
        print(RunConfig(storage_path=Path(folder)).storage_path == folder)


def settings_are_compared_by_their_values():
    """And can be copied, and made again with other values."""
    import copy
    import dataclasses

    one = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2})
    print(one == ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}), one == ScalingConfig(num_workers=2))
    print(copy.deepcopy(one) == one, pickle.loads(pickle.dumps(one)) == one)
    print(dataclasses.replace(one, num_workers=3).num_workers, CheckpointConfig(2) == CheckpointConfig(num_to_keep=2))


def checkpoints_that_cannot_be_kept():
    """At least one checkpoint is kept, and the order is one of two."""
    for given in (
        {"num_to_keep": 0},
        {"num_to_keep": -1},
        {"num_to_keep": None},
        {"num_to_keep": 1},
        {"checkpoint_score_order": "most"},
        {"checkpoint_score_attribute": "a", "checkpoint_score_order": "min"},
    ):
        print(raised(lambda given=given: CheckpointConfig(**given), *KINDS))


def amounts_that_contradict():
    """`use_gpu` and the amounts of each worker agree."""
    for given in (
        {"use_gpu": False, "resources_per_worker": {"GPU": 1}},
        {"use_gpu": False, "resources_per_worker": {"GPU": 0}},
        {"use_gpu": True, "resources_per_worker": {"GPU": 2}},
        {"use_gpu": True, "resources_per_worker": {"GPU": 0.5}},
        {"num_workers": (2, 4), "label_selector": [{"zone": "a"}] * 4},
        {"num_workers": (2, 4), "label_selector": [{"zone": "a"}] * 2},
        {"elastic_resize_monitor_interval_s": -1},
    ):
        print(raised(lambda given=given: ScalingConfig(**given), *KINDS))


def workers_with_gpus_and_none():
    """`use_gpu` with an amount of zero.

    Differs: here it is refused.
    """
    print(raised(lambda: ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0}), *KINDS))


def amounts_of_many_workers():
    """All together, without what is zero."""
    for given in (
        {"num_workers": 3, "resources_per_worker": {"CPU": 0, "special": 2}},
        {"num_workers": (1, 4), "resources_per_worker": {"CPU": 0.5}},
        {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 2, "GPU": 0.5, "memory": 100}},
    ):
        workers = ScalingConfig(**given)
        print({name: amount for name, amount in sorted(workers.total_resources.items()) if amount})
        print(workers.num_cpus_per_worker, workers.num_gpus_per_worker, workers.additional_resources_per_worker)


def trainers_check_their_settings():
    """Settings of another kind are refused when the trainer is made."""
    print(raised(lambda: DataParallelTrainer(lambda: None, run_config={"name": "x"}), "ValueError"))
    for given in ({"checkpoint_config": {"num_to_keep": 1}}, {"failure_config": {"max_failures": 1}}):
        print(raised(lambda given=given: RunConfig(**given), "ValueError"))


def settings_of_tune_are_refused():
    """Those that only experiments with several trials have, and what an earlier version of Ray Train had."""
    train = ray.train
    for kind, given in (
        (train.FailureConfig, {"fail_fast": True}),
        (train.FailureConfig, {"fail_fast": "raise"}),
        (train.RunConfig, {"verbose": 0}),
        (train.RunConfig, {"stop": {"loss": 1}}),
        (train.RunConfig, {"progress_reporter": ray.tune.CLIReporter()}),
        (train.RunConfig, {"log_to_file": True}),
        (train.RunConfig, {"sync_config": 1}),
        (train.CheckpointConfig, {"checkpoint_frequency": 1}),
        (train.CheckpointConfig, {"checkpoint_at_end": True}),
        (train.ScalingConfig, {"trainer_resources": {"CPU": 1}}),
        (train.ScalingConfig, {"trainer_resources": {}}),
        (train.ScalingConfig, {"trainer_resources": None}),
    ):
        print(kind.__name__, *given, raised(lambda kind=kind, given=given: kind(**given), "DeprecationWarning"))
    for given in ([ray.tune.Callback()], [1], [ray.train.UserCallback()]):
        print(raised(lambda given=given: train.RunConfig(callbacks=given), "ValueError"))


def settings_of_tune_are_those_of_tune():
    """There they are accepted."""
    print(ray.tune.FailureConfig(fail_fast=True).fail_fast, ray.tune.RunConfig(verbose=0).verbose)
    print(ray.tune.CheckpointConfig(checkpoint_frequency=3).checkpoint_frequency)
    print(ray.tune.RunConfig is RunConfig, ray.tune.FailureConfig is FailureConfig)


def trainers_are_not_restored():
    """The name of a run is enough."""
    for call in (DataParallelTrainer.restore, DataParallelTrainer.can_restore):
        print(raised(lambda call=call: call("/there"), "DeprecationWarning"))


def texts_of_contradictions():
    """What errors of settings say."""
    for part, given in (
        ("`use_gpu` is False but `GPU` was found in", {"resources_per_worker": {"GPU": 1}}),
        ("`use_tpu` is False but `TPU` was found in", {"resources_per_worker": {"TPU": 1}}),
        ("`use_tpu` is True but `TPU` is set to 0", {"use_tpu": True, "resources_per_worker": {"TPU": 0}}),
        ("Cannot specify both", {"use_gpu": True, "use_tpu": True}),
        ("If `label_selector` is a list, it must be", {"num_workers": 2, "label_selector": [{"zone": "a"}]}),
    ):
        try:
            print(ScalingConfig(**given))
        except ValueError as error:
            print(part in str(error))
    workers = ScalingConfig(use_tpu=True)
    print(workers.total_resources, workers.num_tpus_per_worker, workers.num_gpus_per_worker, workers.use_tpu)


def texts_of_results_of_nothing():
    """What errors about directories say."""
    with tempfile.TemporaryDirectory() as folder:
        for part, path in (("Experiment folder", f"{folder}/not"), ("Failed to restore the Result object", folder)):
            try:
                print(Result.from_path(path))
            except RuntimeError as error:
                print(part in str(error), "doesn't exist" in str(error))


def variables_have_names():
    """Programs set variables of the environment by them."""
    print(ray.train.constants.RAY_CHDIR_TO_TRIAL_DIR, ray.train.constants.TRAIN_DATASET_KEY)
    print(os.path.isabs(ray.train.constants.DEFAULT_STORAGE_PATH))
    print(RunConfig().storage_path == ray.train.constants.DEFAULT_STORAGE_PATH)


def old_arguments_are_refused():
    """Those that an earlier version of Ray Train had."""
    for given in ({"resume_from_checkpoint": Checkpoint("/there")}, {"metadata": {"a": 1}}):
        print(raised(lambda given=given: DataParallelTrainer(lambda: None, **given), "DeprecationWarning"))


def checkpoints_of_directories():
    """A checkpoint is a directory; it can be read in place, or copied."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        os.makedirs(os.path.join(folder, "deep"))
        Path(folder, "deep", "state").write_text("5")
        checkpoint = Checkpoint.from_directory(folder)
        print(checkpoint.path == folder, Checkpoint(Path(folder)).path == folder)
        with checkpoint.as_directory() as place:
            print(place == folder, sorted(os.listdir(place)))
        print(os.path.exists(folder))
        target = checkpoint.to_directory(os.path.join(other, "new"))
        print(os.path.relpath(target, other), Path(target, "deep", "state").read_text())
        made = checkpoint.to_directory()
        print(made != folder, Path(made, "deep", "state").read_text())
        Path(other, "old").mkdir()
        Path(other, "old", "stays").touch()
        checkpoint.to_directory(Path(other, "old"))
        print(sorted(os.listdir(os.path.join(other, "old"))))


def checkpoints_that_are_not_there():
    """The directory is looked for when it is used.

    Differs: here it is looked for when the checkpoint is made.
    """
    checkpoint = Checkpoint.from_directory("/is/not/there")
    with tempfile.TemporaryDirectory() as folder:
        print(raised(lambda: checkpoint.to_directory(folder), "OSError"))


def checkpoints_have_metadata():
    """It is set, updated and read, also by another object of the same path."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint.from_directory(folder)
        print(checkpoint.get_metadata())
        checkpoint.set_metadata({"a": 1, "b": 2})
        checkpoint.update_metadata({"b": 3, "c": [4]})
        print(checkpoint.get_metadata(), Checkpoint(folder).get_metadata())
        checkpoint.set_metadata({"d": 5})
        print(checkpoint.get_metadata())


def checkpoints_are_values():
    """They can be pickled, and passed to tasks."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state").write_text("5")
        checkpoint = Checkpoint.from_directory(folder)
        print(pickle.loads(pickle.dumps(checkpoint)).path == folder)

        @ray.remote
        def read(one):
            with one.as_directory() as place:
                return open(os.path.join(place, "state")).read()

        print(ray.get(read.remote(checkpoint)))


def results_made_by_hand():
    """Best checkpoints by any metric, in any order; reports without it do not count."""
    kept = [
        (Checkpoint(f"/there/{name}"), report) for name, report in (("a", {"x": 1}), ("b", {"y": 2}), ("c", {"x": 0}))
    ]
    result = Result(metrics={"x": 0}, checkpoint=kept[-1][0], error=None, path="/there", best_checkpoints=kept)
    for metric in ("x", "y"):
        print([result.get_best_checkpoint(metric, mode).path for mode in ("max", "min")])
    print(result.metrics, result.error, result.path, result.return_value)
    none = Result(metrics=None, checkpoint=None, error=None, path="/there")
    print(none.best_checkpoints or None, raised(lambda: none.get_best_checkpoint("x", "max"), *KINDS))


def errors_have_their_parts():
    """Errors of trainings, made by hand."""
    failed = ray.train.WorkerGroupError("on purpose", {1: ValueError("a")})
    print("on purpose" in str(failed), failed.worker_failures, isinstance(failed, ray.train.TrainingFailedError))
    failed = ray.train.ControllerError(RuntimeError("of mine"))
    print("of mine" in str(failed), repr(failed.controller_failure), isinstance(failed, ray.train.TrainingFailedError))
    print(issubclass(ray.train.TrainingFailedError, RuntimeError), issubclass(ray.train.TrainingFailedError, Exception))


def modes_have_values():
    """Enumerations of reports."""
    for kind in (
        ray.train.CheckpointUploadMode,
        ray.train.CheckpointConsistencyMode,
        ray.train.ReportedCheckpointStatus,
    ):
        print(sorted(one.value for one in kind), sorted(one.name for one in kind))


def validations_have_settings():
    """With defaults and limits."""
    task = ray.train.ValidationTaskConfig()
    print(task.fn_kwargs, task.timeout_s)
    for seconds in (0, -1, 5):
        print(raised(lambda seconds=seconds: ray.train.ValidationTaskConfig(timeout_s=seconds), *KINDS) == "nothing")
    config = ray.train.ValidationConfig(fn=print)
    print(config.fn is print, config.ray_remote_kwargs or {}, config.task_config == task)


def data_is_configured():
    """Which data sets are split."""
    for given in ({}, {"datasets_to_split": "all"}, {"datasets_to_split": ["a"]}, {"datasets_to_split": "a"},
                  {"datasets_to_split": 1}):  # fmt: skip
        print(given, raised(lambda given=given: ray.train.DataConfig(**given), *KINDS))


def settings_of_logging():
    """The level of what is logged, by name."""
    for level in ("INFO", "debug", "LOUD", 10):
        try:
            print(ray.train.LoggingConfig(log_level=level).log_level)
        except ValueError:
            print("ValueError")


def settings_of_failures():
    """How many failures there may be, of several kinds."""
    config = FailureConfig(max_failures=-1, controller_failure_limit=2)
    print(config.max_failures, config.controller_failure_limit)
    print(FailureConfig(max_preemption_failures=3).max_preemption_failures)
