"""Callbacks for other libraries, with these libraries: what they log is what is reported, and models come back."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler
from tests.helpers import run_program

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("default")]
ROUNDS = 9


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 4))
    return x, (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)


def by_xgboost(config: dict[str, Any], callbacks: Any) -> tuple[list[float], Any]:
    import xgboost

    x, y = data()
    train, test = xgboost.DMatrix(x[:300], y[:300]), xgboost.DMatrix(x[300:], y[300:])
    found: dict[str, Any] = {}
    options = {"objective": "binary:logistic", "eta": config["eta"], "nthread": 1, "seed": 1}
    model = xgboost.train(
        options, train, ROUNDS, evals=[(test, "test")], evals_result=found, verbose_eval=False, callbacks=callbacks
    )
    return found["test"]["logloss"], model.predict(test)


def by_lightgbm(config: dict[str, Any], callbacks: Any) -> tuple[list[float], Any]:
    import lightgbm

    x, y = data()
    train = lightgbm.Dataset(x[:300], y[:300])
    found: dict[str, Any] = {}
    options = {"objective": "binary", "learning_rate": config["eta"], "num_threads": 1, "verbose": -1, "seed": 1}
    model = lightgbm.train(
        options,
        train,
        ROUNDS,
        valid_sets=[train.create_valid(x[300:], y[300:])],
        valid_names=["test"],
        callbacks=[lightgbm.record_evaluation(found), *callbacks],
    )
    return found["test"]["binary_logloss"], model.predict(x[300:])


def predicted(library: str, model: Any) -> Any:
    import xgboost

    x, y = data()
    return model.predict(xgboost.DMatrix(x[300:], y[300:]) if library == "xgboost" else x[300:])


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosted_trees_report_each_round_and_their_model(library: str, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    fit = by_xgboost if library == "xgboost" else by_lightgbm
    callback = getattr(tune.integration, library).TuneReportCheckpointCallback
    name = "test-logloss" if library == "xgboost" else "test-binary_logloss"

    def train(config: dict[str, Any]) -> None:
        fit(config, [callback({"loss": name}, frequency=4)])

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    (result,) = tune.Tuner(train, param_space={"eta": 0.3}, run_config=run).fit()
    losses, values = fit({"eta": 0.3}, [])
    if library == "xgboost":
        losses = [*losses, losses[-1]]  # as in Ray: the last model comes with a report of its own
    assert [one["loss"] for one in result.history] == losses
    assert len(list(Path(result.path).glob("checkpoint_*"))) == 3
    assert np.array_equal(predicted(library, callback.get_model(result.checkpoint)), values)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_bad_trials_end_within_the_training(library: str, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    fit = by_xgboost if library == "xgboost" else by_lightgbm
    callback = getattr(tune.integration, library).TuneReportCheckpointCallback

    def train(config: dict[str, Any]) -> None:
        change = lambda values: {"loss": round(sum(values.values()), 6)}  # noqa: E731
        fit(config, [callback(checkpoint_at_end=False, results_postprocessing_fn=change)])

    results = tune.Tuner(
        train,
        param_space={"eta": tune.grid_search([0.3, 0.2, 0.001, 0.0001])},
        tune_config=tune.TuneConfig(
            "loss", "min", scheduler=ASHAScheduler(max_t=9, reduction_factor=3), max_concurrent_trials=1
        ),
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    ).fit()
    reports = [one.metrics["training_iteration"] for one in results]
    assert (reports[0], *reports[2:]) == (9, 1, 1)
    assert not any(one.error for one in results)


def test_a_metric_that_the_library_has_not_is_named(tmp_path: Path) -> None:
    pytest.importorskip("xgboost")

    def train(config: dict[str, Any]) -> None:
        by_xgboost({"eta": 0.3}, [tune.integration.xgboost.TuneReportCheckpointCallback("test-auc")])

    (result,) = tune.Tuner(train, run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)).fit()
    assert re.search(r"metrics has \['test-auc'\], and the library has \['test-logloss'\]", str(result.error))


LIGHTNING = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, lightning.pytorch as pl
from mpi_runtime import tune
from mpi_runtime.tune.integration.pytorch_lightning import TuneReportCheckpointCallback

class Line(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.w = torch.nn.Parameter(torch.zeros(1))
    def loss(self, batch):
        x, y = batch
        return ((self.w * x - y) ** 2).mean()
    def training_step(self, batch, _):
        return self.loss(batch)
    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

x = torch.linspace(0, 1, 32).reshape(-1, 1)
loader = lambda: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 3 * x), batch_size=8)

def train(config):
    trainer = pl.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[TuneReportCheckpointCallback({"loss": "val_loss"}, "model.ckpt")])
    trainer.fit(Line(config["lr"]), loader(), loader())

results = tune.Tuner(
    train, param_space={"lr": tune.grid_search([0.5, 0.01])}, tune_config=tune.TuneConfig("loss", "min"),
    run_config=tune.RunConfig(name="e", storage_path=sys.argv[1], verbose=0)).fit()
assert [len(one.history) for one in results] == [4, 4], results.errors
best = results.get_best_result()
with best.checkpoint.as_directory() as folder:
    model = Line.load_from_checkpoint(folder + "/model.ckpt")
with torch.no_grad():
    again = model.loss((x, 3 * x)).item()
print(best.config, abs(again - best.metrics["loss"]) < 1e-4)
"""


