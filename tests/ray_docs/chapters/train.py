"""Training: what a trainer returns, its directory, its checkpoints and their names, and what each worker knows."""

import contextlib
import os
import tempfile
from pathlib import Path

import ray
import ray.train
import ray.train.collective
from ray.train import Checkpoint, CheckpointConfig, Result, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.ray_docs.helpers import raised


@contextlib.contextmanager
def _fitted(loop, workers=2, config=None, run=None, **scaling):
    """The result of a training, whose files are gone afterwards, and the directory in which it has its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield _trainer(loop, folder, workers, config, run, **scaling).fit(), folder


def _trainer(loop, folder, workers=2, config=None, run=None, **scaling):
    return DataParallelTrainer(
        loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers, **scaling),
        run_config=RunConfig(storage_path=folder, **{"name": "mine", **(run or {})}),
    )


def _number(checkpoint, name="state"):
    with checkpoint.as_directory() as folder:
        return int(Path(folder, name).read_text())


def _saves(values, kept=None, **more):
    """A loop that reports these values, each with a checkpoint of rank 0 that has its number."""

    def loop():
        rank = ray.train.get_context().get_world_rank()
        for number, value in enumerate(values):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "state"), "w") as file:
                    file.write(str(number))
                made = Checkpoint.from_directory(folder) if rank == 0 else None
                ray.train.report(value, checkpoint=made, **more)

    return loop


def result_has_what_was_reported():
    """The metrics of a result are those of the last report, and nothing besides."""
    with _fitted(_saves([{"a": 1}, {"a": 2, "b": {"c": [3]}}])) as (result, _):
        print(result.metrics)


def configuration_can_be_reported():
    """A loop takes its configuration, and may report it as it is."""

    def loop(config):
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report(config, checkpoint=Checkpoint.from_directory(folder))

    with _fitted(loop, config={"x": 1, "config": 2, "pid": 3, "done": 0}) as (result, _):
        print(result.metrics)


def result_lies_in_a_directory_of_its_name():
    """The path of a result is that of its storage and its name."""
    with _fitted(lambda: None) as (result, folder):
        print(result.path == os.path.join(folder, "mine"), os.path.isdir(result.path), result.error)


def checkpoints_lie_in_the_directory_of_the_training():
    """Each checkpoint is a directory there; its name begins with "checkpoint_"."""
    with _fitted(_saves([{"a": 1}, {"a": 2}])) as (result, folder):
        names = [one.name for one in Path(folder, "mine").glob("checkpoint_*") if one.is_dir()]
        paths = [checkpoint.path for checkpoint, _ in result.best_checkpoints]
        print(sorted(names) == [os.path.basename(path) for path in paths], len(paths))
        print({os.path.dirname(path) == result.path for path in paths}, result.checkpoint.path == paths[-1])


def checkpoints_have_their_reports():
    """The best checkpoints have the metrics that were reported with them."""
    with _fitted(_saves([{"a": 1}, {"a": 2, "training_iteration": 7}])) as (result, _):
        print([(_number(checkpoint), metrics) for checkpoint, metrics in result.best_checkpoints])


def last_report_without_a_checkpoint():
    """Metrics are kept with checkpoints.

    Differs: here the result has the last report also if it has no checkpoint.
    """

    def loop():
        ray.train.report({"a": 1})

    with _fitted(loop) as (result, _):
        print(result.metrics, result.checkpoint, result.best_checkpoints)


def best_checkpoints_are_kept():
    """Of more checkpoints than are to be kept the worst ones go; those that stay are ordered by their score."""
    for order in ("max", "min"):
        config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="a", checkpoint_score_order=order)
        values = [{"a": value} for value in (3, 1, 4, 2)]
        with _fitted(_saves(values), run={"checkpoint_config": config}) as (result, _):
            print([metrics["a"] for _, metrics in result.best_checkpoints], _number(result.checkpoint))
            print(sum(one.is_dir() for one in Path(result.path).glob("checkpoint_*")))


def newest_checkpoints_are_kept():
    """Without a score the newest ones stay."""
    config = CheckpointConfig(num_to_keep=2)
    with _fitted(_saves([{"a": 3}, {"a": 1}, {"a": 2}]), run={"checkpoint_config": config}) as (result, _):
        print([metrics["a"] for _, metrics in result.best_checkpoints])


def nested_score():
    """The score of a checkpoint may lie in a dictionary."""
    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss/val", checkpoint_score_order="min")
    values = [{"loss": {"val": value}} for value in (3, 1, 2, 4)]
    with _fitted(_saves(values), run={"checkpoint_config": config}) as (result, _):
        print([metrics["loss"]["val"] for _, metrics in result.best_checkpoints])


def best_checkpoint_by_a_metric():
    """A result finds its best checkpoint by any metric, also by one in a dictionary."""
    values = [{"a": 1, "b": {"c": 3}}, {"a": 2, "b": {"c": 1}}, {"a": 0, "b": {"c": 2}}]
    with _fitted(_saves(values)) as (result, _):
        for metric in ("a", "b/c"):
            print([_number(result.get_best_checkpoint(metric, mode)) for mode in ("max", "min")])
        print(raised(lambda: result.get_best_checkpoint("unknown", "max"), "RuntimeError", "ValueError", "KeyError"))
        print(raised(lambda: result.get_best_checkpoint("a", "most"), "RuntimeError", "ValueError", "KeyError"))


def best_checkpoint_where_there_is_none():
    """Without checkpoints there is no best one."""
    with _fitted(lambda: None) as (result, _):
        print(raised(lambda: result.get_best_checkpoint("a", "max"), "RuntimeError", "ValueError"))


def result_is_read_from_its_directory():
    """A result can be read later, with or without a slash, as text or as a path, also if the training has failed."""

    def loop():
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report({"a": {"b": 5}}, checkpoint=Checkpoint.from_directory(folder))
        raise RuntimeError("on purpose")

    with tempfile.TemporaryDirectory() as folder:
        print(raised(_trainer(loop, folder).fit, "Exception"))
        path = os.path.join(folder, "mine")
        for place in (path, path + "/", Path(path)):
            result = Result.from_path(place)
            print(os.path.dirname(result.checkpoint.path) == path, [one for _, one in result.best_checkpoints])
            print(result.get_best_checkpoint("a/b", "max") == result.checkpoint)


def result_of_nothing():
    """To read a result where there is none is an error."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "empty"))
        for name in ("empty", "missing"):
            print(raised(lambda name=name: Result.from_path(os.path.join(folder, name)), "RuntimeError", "OSError"))


