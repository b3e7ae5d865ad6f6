"""Which commands no node of a job can ever run."""

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.run.capacity import cannot_run


def test_what_can_never_run() -> None:
    nodes = [{"CPU": 4.0, "memory": 1e9}, {"CPU": 1.0, "GPU": 2.0, "memory": 1e9}]
    assert cannot_run(Command(text="true", num_cpus=4), nodes) == ""
    assert cannot_run(Command(text="true", num_gpus=2), nodes) == ""
    assert "no node has more than CPU 4" in cannot_run(Command(text="true", num_cpus=5), nodes)
    assert cannot_run(Command(text="true", resources={"licence": 2}), [{"CPU": 1, "licence": 2}]) == ""
    assert "no node has more than licence 0" in cannot_run(Command(text="true", resources={"licence": 1}), nodes)
    assert "no one node has all of it" in cannot_run(Command(text="true", num_cpus=2, num_gpus=1), nodes)