def test_lightning_reports_each_validation_and_its_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("lightning")
    done = run_program(LIGHTNING, str(tmp_path), timeout=120).expect(0)
    assert done.stdout == "{'lr': 0.5} True\n"


def steps(config: dict[str, Any]) -> None:
    if config["x"] == 2:
        raise ValueError("no")
    for epoch in range(3):
        tune.report({"score": config["x"] * epoch, "more": {"nan": float("nan"), "text": "t", "inner": epoch}})


def test_mlflow_has_a_run_for_each_trial_also_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    callback = tune.integration.mlflow.MLflowLoggerCallback(
        f"file://{tmp_path}/runs", tags={"by": "test"}, save_artifact=True
    )
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, callbacks=[callback], files=["json"])
    space = {"x": tune.grid_search([0, 1, 2])}
    tune.Tuner(steps, param_space=space, run_config=run).fit()
    tune.Tuner.restore(tmp_path / "e", steps, resume_errored=True).fit()
    client = mlflow.MlflowClient(f"file://{tmp_path}/runs")
    experiment = client.get_experiment_by_name("e")
    runs = sorted(client.search_runs([experiment.experiment_id]), key=lambda one: one.data.tags["trial_name"])
    assert [one.info.status for one in runs] == ["FINISHED", "FINISHED", "FAILED"]
    assert [one.data.params for one in runs] == [{"x": "0"}, {"x": "1"}, {"x": "2"}]
    assert {one.data.tags["by"] for one in runs} == {"test"}
    second = runs[1]
    assert [(one.step, one.value) for one in client.get_metric_history(second.info.run_id, "score")] == [
        (1, 0.0), (2, 1.0), (3, 2.0)
    ]  # fmt: skip
    assert "more/inner" in second.data.metrics
    assert not {"more/nan", "more/text", "config/x"} & {*second.data.metrics}
    assert {one.path for one in client.list_artifacts(second.info.run_id)} >= {"result.json"}


WANDB = """
import sys
from mpi_runtime import tune
from tests.e2e.tune.test_integration import steps
callback = tune.integration.wandb.WandbLoggerCallback("p", mode="offline", excludes=["more"])
run = tune.RunConfig(name="e", storage_path=sys.argv[1], verbose=0, callbacks=[callback])
tune.Tuner(steps, param_space={"x": tune.grid_search([0, 1, 2])}, run_config=run).fit()
"""


def test_wandb_has_a_run_for_each_trial(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    home = {"HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
    run_program(WANDB, str(tmp_path), timeout=120, env=home).expect(0)
    files = sorted((tmp_path / "e").glob("*_0000?/wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 3
    written = files[1].read_bytes()
    assert written.count(b"score") >= 3
    assert b"inner" not in written
