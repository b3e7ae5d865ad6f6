"""Trainers of boosted trees: all workers grow the same trees, with the rows of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import train, tune

np = pytest.importorskip("numpy")
pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")
pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("default"), pytest.mark.timeout(180)]


def data() -> Any:
    x = np.random.default_rng(1).normal(size=(400, 4))
    return x, (x[:, 0] + x[:, 1] > 0).astype(int)


def by_xgboost() -> tuple[int, list[float]]:
    import xgboost

    from mpi_runtime import train, tune

    shard = train.get_dataset_shard("train")
    rows = xgboost.DMatrix(shard[:, :4], shard[:, 4])
    found: dict[str, Any] = {}
    options = {"objective": "binary:logistic", "nthread": 1, "seed": 1}
    callback = tune.integration.xgboost.TuneReportCheckpointCallback()
    xgboost.train(
        options, rows, 5, evals=[(rows, "rows")], evals_result=found, verbose_eval=False, callbacks=[callback]
    )
    return xgboost.collective.get_world_size(), found["rows"]["logloss"]


def by_lightgbm() -> tuple[int, list[float]]:
    import lightgbm

    from mpi_runtime import train, tune
    from mpi_runtime.train.lightgbm import get_network_params

    shard = train.get_dataset_shard("train")
    rows, found, network = lightgbm.Dataset(shard[:, :4], shard[:, 4]), {}, get_network_params()  # type: ignore[var-annotated]
    options = {"objective": "binary", "num_threads": 1, "verbose": -1, "seed": 1, **network}
    callback = tune.integration.lightgbm.TuneReportCheckpointCallback()
    recorded = lightgbm.record_evaluation(found)
    lightgbm.train(options, rows, 5, valid_sets=[rows], valid_names=["rows"], callbacks=[recorded, callback])
    return network["num_machines"], found["rows"]["binary_logloss"]  # type: ignore[return-value]


def trained(library: str, workers: int, path: Path) -> train.Result:
    kind = train.xgboost.XGBoostTrainer if library == "xgboost" else train.lightgbm.LightGBMTrainer
    x, y = data()
    trainer = kind(
        by_xgboost if library == "xgboost" else by_lightgbm,
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(name="t", storage_path=path, verbose=0),
        datasets={"train": np.column_stack([x, y])},
    )
    return trainer.fit()


def ends_later() -> int:
    """Rank 1 has more to do after what all do together, such as to write a file."""
    import gc
    import time

    import xgboost

    from mpi_runtime import train

    gc.set_threshold(1)  # what rank 0 has no use for goes at once
    time.sleep(2.0 * train.get_context().get_world_rank())
    return xgboost.collective.get_world_size()  # type: ignore[no-any-return]


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_the_model_has_seen_the_rows_of_all_workers(library: str, tmp_path: Path) -> None:
    result = trained(library, 2, tmp_path)
    size, losses = result.return_value
    assert size == 2
    assert losses == sorted(losses, reverse=True)
    assert len(result.best_checkpoints) == 1
    callback = getattr(tune.integration, library).TuneReportCheckpointCallback
    model = callback.get_model(result.checkpoint)
    x, y = data()
    if library == "xgboost":
        import xgboost

        x = xgboost.DMatrix(x)
    # One worker alone has half of the rows: the trees of both divide all of them well.
    assert ((model.predict(x) > 0.5) == y).mean() > 0.9


def test_an_error_of_one_worker_ends_the_training(tmp_path: Path) -> None:
    def fails() -> None:
        if train.get_context().get_world_rank() == 1:
            raise ValueError("on purpose")

    run = train.RunConfig(name="t", storage_path=tmp_path, verbose=0)
    trainer = train.xgboost.XGBoostTrainer(fails, scaling_config=train.ScalingConfig(num_workers=2), run_config=run)
    with pytest.raises(train.WorkerGroupError, match="on purpose"):
        trainer.fit()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_wrong_arguments_are_named(library: str) -> None:
    kind: Any = train.xgboost.XGBoostTrainer if library == "xgboost" else train.lightgbm.LightGBMTrainer
    with pytest.raises(TypeError, match=f"{library}_config must be"):
        kind(print, **{f"{library}_config": 3})
    with pytest.raises(DeprecationWarning, match="train_loop_per_worker"):
        kind(print, num_boost_round=3)
    with pytest.raises(DeprecationWarning, match="get_model"):
        kind.get_model(None)


def test_there_are_no_addresses_outside_of_a_training() -> None:
    with pytest.warns(UserWarning, match="outside of the workers"):
        assert train.lightgbm.get_network_params() == {}


def test_a_worker_of_xgboost_that_ends_later_can_leave(tmp_path: Path) -> None:
    """It leaves at a thread of rank 0, which waits for it."""
    trainer = train.xgboost.XGBoostTrainer(
        ends_later,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="later", storage_path=tmp_path, verbose=0),
    )
    assert trainer.fit().return_value == 2
