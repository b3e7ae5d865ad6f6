"""Training: callbacks, validation of checkpoints, backends, local mode, configurations, and what workers may ask."""

import contextlib
import os
import tempfile
import time
from pathlib import Path

import ray
import ray.train
import ray.train.collective
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.ray_docs.helpers import eventually, raised


@contextlib.contextmanager
def _fitted(loop, workers=2, run=None, **more):
    """The result of a training, whose files are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield _trainer(loop, folder, workers, run, **more).fit()


def _trainer(loop, folder, workers=2, run=None, **more):
    return DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=folder, **{"name": "mine", **(run or {})}),
        **more,
    )


def _reporter():
    """A function that reports with an empty checkpoint, on all workers."""

    def report(values, **more):
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report(values, checkpoint=ray.train.Checkpoint.from_directory(folder), **more)

    return report


def callback_receives_the_reports_of_all_workers():
    """Page "Advanced: user callbacks": it gets what each worker has reported, and the saved checkpoint."""
    report = _reporter()
    with tempfile.TemporaryDirectory() as notes:

        class Notes(ray.train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                with open(os.path.join(notes, "reports"), "a") as file:
                    name = None if checkpoint is None else os.path.basename(checkpoint.path)
                    print(metrics, name, run_context.get_run_config().name, file=file)

        def loop():
            rank = ray.train.get_context().get_world_rank()
            ray.train.report({"rank": rank})
            report({"rank": rank + 10}, checkpoint_dir_name="saved")

        with _fitted(loop, run={"callbacks": [Notes()]}) as result:
            print(result.metrics, Path(notes, "reports").read_text())


def callback_receives_errors():
    """It gets the errors of each attempt, by rank."""
    with tempfile.TemporaryDirectory() as notes, tempfile.TemporaryDirectory() as folder:

        class Notes(ray.train.UserCallback):
            def after_exception(self, run_context, worker_exceptions):
                with open(os.path.join(notes, "errors"), "a") as file:
                    print(sorted(worker_exceptions), "on purpose" in str(worker_exceptions[1]), file=file)

        def loop():
            if ray.train.get_context().get_world_rank() == 1:
                raise ValueError("on purpose")
            ray.train.collective.barrier()

        run = {"callbacks": [Notes()], "failure_config": FailureConfig(max_failures=1)}
        print(raised(_trainer(loop, folder, run=run).fit, "Exception"))
        print(Path(notes, "errors").read_text())


def callback_that_raises():
    """A callback that raises ends the training, and that is not the fault of a worker."""

    class Raises(ray.train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            raise ValueError("on purpose")

    with tempfile.TemporaryDirectory() as folder:
        training = _trainer(lambda: ray.train.report({"a": 1}), folder, run={"callbacks": [Raises()]})
        try:
            training.fit()
        except ray.train.TrainingFailedError as error:
            print(isinstance(error, ray.train.ControllerError), isinstance(error, ray.train.WorkerGroupError))
            print("on purpose" in str(error.controller_failure))


def callbacks_of_another_kind():
    """What is no callback is refused before the training begins."""
    with tempfile.TemporaryDirectory() as folder:
        print(raised(lambda: _trainer(lambda: None, folder, run={"callbacks": [print]}), "ValueError", "TypeError"))


def checkpoints_are_validated():
    """Page "Validating checkpoints asynchronously": what the function returns joins the report, and ranks it."""
    report = _reporter()

    def validate(checkpoint, score=None):
        return {} if score is None else {"score": score}

    def loop():
        report({"score": 1}, validation=True)
        report({"score": 3}, validation=ray.train.ValidationTaskConfig())
        report({"score": 2}, validation=ray.train.ValidationTaskConfig(fn_kwargs={"score": 5}))

    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    validation = ray.train.ValidationConfig(fn=validate)
    with _fitted(loop, run={"checkpoint_config": config}, validation_config=validation) as result:
        print(result.metrics, [metrics for _, metrics in result.best_checkpoints], result.error)
        print(result.checkpoint.path == result.best_checkpoints[-1][0].path)
        again = ray.train.Result.from_path(result.path)
        print([metrics for _, metrics in again.best_checkpoints])


def validation_has_arguments():
    """The arguments of a report join those of the trainer, and count before them."""
    report = _reporter()

    def validate(checkpoint, a, b=0):
        return {"a": a, "b": b, "is_there": os.path.isdir(checkpoint.path)}

    def loop():
        report({}, validation=True)
        report({}, validation=ray.train.ValidationTaskConfig(fn_kwargs={"b": 3}))
        report({}, validation=ray.train.ValidationTaskConfig(fn_kwargs={"a": 4}))

    task = ray.train.ValidationTaskConfig(fn_kwargs={"a": 1})
    with _fitted(loop, validation_config=ray.train.ValidationConfig(validate, task)) as result:
        print([metrics for _, metrics in result.best_checkpoints])


def validation_that_fails():
    """The training continues, and the checkpoint keeps its report."""
    report = _reporter()

    def validate(checkpoint, fails):
        if fails:
            raise ValueError("on purpose")
        return {"b": 2}

    def loop():
        for number in range(2):
            report({"a": number}, validation=ray.train.ValidationTaskConfig(fn_kwargs={"fails": number == 0}))
        found = ray.train.get_all_reported_checkpoints()
        report({"found": [[one.metrics, one.status.value] for one in found]})

    with _fitted(loop, validation_config=ray.train.ValidationConfig(validate)) as result:
        print(result.error, result.metrics)


def checkpoints_that_wait_for_their_validation():
    """Committed checkpoints are listed at once; by default the list waits for validations."""
    report, committed = _reporter(), ray.train.CheckpointConsistencyMode.COMMITTED
    with tempfile.TemporaryDirectory() as notes:
        sign = os.path.join(notes, "sign")

        def validate(checkpoint):
            while not os.path.exists(sign):
                time.sleep(0.05)
            return {"b": 2}

        def loop():
            report({"a": 1}, validation=True)
            found = ray.train.get_all_reported_checkpoints(consistency_mode=committed)
            ray.train.collective.barrier()
            Path(sign).touch()
            found += ray.train.get_all_reported_checkpoints()
            report({"found": [[one.metrics, one.status.value] for one in found]})

        with _fitted(loop, validation_config=ray.train.ValidationConfig(validate)) as result:
            print(result.metrics)


def validation_without_a_function_or_a_checkpoint():
    """A report cannot ask for a validation that there is not."""
    report = _reporter()
    for loop, more in (
        (lambda: report({}, validation=True), {}),
        (
            lambda: ray.train.report({}, validation=True),
            {"validation_config": ray.train.ValidationConfig(lambda checkpoint: {})},
        ),
    ):
        with tempfile.TemporaryDirectory() as folder:
            try:
                _trainer(loop, folder, 1, **more).fit()
            except ray.train.WorkerGroupError as error:
                print(sorted(error.worker_failures), "alid" in str(error))


def backend_sets_up_the_workers():
    """A backend of one's own runs functions on all workers before the loop, and after it."""
    with tempfile.TemporaryDirectory() as notes:

        class Own(Backend):
            def on_start(self, worker_group, backend_config):
                def setup(value):
                    os.environ["OWN"] = value
                    return value

                Path(notes, "start").write_text(str((len(worker_group), worker_group.execute(setup, "7"))))

            def on_training_start(self, worker_group, backend_config):
                found = worker_group.execute_single(1, lambda: os.environ["OWN"])
                Path(notes, "training").write_text(str(found))

            def on_shutdown(self, worker_group, backend_config):
                Path(notes, "shutdown").touch()

        class OwnConfig(BackendConfig):
            @property
            def backend_cls(self):
                return Own

        report = _reporter()
        with _fitted(lambda: report({"own": os.environ["OWN"]}), backend_config=OwnConfig()) as result:
            print(result.metrics, Path(notes, "start").read_text(), Path(notes, "training").read_text())
            print(eventually(Path(notes, "shutdown").exists))


