"""What is wrong with a launch is told from what ranks see and what was granted."""

import pytest

from mpi_runtime.cli.diagnosis import Seen, diagnose
from mpi_runtime.slurm.allocation import Allocation
from mpi_runtime.slurm.jobs import Granted

JOB = Allocation("slurm", "1", ("n1", "n2"), (2, 2), (4, 4))
NODES = {"n1": Granted(4, 0, (0, 1)), "n2": Granted(4, 0, (2, 3))}


def seen(
    rank: int, host: str, cpus: tuple[int, ...] = (0, 1, 2, 3), gpus: tuple[str, ...] | None = None, host_cpus: int = 8
) -> Seen:
    return Seen(rank, host, cpus, host_cpus, 1 << 30, gpus)


RIGHT = [seen(0, "n1", gpus=("0", "1")), seen(1, "n1.site", gpus=("0", "1")), seen(2, "n2", gpus=("2", "3"))]


def test_nothing_is_wrong() -> None:
    assert diagnose("slurm-pmix", RIGHT, JOB, NODES) == []
    assert diagnose("none", [seen(0, "laptop")], Allocation(), {}) == []
    ids = [seen(0, "n1", gpus=("GPU-1",)), seen(1, "n2", gpus=("MIG-2",))]
    assert diagnose("openmpi", ids, JOB, NODES) == [], "ids that cannot be compared"


@pytest.mark.parametrize(
    ("kind", "ranks", "what", "cure"),
    [
        ("none", [seen(0, "n1")], "started as a single process: no rank runs on n2", "mpi-runtime run -n 3 app.py"),
        ("openmpi", RIGHT[:2], "no rank runs on n2, though the job has them", "mpirun --map-by ppr:1:node"),
        ("mpich", RIGHT[:2], "no rank runs on n2", "mpirun -ppn 1"),
        ("slurm-pmi2", RIGHT[:2], "no rank runs on n2", "srun -N 2 -n 3"),
    ],
)
def test_nodes_without_ranks(kind: str, ranks: list[Seen], what: str, cure: str) -> None:
    (found,) = diagnose(kind, ranks, JOB, NODES)
    assert what in found.what
    assert cure in found.cure


def test_ranks_bound_to_cores() -> None:
    bound = [seen(0, "n1", (0,)), seen(1, "n1", (1,)), seen(2, "n2", (0, 1, 2, 3))]
    (found,) = diagnose("openmpi", bound, JOB, NODES)
    assert found.what == "on n1 its 2 ranks are bound to 2 of 4 CPUs, and so is all that runs there"
    assert found.cure == "mpirun --bind-to none ..."
    spread = [seen(rank, "n1", (rank,)) for rank in range(4)]
    assert diagnose("slurm-pmix", [*spread, seen(4, "n2")], JOB, NODES) == [], "together they have all"
    (found,) = diagnose("mpich", [seen(0, "pc", (0,)), seen(1, "pc", (1,))], Allocation(), {})
    assert "2 of 8 CPUs" in found.what
    small = [seen(0, "n1", (0, 1), host_cpus=2), seen(1, "n2")]
    assert diagnose("openmpi", small, JOB, NODES) == [], "the node has no more"


def test_gpus_of_which_nobody_says_whose_they_are() -> None:
    unknown = "Slurm has given the job 2 of the 4 GPUs to be seen. Start without --gpu-bind=none"
    unbound = [RIGHT[0], Seen(1, "n2", (0, 1, 2, 3), 8, 1 << 30, None, unknown)]
    (found,) = diagnose("slurm-pmix", unbound, JOB, NODES)
    assert found.what == f"on n2 no GPU is used: {unknown}"
    assert found.cure == "srun --mpi=pmix --gpus-per-node=2 ..., without --gpu-bind=none"
    silent = [RIGHT[0], Seen(1, "n2", (0, 1, 2, 3), 8, 1 << 30, ("2", "3"), "NVML did not answer within 20 s")]
    (found,) = diagnose("slurm-pmix", silent, JOB, NODES)
    assert found.cure == "mpi-runtime gpus, started by the same line, says more"
    without = {"n1": Granted(4, 0, ()), "n2": Granted(4, 0, ())}
    assert diagnose("slurm-pmix", silent, JOB, without) == [], "the job has none"


def test_gpus_that_the_launcher_hides_or_makes_up() -> None:
    handed_on = [*RIGHT[:2], seen(2, "n2", gpus=("0", "1"))]
    (found,) = diagnose("mpich", handed_on, JOB, NODES)
    assert found.what == "on n2 ranks are shown GPUs 0, 1, but the job has 2, 3 there"
    assert "-genvnone" in found.cure
    assert diagnose("mpich", handed_on, JOB, NODES, confined=True) == [], "numbered from 0 on each node"
    hidden = [seen(0, "n1", gpus=("0",)), seen(1, "n1", gpus=("0",)), RIGHT[2]]
    (found,) = diagnose("openmpi", hidden, JOB, NODES)
    assert found.what == "on n1 no rank is shown GPUs 1, though the job has them"
    assert "--gpus-per-node" in found.cure