def result_is_made_by_hand():
    """A result is made from its parts, and shows them."""
    made = Result(
        metrics={"a": 1},
        checkpoint=Checkpoint("/there/one"),
        error=None,
        path="/there",
        best_checkpoints=[(Checkpoint(f"/there/{value}"), {"a": value}) for value in (2, 1, 3)],
    )
    print("metrics={'a': 1}" in repr(made), "Checkpoint(filesystem=local, path=/there/one)" in repr(made))
    print(made.get_best_checkpoint("a", "max").path, made.get_best_checkpoint("a", "min").path)


def checkpoints_are_equal_by_their_paths():
    """Two checkpoints of one path.

    Differs: here they are equal.
    """
    one, same, other = Checkpoint("/there/one"), Checkpoint("/there/one"), Checkpoint("/there/two")
    print(one == same, one == other, repr(one))


def checkpoint_has_a_name():
    """A report may name the directory of its checkpoint, also on a rank that has none."""

    def loop():
        rank = ray.train.get_context().get_world_rank()
        for epoch in range(3):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, f"rank{rank}"), "w") as file:
                    file.write(str(epoch))
                made = Checkpoint.from_directory(folder) if rank else None
                ray.train.report({"epoch": epoch}, checkpoint=made, checkpoint_dir_name=f"epoch={epoch}")
                assert os.path.exists(folder)

    config = CheckpointConfig(num_to_keep=2)
    with _fitted(loop, workers=3, run={"checkpoint_config": config}) as (result, _):
        print(sorted(one for one in os.listdir(result.path) if one.startswith("epoch")))
        print([sorted(os.listdir(checkpoint.path)) for checkpoint, _ in result.best_checkpoints])
        print([metrics for _, metrics in result.best_checkpoints])