def backend_has_a_context_of_the_loop():
    """The loop of each worker runs in the context of its backend."""

    class OwnConfig(BackendConfig):
        @property
        def train_func_context(self):
            @contextlib.contextmanager
            def around():
                os.environ["AROUND"] = "1"
                yield

            return around

    report = _reporter()
    with _fitted(lambda: report({"around": os.environ["AROUND"]}), backend_config=OwnConfig()) as result:
        print(result.metrics)


def training_in_this_process():
    """With no workers the loop runs in the process of the program."""
    report, seen = _reporter(), []

    def loop():
        context = ray.train.get_context()
        seen.append(os.getpid() == own)
        report({"size": context.get_world_size(), "rank": context.get_world_rank()})

    own = os.getpid()
    with _fitted(loop, 0) as result:
        print(result.metrics, result.checkpoint is not None, seen)


def numbers_of_workers():
    """A number of workers, or the least and the most of them."""
    for given in ((1, 4), (2, 2), (4, 1), -1, (1, 2, 3), "1", 1.5, None):
        print(given, raised(lambda given=given: ScalingConfig(num_workers=given), "ValueError", "TypeError"))
    config = ScalingConfig(num_workers=(1, 3))
    print(config.num_workers, config.min_workers, config.max_workers, config.elasticity_enabled)
    print(config.total_resources)


