"""Training with torch, on CPUs by gloo; also programs that import `ray.train`, as Ray's documentation writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import run_program

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(240)
LIMIT_S = 200.0

PROGRAM = """
import os, sys, tempfile
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ray
import ray.train.torch
from ray import train, tune
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

def train_func(config):
    points = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(points, points.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    model = ray.train.torch.prepare_model(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    begin = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path:
            model.module.load_state_dict(torch.load(os.path.join(path, "model.pt")))
            begin = torch.load(os.path.join(path, "extra.pt"))["epoch"] + 1
    for epoch in range(begin, 4):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for batch, wanted in loader:
            loss = nn.functional.mse_loss(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as path:
            made = None
            if train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(path, "model.pt"))
                torch.save({"epoch": epoch}, os.path.join(path, "extra.pt"))
                made = Checkpoint.from_directory(path)
            train.report({"loss": loss.item(), "epoch": epoch, "begin": begin, "batches": len(loader),
                          "device": str(ray.train.torch.get_device()), "port": os.environ["MASTER_PORT"],
                          "norm": model.module.weight.detach().norm()}, checkpoint=made)
        if epoch == 1 and not begin and config["fails"]:
            raise RuntimeError("on purpose")

def trainer(folder, fails, failures):
    kept = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    return TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.2, "fails": fails},
        torch_config=TorchConfig(backend="gloo", timeout_s=60),
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=folder, checkpoint_config=kept,
                             failure_config=FailureConfig(max_failures=failures)),
    )

ray.init(num_cpus=4)
folder = sys.argv[1]
first, second = [trainer(folder, False, 0).fit() for _ in range(2)]
print(first.metrics["loss"] < 0.1, first.metrics["batches"], first.metrics["device"], len(first.best_checkpoints))
print(first.metrics["port"] != second.metrics["port"])
with first.checkpoint.as_directory() as path:
    weight = torch.load(os.path.join(path, "model.pt"))["weight"]
print(abs(float(weight.norm()) - first.metrics["norm"]) < 1e-6)
failed = trainer(folder, True, 1).fit()
print([one["epoch"] for one in failed.history], failed.metrics["begin"])
grid = tune.Tuner(
    trainer(folder, False, 0),
    param_space={"train_loop_config": {"lr": tune.grid_search([0.01, 0.2])}},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(storage_path=folder, verbose=0),
).fit()
print(grid.num_errors, grid.get_best_result().config)
"""


def test_a_program_for_ray_train(tmp_path: Path) -> None:
    source = "import mpi_runtime; mpi_runtime.install_as_ray()\n" + PROGRAM
    completed = run_program(source, str(tmp_path), timeout=LIMIT_S).expect(0)
    lines = [line for line in completed.stdout.splitlines() if not line.startswith(("1 trial", "results:"))]
    assert lines == [
        "True 4 cpu 2",
        "True",
        "True",
        "[0, 1, 2, 3] 2",
        "0 {'train_loop_config': {'lr': 0.2}}",
    ]