def last_reported_checkpoint_can_be_read():
    """After a report the checkpoint of the training is that one."""

    def loop():
        found = [ray.train.get_checkpoint() is None]
        for epoch in range(2):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "state"), "w") as file:
                    file.write(str(epoch))
                ray.train.report(
                    {"found": found}, checkpoint=Checkpoint.from_directory(folder), checkpoint_dir_name=f"e{epoch}"
                )
            checkpoint = ray.train.get_checkpoint()
            with checkpoint.as_directory() as folder, open(os.path.join(folder, "state")) as file:
                found = [*found, os.path.basename(checkpoint.path), file.read()]
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report({"found": found}, checkpoint=Checkpoint.from_directory(folder))

    with _fitted(loop) as (result, _):
        print(result.metrics)


def local_checkpoint_is_deleted():
    """A report deletes the local directory of its checkpoint if it is asked to."""

    def loop(config):
        folder = config["folder"]
        if ray.train.get_context().get_world_rank() == 0:
            os.makedirs(folder)
            with open(os.path.join(folder, "state"), "w") as file:
                file.write("5")
            ray.train.report({}, Checkpoint(folder), **config["options"])
        else:
            ray.train.report({}, None)

    for options in (
        {},
        {"delete_local_checkpoint_after_upload": True},
    ):
        with tempfile.TemporaryDirectory() as place:
            folder = os.path.join(place, "local")
            with _fitted(loop, config={"folder": folder, "options": options}) as (result, _):
                print(os.path.exists(folder), _number(result.checkpoint), result.metrics)


def checkpoint_is_where_it_shall_stay():
    """A worker may write its files to the directory of the checkpoint itself: then nothing is copied or deleted."""
    mode = ray.train.CheckpointUploadMode.NO_UPLOAD

    def loop():
        rank, storage = ray.train.get_context().get_world_rank(), ray.train.get_context().get_storage()
        path = storage.build_checkpoint_path_from_name("placed")
        if rank < 2:
            os.makedirs(path, exist_ok=True)
            with open(os.path.join(path, f"rank{rank}"), "w") as file:
                file.write("5")
            made = Checkpoint(path)
            ray.train.report({"rank": rank}, made, checkpoint_upload_mode=mode, checkpoint_dir_name="placed")
            assert ray.train.get_checkpoint() == made
        else:
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, f"rank{rank}"), "w") as file:
                    file.write("5")
                made = Checkpoint.from_directory(folder)
                ray.train.report({"rank": rank}, made, checkpoint_dir_name="placed")

    with _fitted(loop, workers=3) as (result, _):
        print(os.path.relpath(result.checkpoint.path, result.path), sorted(os.listdir(result.checkpoint.path)))
        print(result.metrics, len(result.best_checkpoints))


def checkpoint_is_uploaded_by_a_function():
    """A function of the program may copy the checkpoint, and returns where it is."""

    def upload(checkpoint, name):
        path = ray.train.get_context().get_storage().build_checkpoint_path_from_name(name)
        os.makedirs(path)
        with open(os.path.join(path, "state"), "w") as file, checkpoint.as_directory() as folder:
            file.write(open(os.path.join(folder, "state")).read() + "5")
        return Checkpoint.from_directory(path)

    loop = _saves([{"a": 1}], checkpoint_dir_name="own", checkpoint_upload_fn=upload)
    with _fitted(loop) as (result, _):
        print(os.path.relpath(result.checkpoint.path, result.path), _number(result.checkpoint))
    with tempfile.TemporaryDirectory() as folder:
        training = _trainer(_saves([{"a": 1}], checkpoint_upload_fn=lambda *_: None), folder)
        print(raised(training.fit, "Exception"))