def training_with_as_many_workers_as_fit():
    """Page "Elastic training": it runs with the most workers that there is room for."""
    report = _reporter()
    for least, most in ((1, 2), (2, 3)):
        with tempfile.TemporaryDirectory() as folder:
            result = DataParallelTrainer(
                lambda: report({"size": ray.train.get_context().get_world_size()}),
                scaling_config=ScalingConfig(num_workers=(least, most)),
                run_config=RunConfig(storage_path=folder),
            ).fit()
            print(result.metrics)


def environment_of_workers():
    """Workers may have an environment of their own."""
    report = _reporter()
    run = {"worker_runtime_env": {"env_vars": {"OWN": "5"}}}
    with _fitted(lambda: report({"own": os.environ.get("OWN")}), run=run) as result:
        print(result.metrics, os.environ.get("OWN"))


def questions_outside_of_a_training():
    """Outside of a training there is nothing to ask or to report."""
    for ask in (
        lambda: ray.train.report({}),
        ray.train.get_checkpoint,
        ray.train.get_context,
        ray.train.get_dataset_shard,
        ray.train.get_all_reported_checkpoints,
        ray.train.collective.barrier,
        lambda: ray.train.collective.broadcast_from_rank_zero(1),
        ray.train.get_preemption_info,
    ):
        print(raised(ask, "RuntimeError"))


def nodes_that_are_about_to_go():
    """A worker can ask whether its node is about to be taken away."""
    report = _reporter()
    with _fitted(lambda: report({"found": ray.train.get_preemption_info()})) as result:
        print(result.metrics)


def data_without_data():
    """A worker asks for data that the trainer has not."""

    def loop():
        ray.train.get_dataset_shard("other")

    with tempfile.TemporaryDirectory() as folder:
        print(raised(_trainer(loop, folder, 1).fit, "Exception"))


def errors_can_be_pickled():
    """Errors of a training keep their text, and what they know, when they are copied."""
    for error in (
        ray.train.WorkerGroupError("two have failed", {0: ValueError("a"), 1: RuntimeError("b")}),
        ray.train.ControllerError(Exception("c")),
    ):
        copy = ray.cloudpickle.loads(ray.cloudpickle.dumps(error))
        print(type(copy) is type(error), str(copy) == str(error))


def loop_needs_too_much():
    """Page "Fault tolerance": a training runs again after a failure, from its last checkpoint."""
    report = _reporter()

    def loop():
        checkpoint = ray.train.get_checkpoint()
        start = 0 if checkpoint is None else 1
        for number in range(start, 3):
            report({"number": number, "start": start})
            ray.train.collective.barrier()
            if start == 0:
                ray.train.get_all_reported_checkpoints()
                raise RuntimeError("on purpose")

    with _fitted(loop, run={"failure_config": FailureConfig(max_failures=1)}) as result:
        print(result.metrics, len(result.best_checkpoints))
