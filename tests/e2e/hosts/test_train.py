"""A training with torch on two hosts: one process group by gloo, and one checkpoint of files from both."""

from __future__ import annotations

import pytest

from tests.hosts.lab import lab, missing

pytest.importorskip("torch")
pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(240)]
PROGRAM = """
import os, sys, tempfile
import torch
import mpi_runtime
from mpi_runtime import train
from mpi_runtime.train.torch import TorchTrainer, prepare_data_loader, prepare_model

def loop(config):
    torch.manual_seed(1)
    points = torch.randn(64, 3)
    data = torch.utils.data.TensorDataset(points, points.sum(1, keepdim=True))
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=8))
    model = prepare_model(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(3):
        for batch, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        hosts, weights = [None] * 2, [None] * 2
        torch.distributed.all_gather_object(hosts, os.uname().nodename)
        torch.distributed.all_gather_object(weights, model.module.weight.tolist())
        with tempfile.TemporaryDirectory() as path:
            rank = train.get_context().get_world_rank()
            open(f"{path}/rank{rank}", "w").close()
            train.report({"loss": loss.item(), "hosts": sorted(hosts), "equal": weights[0] == weights[1]},
                         checkpoint=train.Checkpoint.from_directory(path))

mpi_runtime.init(num_cpus=1)
result = TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
                      run_config=train.RunConfig(storage_path=sys.argv[1], verbose=0)).fit()
print(result.metrics["hosts"], result.metrics["equal"], result.metrics["loss"] < 1, len(result.history))
print(sorted(os.listdir(result.checkpoint.path)))
"""


def test_two_hosts_train_one_model() -> None:
    if reason := missing():
        pytest.skip(reason)
    with lab(2) as hosts:
        folder = str(hosts.place / "results")
        with hosts.mpirun(PROGRAM, folder, ranks={"host1": 1, "host2": 1}) as program:
            completed = program.finish(timeout=200).expect(0)
    assert completed.stdout.splitlines() == ["['host1', 'host2'] True True 3", "['rank0', 'rank1']"]
