"""The long trial of `batch --allocate` in small: jobs, nodes and the process that submits die, and the end is exact."""

import pytest

from tests.slurm.cluster import cluster
from tests.slurm.long_allocate import KINDS, trial


@pytest.mark.timeout(400)
def test_each_command_is_done_though_jobs_nodes_and_the_allocator_die() -> None:
    with cluster() as slurm:  # of its own: nodes that start again belong to the test that has started them
        made = trial(slurm, 300, seed=1, cpus=2, between_s=4)
    assert {*made.strikes} >= {*KINDS[:3]}
