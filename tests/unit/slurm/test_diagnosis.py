"""What is wrong with a launch is told from what ranks see and what was granted."""

import dataclasses

import pytest

from mpi_runtime.slurm.allocation import Allocation
from mpi_runtime.slurm.diagnosis import Seen, Usable, cannot_start, diagnose, slow_network, unused
from mpi_runtime.slurm.jobs import Granted

JOB = Allocation("slurm", "1", ("n1", "n2"), (2, 2), (4, 4))
CPUS = {"n1": Granted(4, 0, ()), "n2": Granted(4, 0, ())}
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
        ("none", [seen(0, "n1")], "started as a single process: no rank runs on n2", "mpi-runtime batch -n 2 FILE"),
        ("openmpi", RIGHT[:2], "no rank runs on n2, though the job has them", "mpirun --map-by ppr:1:node"),
        ("mpich", RIGHT[:2], "no rank runs on n2", "mpirun -ppn 1"),
        ("slurm-pmi2", RIGHT[:2], "no rank runs on n2", "srun -N 2 -n 2"),
    ],
)
def test_nodes_without_ranks(kind: str, ranks: list[Seen], what: str, cure: str) -> None:
    (found,) = diagnose(kind, ranks, JOB, NODES)
    assert what in found.what
    assert cure in found.cure


def test_a_heterogeneous_job_whose_ranks_are_all_in_its_first_part() -> None:
    job = dataclasses.replace(JOB, parts=2)
    for kind, mpi in (("openmpi", "pmix"), ("mpich", "pmi2")):
        (found,) = diagnose(kind, RIGHT[:2], job, NODES)
        assert "no rank runs on n2" in found.what
        assert "mpirun knows its first part alone" in found.what
        assert found.cure == f"srun --het-group=0,1 --mpi={mpi} --cpu-bind=none python app.py"


def test_ranks_bound_to_cores() -> None:
    bound = [seen(0, "n1", (0,)), seen(1, "n1", (1,)), seen(2, "n2", (0, 1, 2, 3))]
    (found,) = diagnose("openmpi", bound, JOB, CPUS)
    assert found.what == "on n1 the rank that runs calls is bound to 1 of 4 CPUs, and so are all calls there"
    assert found.cure == "mpirun --bind-to none ..."
    spread = [seen(rank, "n1", (rank - 1,)) for rank in range(1, 5)]
    assert diagnose("slurm-pmix", [seen(0, "n2"), *spread], JOB, CPUS) == [], "together they have all"
    (found,) = diagnose("mpich", [seen(0, "pc", (0,)), seen(1, "pc", (1,)), seen(2, "pc", (2,))], Allocation(), {})
    assert "the 2 ranks that run calls are bound to 2 of 8 CPUs" in found.what
    small = [seen(0, "n1", (0, 1), host_cpus=2), seen(1, "n2")]
    assert diagnose("openmpi", small, JOB, CPUS) == [], "the node has no more"


def test_a_rank_that_only_schedules_counts_for_nothing() -> None:
    """Its core and its GPU are not those of calls."""
    bound = [seen(0, "n1", (0, 1, 2), ("0",)), seen(1, "n1", (3,), ("1",)), seen(2, "n2", gpus=("2", "3"))]
    cpus, gpus = diagnose("slurm-pmix", bound, JOB, NODES)
    assert "bound to 1 of 4 CPUs" in cpus.what
    assert gpus.what == "on n1 no rank that runs calls is shown GPUs 0, though the job has them"
    assert "without --gpus-per-task and --gpu-bind" in gpus.cure
    assert diagnose("slurm-pmix", [seen(0, "n1"), seen(1, "n2")], JOB, CPUS) == [], "alone on its node it runs calls"


def test_more_ranks_than_cpus() -> None:
    crowd = [seen(rank, "n1", host_cpus=4) for rank in range(16)]
    (found,) = diagnose("openmpi", crowd, Allocation(), {})
    assert found.what == "on n1 15 ranks share 4 CPUs"
    assert "mpi-runtime run -n 1 app.py" in found.cure
    absent, found = diagnose("openmpi", crowd, JOB, CPUS)
    assert "no rank runs on n2" in absent.what
    assert "mpi-runtime run -n 2 app.py" in found.cure, "one cure for both: it is not to leave n2 unused"


def test_limits_of_a_host() -> None:
    tight = [Seen(rank, "n1", (0, 1), 2, 1 << 30, None, shared_memory=8 << 20, descriptors=20) for rank in range(2)]
    room, files = diagnose("openmpi", tight, Allocation(), {})
    assert room.what == "on n1 /dev/shm has 8 MiB, in which MPI's ranks of a host exchange messages"
    assert files.what == "on n1 a process may have 20 files open (ulimit -Hn), and a rank may need 72"
    assert "ulimit -n 72" in files.cure
    alone = Seen(0, "n1", (0, 1), 2, 1 << 30, None, shared_memory=8 << 20, descriptors=4096)
    assert diagnose("none", [alone], Allocation(), {}) == []


def test_limits_with_which_mpi_is_not_started() -> None:
    few, little = (
        Seen(0, "n1", (0,), 2, 1, None, descriptors=20),
        Seen(0, "n1", (0,), 2, 1, None, shared_memory=8 << 20),
    )
    found = cannot_start(few, 1)
    assert found is not None
    assert "20 files open" in found.what
    found = cannot_start(little, 2)
    assert found is not None
    assert "/dev/shm has 8 MiB" in found.what
    assert cannot_start(little, 1) is None, "a rank that is alone on its host needs none"
    assert cannot_start(Seen(0, "n1", (0,), 2, 1, None, descriptors=64), 2) is None


