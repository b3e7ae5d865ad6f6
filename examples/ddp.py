"""One model, trained by several processes with DistributedDataParallel: on CPUs by gloo, on GPUs by NCCL.

python examples/ddp.py
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mpi_runtime
from mpi_runtime import train
from mpi_runtime.train.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model

EPOCHS = 12


def data(seed: int, count: int) -> TensorDataset:
    """Points in a plane, and whether they lie in a ring."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    distance = points.norm(dim=1)
    return TensorDataset(points, ((distance > 0.4) & (distance < 0.8)).float().unsqueeze(1))


def train_loop(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    loader = prepare_data_loader(DataLoader(data(1, 4096), batch_size=64, shuffle=True))
    model = prepare_model(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    begin = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:  # this attempt continues an earlier one
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"), map_location=get_device())
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"] + 1
    points, labels = (tensor.to(get_device()) for tensor in data(2, 1000).tensors)
    for epoch in range(begin, EPOCHS):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for batch, wanted in loader:
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(batch), wanted).backward()  # averages the gradients
            optimizer.step()
        with torch.no_grad():
            accuracy = ((model(points) > 0) == (labels > 0)).float().mean()
        with tempfile.TemporaryDirectory() as folder:
            made = None
            if train.get_context().get_world_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, Path(folder, "state.pt"))
                made = train.Checkpoint.from_directory(folder)
            train.report({"accuracy": accuracy, "batches": len(loader)}, checkpoint=made)


def main() -> None:
    mpi_runtime.init()
    gpus = int(mpi_runtime.cluster_resources().get("GPU", 0))
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"lr": 0.01},
        scaling_config=train.ScalingConfig(num_workers=min(gpus, 4) or 2, use_gpu=gpus > 0),
        run_config=train.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0),
    )
    result = trainer.fit()
    workers = trainer.scaling_config.num_workers
    print(f"{workers} workers with {result.metrics['batches']} batches each in an epoch")
    print(f"accuracy after {EPOCHS} epochs: {result.metrics['accuracy']:.3f}")
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        print(f"the checkpoint has {sorted(torch.load(Path(folder, 'state.pt')))}")


if __name__ == "__main__":
    main()
