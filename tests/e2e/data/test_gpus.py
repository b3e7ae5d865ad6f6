"""Stages with GPUs: each actor sees a device of its own. The machine is described (`tests/fake_nvml`)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from tests.fake_nvml.machines import a100x4, shown
from tests.helpers import run_program

PROGRAM = """
import os, time
import mpi_runtime
from mpi_runtime import data

class Model:
    def __init__(self):
        self.device, = mpi_runtime.get_gpu_ids()
        assert os.environ["CUDA_VISIBLE_DEVICES"].count(",") == 0

    def __call__(self, batch):
        time.sleep(0.05)
        rows = len(batch["id"])
        return {"id": batch["id"], "device": [self.device] * rows, "pid": [os.getpid()] * rows}

def seen(batch):
    assert len(mpi_runtime.get_gpu_ids()) == 2
    return batch

with mpi_runtime.init(num_cpus=2):
    data.DataContext.get_current().enable_progress_bars = False
    for actors, devices in ((4, 4), (6, 4), (2, 2)):  # two wait for devices
        rows = data.range(120, override_num_blocks=60).map_batches(Model, num_gpus=1, concurrency=actors).take_all()
        assert sorted(row["id"] for row in rows) == list(range(120))
        at = {row["pid"]: row["device"] for row in rows}
        assert len(set(at.values())) == devices, at
    assert data.range(20).map_batches(seen, num_gpus=2).count() == 20
    while mpi_runtime.available_resources().get("GPU") != 4:  # their processes end
        time.sleep(0.1)
    print("well")
"""


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_each_actor_has_a_device(ranks: int | None) -> None:
    assert run_program(PROGRAM, ranks=ranks, env=shown(a100x4())).expect().stdout == "well\n"
