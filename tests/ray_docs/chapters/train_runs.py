"""Training: functions, failures, which checkpoints stay, what workers may ask, and a name that is used again."""

import contextlib
import functools
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import ray
import ray.train
import ray.train.collective
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.ray_docs.helpers import raised, tally


@contextlib.contextmanager
def _fitted(loop, workers=1, run=None, scaling=None, **more):
    """The result of a training, whose files are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield _trainer(loop, folder, workers, run, scaling, **more).fit()


def _trainer(loop, folder, workers=1, run=None, scaling=None, **more):
    return DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=workers, **(scaling or {})),
        run_config=RunConfig(storage_path=folder, **{"name": "mine", **(run or {})}),
        **more,
    )


def _reporter():
    """A function that reports with an empty checkpoint, on all workers."""

    def report(values, **more):
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report(values, checkpoint=ray.train.Checkpoint.from_directory(folder), **more)

    return report


def _kept(values, **config):
    """Which reports are kept with their checkpoints, and the last one."""
    report = _reporter()

    def loop():
        for value in values:
            report(value)

    with _fitted(loop, run={"checkpoint_config": CheckpointConfig(**config)}) as result:
        return [one for _, one in result.best_checkpoints], result.metrics


def functions_take_a_configuration_or_nothing():
    """It is passed to a parameter without a default: methods and objects are functions too."""

    class Own:
        def method(self, config):
            return config["a"]

        def __call__(self, config):
            return config["a"] + 1

    def with_default(config=5):
        return config

    for loop in (Own().method, Own(), with_default, functools.partial(lambda b, config: (b, config), 3), lambda *a: a):
        with _fitted(loop, 0, train_loop_config={"a": 1}) as result:
            print(result.return_value)
    with _fitted(lambda config: config, 0) as result:
        print(result.return_value)


def functions_with_too_many_parameters():
    """One parameter without a default at most."""
    for loop in (lambda a, b=1: (a, b), lambda a=1, b=2: (a, b), lambda a, b: (a, b)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(_trainer(loop, folder, 0, train_loop_config={"a": 1}).fit().return_value)
            except (TypeError, ValueError):
                print("refused")


def local_mode_runs_the_function_here():
    """It returns a value, and raises its errors as they are."""
    report = _reporter()

    def loop(config):
        context = ray.train.get_context()
        found = [context.get_world_size(), context.get_world_rank(), context.get_local_rank(), context.get_node_rank()]
        report({"found": found, "a": config["a"], "first": ray.train.get_checkpoint() is None})
        ray.train.collective.barrier()
        return ray.train.collective.broadcast_from_rank_zero("value")

    with _fitted(loop, 0, train_loop_config={"a": 1}) as result:
        print(result.metrics, result.error, result.return_value)

    def fails():
        raise ValueError("on purpose")

    with tempfile.TemporaryDirectory() as folder:
        print(raised(_trainer(fails, folder, 0).fit, "ValueError"))


def local_mode_without_reports():
    """There are no metrics."""
    with _fitted(lambda: None, 0) as result:
        print(result.metrics or None, result.checkpoint, result.error)


def local_mode_knows_its_name():
    """As the context says."""

    def loop():
        print(ray.train.get_context().get_experiment_name(), ray.train.get_all_reported_checkpoints())

    with _fitted(loop, 0):
        pass


def _asking():
    """A function that asks what a worker may ask."""

    def asked(rank):
        found, thread_found = {}, []
        context = ray.train.get_context()
        found["place"] = context.get_world_rank(), context.get_local_rank(), context.get_node_rank()
        found["sizes"] = context.get_world_size(), context.get_local_world_size()
        thread = threading.Thread(target=lambda: thread_found.append(ray.train.get_context().get_world_size()))
        thread.start()
        thread.join()
        found["thread"] = thread_found
        amounts = ray.get_runtime_context().get_assigned_resources()
        found["amounts"] = {name: amounts.get(name) for name in ("CPU", "special")}
        group = ray.util.get_current_placement_group()
        found["group"] = None if group is None else len(group.bundle_specs)
        double = ray.remote(num_cpus=0)(lambda x: 2 * x)
        shared = ray.train.collective.broadcast_from_rank_zero([ray.put([rank, 2])])
        found["calls"] = ray.get(double.remote(4)), ray.get(shared[0])
        values = rank, None, {"rank": [rank]}, "x" * 9
        found["broadcast"] = [ray.train.collective.broadcast_from_rank_zero(value) for value in values]
        return found

    return asked


@functools.cache
def _facts():
    """What the workers of one training have seen, by rank, and what its result has: each program shows a part."""
    with tempfile.TemporaryDirectory() as notes, tempfile.TemporaryDirectory() as folder:
        asked = _asking()

        def saved(values, file, **more):
            local = tempfile.mkdtemp(dir=notes)
            os.makedirs(os.path.join(local, "shared", f"deep{file}"))
            with open(os.path.join(local, "shared", f"of{file}"), "w") as state:
                state.write(str(values))
            ray.train.report(values, ray.train.Checkpoint.from_directory(local), **more)
            return local

        def loop(config):
            rank = ray.train.get_context().get_world_rank()
            found = asked(rank)
            found["config"] = float(config["array"].sum()), config["function"](2), str(config["path"])
            found["listed"] = [len(ray.train.get_all_reported_checkpoints())]
            found["names"] = []
            for number in range(2):
                saved({"n": number}, rank, checkpoint_dir_name=f"c{number}")
                ray.train.report({"between": number})
                found["names"].append(os.path.basename(ray.train.get_checkpoint().path))
            found["listed"].append(len(ray.train.get_all_reported_checkpoints()))
            with tempfile.TemporaryDirectory() as local:
                made = ray.train.Checkpoint.from_directory(local) if rank == 1 else None
                ray.train.report({"of": rank}, made)
            found["left"] = []
            for mode in (ray.train.CheckpointUploadMode.SYNC, ray.train.CheckpointUploadMode.ASYNC):
                for deletes in (None, False, True):
                    options = {"checkpoint_upload_mode": mode, "delete_local_checkpoint_after_upload": deletes}
                    local = saved({"mode": mode.value, "deletes": deletes}, rank, **options)
                    ray.train.get_all_reported_checkpoints()
                    found["left"].append(os.path.exists(local))
            last = {
                "none": None,
                "text": "x",
                "list": [[], {}],
                "nan": float("nan"),
                "big": 10**12,
                "deep": {"a": {"b": 1}},
            }
            saved(last, rank)
            with open(os.path.join(notes, str(rank)), "w") as file:
                file.write(repr(found))

        class Notes(ray.train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                with open(os.path.join(notes, "callback"), "a") as file:
                    file.write(f"{run_context.scaling_config.num_workers} {metrics} {checkpoint is not None}\n")

        config = {"array": np.ones(3), "function": lambda x: x + 1, "path": Path("/there")}
        amounts = {"resources_per_worker": {"CPU": 1, "special": 0.5}}
        result = _trainer(loop, folder, 2, {"callbacks": [Notes()]}, amounts, train_loop_config=config).fit()
        root = Path(result.best_checkpoints[0][0].path)
        return {
            "ranks": [eval(Path(notes, str(rank)).read_text()) for rank in range(2)],
            "files": sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()),
            "callback": Path(notes, "callback").read_text().splitlines(),
            "kept": [metrics for _, metrics in result.best_checkpoints],
            "states": [Path(one.path, "shared", "of0").exists() for one, _ in result.best_checkpoints],
            "metrics": result.metrics,
            "result": (result.error, os.path.isdir(result.path), result.return_value),
        }


def ranks_on_a_node():
    """Workers of a node have local ranks from 0 on."""
    print([one["place"] for one in _facts()["ranks"]], [one["sizes"] for one in _facts()["ranks"]])


def questions_in_a_thread():
    """A thread of the function knows the training too."""
    print([one["thread"] for one in _facts()["ranks"]])


def workers_have_their_resources():
    """Those that are asked for, as the context of the runtime knows them."""
    print([one["amounts"] for one in _facts()["ranks"]])


def workers_are_in_a_group():
    """A placement group has a bundle for each worker.

    Differs: here workers are members of a gang.
    """
    print([one["group"] for one in _facts()["ranks"]])


def workers_submit_tasks():
    """And share values by references."""
    print([one["calls"] for one in _facts()["ranks"]])


def broadcast_of_any_value():
    """Of rank 0, whatever the others pass."""
    print([one["broadcast"] for one in _facts()["ranks"]])


def configuration_has_any_values():
    """Functions, arrays and objects."""
    print([one["config"] for one in _facts()["ranks"]])


def all_workers_see_the_checkpoints():
    """The list is the same on each, and empty before the first."""
    print([one["listed"] for one in _facts()["ranks"]])


def reports_between_checkpoints():
    """The last checkpoint stays that of the training."""
    print([one["names"] for one in _facts()["ranks"]])


def local_checkpoints_are_deleted_after_their_upload():
    """By default only in the asynchronous mode."""
    print([one["left"] for one in _facts()["ranks"]])


def checkpoints_of_several_workers_are_one():
    """Files of all of them are in one directory, also below others."""
    print(_facts()["files"])


def checkpoint_of_another_worker():
    """Its report is that of rank 0."""
    print(_facts()["kept"][2], _facts()["states"])


def checkpoints_are_uploaded_in_order():
    """In any mode."""
    print(_facts()["kept"][3:9])


def metrics_have_any_values():
    """Also text, containers and None."""
    print(_facts()["metrics"])


def callbacks_see_reports_with_and_without_checkpoints():
    """And know the settings of the training."""
    print(_facts()["callback"][:5])


def results_of_a_training():
    """They have no error, and a directory."""
    print(_facts()["result"])


@functools.cache
def _failed():
    """What is seen of a training that fails twice, and is then continued."""
    with tempfile.TemporaryDirectory() as notes, tempfile.TemporaryDirectory() as folder:

        def saved(values):
            with tempfile.TemporaryDirectory() as local:
                ray.train.report(values, ray.train.Checkpoint.from_directory(local))

        def loop():
            found = ray.train.get_all_reported_checkpoints()
            rank = ray.train.get_context().get_world_rank()
            if not found:
                saved({"n": 0})
                saved({"n": 1})
                ray.train.get_all_reported_checkpoints()
                raise KeyError(f"first of {rank}")
            is_last = os.path.basename(ray.train.get_checkpoint().path) == os.path.basename(found[-1].checkpoint.path)
            saved({"n": 2, "found": [one.metrics for one in found], "is_last": is_last})
            ray.train.get_all_reported_checkpoints()
            raise KeyError(f"second of {rank}")

        class Notes(ray.train.UserCallback):
            def __init__(self, name):
                self.name = name

            def note(self, what):
                with open(os.path.join(notes, "callbacks"), "a") as file:
                    file.write(f"{self.name} {what}\n")

            def after_report(self, run_context, metrics, checkpoint):
                self.note(f"report {[one['n'] for one in metrics]}")

            def after_exception(self, run_context, worker_exceptions):
                self.note(f"failure {len(worker_exceptions) > 0}")

        run = {"callbacks": [Notes("a"), Notes("b")], "failure_config": FailureConfig(max_failures=1)}
        seen = {}
        try:
            _trainer(loop, folder, 2, run).fit()
        except ray.train.WorkerGroupError as error:
            causes = list(error.worker_failures.values())
            seen["error"] = (
                0 < len(causes) <= 2,
                {isinstance(one, KeyError) for one in causes},
                {"second of" in str(one) for one in causes},
                "KeyError" in str(error) and "second of" in str(error),
            )
        seen["callbacks"] = Path(notes, "callbacks").read_text().splitlines()

        def again():
            saved({"n": 3, "is_first": ray.train.get_checkpoint() is None})
            saved({"n": 4, "found": len(ray.train.get_all_reported_checkpoints())})

        result = _trainer(again, folder, 1, {"checkpoint_config": CheckpointConfig(num_to_keep=3)}).fit()
        seen["kept"] = [metrics for _, metrics in result.best_checkpoints]
        return seen


def the_errors_of_workers_are_kept():
    """By rank, as instances of the class that was raised, with their text. They are those of the last attempt."""
    print(_failed()["error"])


def callbacks_see_each_attempt():
    """Several callbacks are called in their order."""
    print(_failed()["callbacks"])


def a_name_that_is_used_again():
    """The training has the last checkpoint of the earlier one, and its list."""
    print(_failed()["kept"])


@functools.cache
def _validated():
    """What is seen of validations that end in several ways."""
    with tempfile.TemporaryDirectory() as folder:

        def validate(checkpoint, how="", score=0):
            if how == "slow":
                time.sleep(60)
            if how == "no metrics":
                return 5
            with checkpoint.as_directory() as place:
                text = open(os.path.join(place, "state")).read()
            special = ray.get_runtime_context().get_assigned_resources().get("special")
            return {"text": text, "special": special, "score": score}

        def saved(values, **arguments):
            with tempfile.TemporaryDirectory() as local:
                with open(os.path.join(local, "state"), "w") as file:
                    file.write("of " + str(values))
                task = ray.train.ValidationTaskConfig(timeout_s=arguments.pop("timeout_s", None), fn_kwargs=arguments)
                ray.train.report(values, ray.train.Checkpoint.from_directory(local), validation=task)

        def loop():
            saved({"n": 0}, how="slow", timeout_s=0.5)
            saved({"n": 1}, how="no metrics")
            for number, score in ((2, 5), (3, 1), (4, 3)):
                saved({"n": number}, score=score)
            found = ray.train.get_all_reported_checkpoints()
            with open(os.path.join(folder, "found"), "w") as file:
                file.write(repr([(one.metrics, one.status.value) for one in found]))

        validation = ray.train.ValidationConfig(validate, ray_remote_kwargs={"resources": {"special": 1}})
        config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
        result = _trainer(loop, folder, 1, {"checkpoint_config": config}, validation_config=validation).fit()
        return {
            "found": eval(Path(folder, "found").read_text()),
            "kept": [metrics for _, metrics in result.best_checkpoints],
            "last": (result.metrics, result.error),
        }


def validations_choose_what_is_kept():
    """A checkpoint is not deleted before it is validated."""
    print(_validated()["kept"])


def validations_are_listed():
    """Of the checkpoints that stay."""
    print(_validated()["found"])


def validations_have_options():
    """The task has its resources, and reads the files of the checkpoint."""
    print(_validated()["last"])


def checkpoints_without_a_score():
    """Reports without the metric are worse than those with it."""
    print(_kept([{"a": 1}, {"b": 2}, {"a": 0}], num_to_keep=2, checkpoint_score_attribute="a"))


def a_worker_that_dies():
    """A process that ends itself fails the training.

    Differs: here that is not the fault of the function, and it runs again `max_crashes` times.
    """
    with tally() as attempts, tempfile.TemporaryDirectory() as folder:

        def loop(config):
            if config["add"]() == 1:
                os._exit(1)

        training = _trainer(loop, folder, train_loop_config={"add": attempts.add})
        print(raised(training.fit, "Exception"), attempts.count)


def a_worker_that_calls_exit():
    """`sys.exit` in the function fails the training."""

    def loop():
        raise SystemExit(0)

    with tempfile.TemporaryDirectory() as folder:
        print(raised(_trainer(loop, folder).fit, "Exception"))


def an_upload_that_fails():
    """Its error is that of the worker."""

    def loop():
        def upload(checkpoint, name):
            raise ValueError("on purpose")

        with tempfile.TemporaryDirectory() as folder:
            mode = ray.train.CheckpointUploadMode.ASYNC
            ray.train.report({}, Checkpoint(folder), checkpoint_upload_mode=mode, checkpoint_upload_fn=upload)

    with tempfile.TemporaryDirectory() as folder:
        try:
            _trainer(loop, folder).fit()
        except ray.train.WorkerGroupError as error:
            print(isinstance(error.worker_failures[0], ValueError), "on purpose" in str(error))


def values_that_cannot_be_returned():
    """What the function returns must be possible to pickle.

    Differs: here a warning is logged, and nothing is returned.
    """
    with tempfile.TemporaryDirectory() as folder:
        print(raised(_trainer(lambda: threading.Lock(), folder).fit, "Exception"))
