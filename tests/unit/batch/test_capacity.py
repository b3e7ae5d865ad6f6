"""Which commands no node of a job can ever run."""

from mpi_runtime.batch.elastic.records import pool_of
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import LINES, read_batch
from mpi_runtime.batch.run.capacity import beyond, cannot_run
from mpi_runtime.slurm.bounds import Bounds


def test_a_job_is_long_enough_for_what_is_expected() -> None:
    """Where nothing is, for the limit and what comes after it."""
    lines = "a #batch time_limit=1h\nb #batch time_limit=1h expect=10s\nc #batch expect=2h"
    groups, problems = read_batch(lines, LINES, {})
    found = beyond(groups, Bounds(1, 0, 1 << 30, 600), 20.0)
    assert problems == []
    assert [problem.message.partition(", and")[0] for problem in found] == [
        "line-1: can never end: it may take 1 h 00 min (time_limit and grace)",
        "line-3: can never end: it may take 2 h 00 min (expect)",
    ]


def test_what_can_never_run() -> None:
    nodes = [pool_of({"CPU": 4.0, "memory": 1e9}), pool_of({"CPU": 1.0, "GPU": 2.0, "memory": 1e9})]
    assert cannot_run(Command(text="true", num_cpus=4), nodes) == ""
    assert cannot_run(Command(text="true", num_gpus=2), nodes) == ""
    assert "no node has more than CPU 4" in cannot_run(Command(text="true", num_cpus=5), nodes)
    assert cannot_run(Command(text="true", resources={"licence": 2}), [pool_of({"CPU": 1, "licence": 2})]) == ""
    assert "no node has more than licence 0" in cannot_run(Command(text="true", resources={"licence": 1}), nodes)
    bound = cannot_run(Command(text="true", num_cpus=5), nodes, "rank 1 is bound to 4 of 8 CPUs")
    assert bound.endswith("no node has more than CPU 4; rank 1 is bound to 4 of 8 CPUs")
    assert "bound" not in cannot_run(Command(text="true", num_gpus=3), nodes, "rank 1 is bound to 4 of 8 CPUs")
    assert "bound" in cannot_run(Command(text="true", ranks=9), nodes, "rank 1 is bound to 4 of 8 CPUs")
    assert "no one node has all of it" in cannot_run(Command(text="true", num_cpus=2, num_gpus=1), nodes)
