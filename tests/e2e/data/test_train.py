"""The workers of a training share the stream of a data set."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from mpi_runtime import data, train, tune

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2}


def test_workers_share_a_data_set(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        shard = train.get_dataset_shard("train")
        for epoch in range(2):
            rows = [row["id"] for row in shard.iter_rows()]
            rank = train.get_context().get_world_rank()
            (tmp_path / f"{epoch}-{rank}").write_text(" ".join(map(str, rows)))
            train.report({"rows": len(rows)})

    ds = data.range(100, override_num_blocks=8).map(lambda row: {"id": row["id"] + 1})
    result = train.DataParallelTrainer(
        loop,
        train_loop_config={},
        datasets={"train": ds},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    assert result.metrics is not None
    assert result.metrics["rows"] == 50
    for epoch in range(2):
        rows = [int(n) for rank in range(2) for n in (tmp_path / f"{epoch}-{rank}").read_text().split()]
        assert sorted(rows) == list(range(1, 101))


def test_workers_have_the_settings_of_the_program(tmp_path: Path) -> None:
    limits = data.ExecutionResources.for_limits(object_store_memory=8 << 20)
    for_train = data.ExecutionOptions(resource_limits=limits, preserve_order=True)

    def loop(config: dict[str, Any]) -> None:
        settings = data.DataContext.get_current()
        assert settings.get_config("kept") == "here"
        assert settings.max_errored_blocks == 3
        shards = {name: train.get_dataset_shard(name) for name in ("train", "valid")}
        options = {name: shard.get_context().execution_options for name, shard in shards.items()}
        assert options["train"] == for_train
        assert options["train"].budget == 8 << 20
        assert options["valid"] == train.DataConfig.default_ingest_options()
        assert options["valid"].is_resource_limits_default()
        assert not options["train"].is_resource_limits_default()
        train.report({name: sum(1 for _ in shard.iter_rows()) for name, shard in shards.items()})

    before = data.DataContext.get_current().copy()
    try:
        settings = data.DataContext.get_current()
        settings.set_config("kept", "here")
        settings.max_errored_blocks = 3
        result = train.DataParallelTrainer(
            loop,
            train_loop_config={},
            datasets={"train": data.range(1000), "valid": data.range(100)},
            dataset_config=train.DataConfig(["train"], execution_options={"train": for_train}),
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
        ).fit()
    finally:
        before.enter()
    assert result.metrics == {"train": 500, "valid": 100}  # `valid` is not split


def test_a_stream_that_is_shared_has_the_settings_of_its_program() -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 5:
            raise ValueError("five")
        return row

    ds = data.range(8, override_num_blocks=8).map(fails)
    ds.context.max_errored_blocks = 1
    (part,) = ds.streaming_split(1)
    assert part.get_context().max_errored_blocks == 1
    left: list[Any] = [row["id"] for row in part.iter_rows()]
    assert sorted(left) == [0, 1, 2, 3, 4, 6, 7]
    assert sum(1 for _ in ds.iter_rows()) == 7
    with pytest.raises(data.BlockError):
        list(data.Dataset.copy(data.range(8).map(fails)).iter_rows())


def test_which_data_sets_are_split_is_checked() -> None:
    given: list[Any] = ["hello", {}, 3]
    for wrong in given:
        with pytest.raises(TypeError, match="`datasets_to_split` should be"):
            train.DataConfig(datasets_to_split=wrong)
    with pytest.raises(TypeError, match="dataset_config must be a DataConfig"):
        train.DataParallelTrainer(print, dataset_config="all")  # type: ignore[arg-type]


def test_a_class_of_the_program_chooses_the_parts(tmp_path: Path) -> None:
    class Twice(train.DataConfig):
        def configure(self, datasets: Any, world_size: int, *rest: Any) -> Any:
            return [{"train": datasets["train"].iterator()} for _ in range(world_size)]

    def loop(config: dict[str, Any]) -> None:
        train.report({"rows": sum(1 for _ in train.get_dataset_shard("train").iter_rows())})

    result = train.DataParallelTrainer(
        loop,
        train_loop_config={},
        datasets={"train": data.range(40)},
        dataset_config=Twice(),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    assert result.metrics == {"rows": 40}


def test_trials_that_run_at_once_have_streams_of_their_own(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        for _ in range(2):
            rows = 0
            for _ in train.get_dataset_shard("train").iter_rows():
                rows += 1
                time.sleep(config["nap"])
            train.report({"rows": rows})

    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config={},
        datasets={"train": data.range(60, override_num_blocks=6)},
        scaling_config=train.ScalingConfig(num_workers=1),
    )
    results = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"nap": tune.grid_search([0.01, 0.02])}},
        run_config=tune.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    assert [[report["rows"] for report in result.history] for result in results] == [[60, 60], [60, 60]]


def test_a_training_that_fails_begins_again_with_all_rows(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        rows = 0
        for _ in train.get_dataset_shard("train").iter_rows():
            rows += 1
            if rows == 3 and train.get_context().get_world_rank() == 1 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                os._exit(1)
        train.report({"rows": rows})

    result = train.DataParallelTrainer(
        loop,
        train_loop_config={},
        datasets={"train": data.range(40, override_num_blocks=8)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=train.FailureConfig(max_failures=1)
        ),
    ).fit()
    assert (tmp_path / "failed").exists()
    assert result.metrics == {"rows": 20}


def test_a_training_in_the_process_of_the_program_has_all_rows(tmp_path: Path) -> None:
    counts: list[int] = []
    result = train.DataParallelTrainer(
        lambda: counts.append(sum(1 for _ in train.get_dataset_shard("train").iter_rows())),
        datasets={"train": data.range(30)},
        scaling_config=train.ScalingConfig(num_workers=0),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    assert counts == [30]
    assert result.error is None


def test_workers_and_trials_whose_processes_are_killed(tmp_path: Path) -> None:
    """The attempt after it has all rows, once."""

    def loop(config: dict[str, Any]) -> None:
        rank = train.get_context().get_world_rank()
        ids = []
        for row in train.get_dataset_shard("train").iter_rows():
            ids.append(row["id"])
            if rank == 1 and len(ids) == 25 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / f"rank{rank}").write_text(" ".join(map(str, ids)))
        train.report({"rows": len(ids)})

    result = train.DataParallelTrainer(
        loop,
        train_loop_config={},
        datasets={"train": data.range(100, override_num_blocks=20)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=train.FailureConfig(max_failures=1)
        ),
    ).fit()
    assert (tmp_path / "killed").exists()
    assert result.metrics is not None
    assert result.metrics["rows"] == 50
    assert sorted(int(n) for rank in range(2) for n in (tmp_path / f"rank{rank}").read_text().split()) == [*range(100)]

    def trial(config: dict[str, Any]) -> None:
        total = config["rows"].map(lambda row: {"id": row["id"] * config["times"]}).sum("id")
        mark = tmp_path / f"trial{config['times']}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        tune.report({"total": total})

    results = tune.Tuner(
        trial,
        param_space={"times": tune.grid_search([1, 2]), "rows": data.range(100)},
        run_config=tune.RunConfig(
            storage_path=str(tmp_path / "trials"), failure_config=tune.FailureConfig(max_failures=1)
        ),
    ).fit()
    assert sorted(result.metrics["total"] for result in results if result.metrics) == [4950, 9900]