def error_of_a_worker():
    """A training that has failed raises an error, which knows the errors of its workers by their ranks."""

    def loop():
        if ray.train.get_context().get_world_rank() == 1:
            raise ValueError("on purpose")
        ray.train.collective.barrier()

    with tempfile.TemporaryDirectory() as folder:
        try:
            _trainer(loop, folder).fit()
        except ray.train.TrainingFailedError as error:
            print(isinstance(error, ray.train.WorkerGroupError), "on purpose" in str(error), 1 in error.worker_failures)


def error_of_the_loop():
    """A function that takes too much.

    Differs: here it is refused when the trainer is made, in Ray when it runs.
    """
    print(raised(lambda: DataParallelTrainer(lambda a, b: None), "ValueError", "TypeError"))


def barrier_and_broadcast():
    """Workers wait for each other, and get what rank 0 has."""

    def loop():
        rank = ray.train.get_context().get_world_rank()
        ray.train.collective.barrier()
        got = ray.train.collective.broadcast_from_rank_zero({"rank": rank})
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report({"got": got}, checkpoint=Checkpoint.from_directory(folder))

    with _fitted(loop, workers=3) as (result, _):
        print(result.metrics)


def context_of_a_worker():
    """A worker knows its place, and the name of its training."""

    def loop():
        context = ray.train.get_context()
        values = {
            "size": context.get_world_size(),
            "local": context.get_local_world_size(),
            "rank": context.get_world_rank(),
            "node": context.get_node_rank(),
            "name": context.get_experiment_name(),
        }
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report(values, checkpoint=Checkpoint.from_directory(folder))

    with _fitted(loop, workers=3) as (result, _):
        print(result.metrics)


def reported_checkpoints():
    """Workers can list the checkpoints that were reported until then."""

    def loop():
        found = []
        for epoch in range(3):
            with tempfile.TemporaryDirectory() as folder:
                made = Checkpoint.from_directory(folder) if ray.train.get_context().get_world_rank() == 0 else None
                ray.train.report({"epoch": epoch, "found": found}, checkpoint=made)
            found = [one.metrics["epoch"] for one in ray.train.get_all_reported_checkpoints()]

    config = CheckpointConfig(num_to_keep=2)
    with _fitted(loop, run={"checkpoint_config": config}) as (result, _):
        print([metrics["found"] for _, metrics in result.best_checkpoints])


def amounts_of_workers():
    """A worker has a CPU; one with a GPU has no CPU unless it is asked for."""
    for given in (
        {},
        {"num_workers": 2},
        {"use_gpu": True},
        {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 3}},
        {"num_workers": 2, "resources_per_worker": {"special": 0.5}},
        {"num_workers": 2, "use_gpu": True, "accelerator_type": "A100"},
        {"num_workers": 2, "accelerator_type": "A100"},
    ):
        config = ScalingConfig(**given)
        amounts = {name: round(amount, 6) for name, amount in config.total_resources.items() if amount}
        print(config.num_workers, dict(sorted(amounts.items())), config.num_cpus_per_worker, config.num_gpus_per_worker)
        print(config.accelerator_type, sorted(config.additional_resources_per_worker))


def amounts_without_meaning():
    """GPUs need `use_gpu`, and a list of selectors has one for each worker."""
    for given in (
        {"resources_per_worker": {"GPU": 1}},
        {"num_workers": 2, "label_selector": [{"zone": "a"}]},
    ):
        print(raised(lambda given=given: ScalingConfig(**given), "ValueError", "TypeError"))


def workers_on_nodes_with_labels():
    """Workers run on nodes with the labels that are asked for, of all or of each."""
    for selector in ({"zone": "a"}, [{"zone": "a"}, {"zone": "a"}]):
        with _fitted(lambda: None, label_selector=selector) as (result, _):
            print(result.error)


def loop_returns_a_value():
    """A result has what the function returned on rank 0."""

    def loop():
        return {"rank": ray.train.get_context().get_world_rank()}

    with _fitted(loop) as (result, _):
        print(result.return_value)


def training_has_no_name():
    """A training without a name gets one, and each has another."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            DataParallelTrainer(lambda: None, run_config=RunConfig(storage_path=folder)).fit().path for _ in range(2)
        ]
        print(len({*paths}), {os.path.dirname(path) == folder for path in paths})