def test_memory_that_the_job_does_not_have() -> None:
    granted = {"n1": Granted(4, 700 << 20, ())}
    (found,) = diagnose("none", [seen(0, "n1", host_cpus=4)], Allocation("slurm", "1", ("n1",)), granted)
    assert found.what == "on n1 1024 MiB of memory are counted, but the job has 700 MiB there"
    assert found.cure.startswith(f"init(memory={700 << 20})")


def test_gpus_that_are_not_found() -> None:
    none = [Seen(0, "n1", (0, 1, 2, 3), 4, 1 << 30, ("0", "1"), gpus_found=0), RIGHT[2]]
    (found,) = diagnose("openmpi", none, JOB, NODES)
    assert found.what == "on n1 the job has 2 GPUs, and none was found"


def test_what_may_be_meant_so_is_a_note() -> None:
    part = {"n1": NODES["n1"], "n2": Granted(4, 0, ())}
    (found,) = diagnose("openmpi", [RIGHT[0], seen(1, "n2")], JOB, part)
    assert (found.what, found.is_note) == ("the job has GPUs on n1 (2), and none on n2", True)
    slow = slow_network("n1", "n2", 0.0042)
    assert slow is not None
    assert slow.is_note
    assert "from n1 to n2 takes 4.2 ms" in slow.what
    assert slow_network("n1", "n2", 50e-6) is None


def said(
    kind: str,
    size: int,
    hosts: dict[str, tuple[int | None, int | None]],
    env: dict[str, str] | None = None,
    host_cpus: int = 8,
) -> str:
    usable = {host: Usable(*numbers) for host, numbers in hosts.items()}
    return unused(kind, size, JOB, env or {}, usable, host_cpus)


def test_what_init_says_of_nodes_that_are_not_used() -> None:
    assert said("openmpi", 2, {"n1": (4, 0), "n2.site": (4, 0)}) == ""
    assert said("none", 1, {"n1": (4, 0)}) == (
        "the program was started as a single process: no rank runs on n2, though the job has them "
        "(fix: mpi-runtime run -n 2 app.py; for a batch: mpi-runtime batch -n 2 FILE)"
    )
    assert "mpirun --map-by ppr:1:node" in said("openmpi", 2, {"n1": (4, 0)})
    step = {"SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "n1"}
    assert said("none", 1, {"n1": (4, 0)}, step) == "", "srun was told to use one node"
    shell = {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NODELIST": "n1"}
    assert "no rank runs on n2" in said("none", 1, {"n1": (4, 0)}, shell), "a shell of salloc"


def test_what_init_says_of_cpus_and_gpus_that_are_not_used() -> None:
    text = said("openmpi", 2, {"n1": (1, 0), "n2": (1, 0)})
    assert text.startswith("on n1 (and 1 more) calls use 1 of the job's 4 CPUs, since the ranks are bound (")
    assert "--bind-to none" in text
    assert said("openmpi", 2, {"n1": (None, 0), "n2": (None, 0)}) == "", "a number was stated"
    assert said("openmpi", 2, {"n1": (2, 0), "n2": (2, 0)}, host_cpus=2) == "", "hosts have no more"
    each = {"SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS_PER_NODE": "a100:2"}
    assert said("openmpi", 2, {"n1": (4, 2), "n2": (4, 2)}, each) == ""
    assert "on n2 calls can use 1 of the job's 2 GPUs (fix" in said("openmpi", 2, {"n1": (4, 2), "n2": (4, 1)}, each)
    assert "on n1 (and 1 more) calls can use 0 of" in said("openmpi", 2, {"n1": (4, 0), "n2": (4, 0)}, each)
    for more, cure in (
        ({"MPI_RUNTIME_FIND_GPUS": "never"}, "unset MPI_RUNTIME_FIND_GPUS"),
        ({"SLURM_GPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0"}, "request --gpus-per-node in place of"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "unset CUDA_VISIBLE_DEVICES, which is ''"),
        ({}, "see whether nvidia-smi, rocm-smi or xpu-smi lists them"),
    ):
        assert f"GPUs (fix: {cure}" in said("openmpi", 2, {"n1": (4, 0), "n2": (4, 0)}, {**each, **more})
    assert said("openmpi", 2, {"n1": (4, None), "n2": (4, None)}, each) == "", "nobody has looked"
    any_node = {"SLURM_GPUS_ON_NODE": "2"}
    assert said("openmpi", 2, {"n1": (4, 2), "n2": (4, 0)}, any_node) == "", "of the second nobody knows"


def test_gpus_of_which_nobody_says_whose_they_are() -> None:
    unknown = "Slurm has given the job 2 of the 4 GPUs to be seen. Start without --gpu-bind=none"
    unbound = [RIGHT[0], Seen(1, "n2", (0, 1, 2, 3), 8, 1 << 30, None, unknown)]
    (found,) = diagnose("slurm-pmix", unbound, JOB, NODES)
    assert found.what == f"on n2 no GPU is used: {unknown}"
    assert found.cure == "srun --mpi=pmix --gpus-per-node=2 ..., without --gpu-bind=none"
    silent = [RIGHT[0], Seen(1, "n2", (0, 1, 2, 3), 8, 1 << 30, ("2", "3"), "NVML did not answer within 20 s")]
    (found,) = diagnose("slurm-pmix", silent, JOB, NODES)
    assert found.cure == "mpi-runtime gpus, started by the same line, shows more"
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
    assert found.what == "on n1 no rank that runs calls is shown GPUs 1, though the job has them"
    assert "--gpus-per-node" in found.cure
    (found,) = diagnose("openmpi", [seen(0, "n1", gpus=()), seen(1, "n1", gpus=()), RIGHT[2]], JOB, NODES)
    assert found.cure == (
        "unset that of CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK which is empty, if the job "
        "script sets it"
    )
