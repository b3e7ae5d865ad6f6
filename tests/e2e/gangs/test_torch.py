"""Torch in a gang: members find each other by the variables of torchrun. A gang with a process group is not reused."""

from __future__ import annotations

import pytest

from tests.helpers import run_program

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(180)

SOURCE = """
import os
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote(num_ranks=2, num_returns="ranks")
def train(comm):
    import torch
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    loss = model(torch.full((4, 3), 1.0 + distributed.get_rank())).sum()
    loss.backward()
    gradient = next(model.parameters()).grad
    return distributed.get_world_size(), gradient.tolist(), os.getpid(), os.environ["MASTER_PORT"]

first, again = ray.get(train.remote()), ray.get(train.remote())
print([one[:2] for one in first])
print(first[0][2] != again[0][2], first[0][3] != again[0][3])
"""


def test_torch_finds_its_group_in_a_gang() -> None:
    completed = run_program(SOURCE, timeout=120).expect(0)
    assert completed.stdout.splitlines() == ["[(2, [[6.0, 6.0, 6.0]]), (2, [[6.0, 6.0, 6.0]])]", "True True"]
