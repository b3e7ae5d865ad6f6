"""The batch scripts that we ship, each submitted as it is; all side by side on one cluster."""

import pytest

from tests.helpers import ROOT, wait_until
from tests.slurm.cluster import ENDED, GPUS, JOB_LIMIT_S, Cluster

FOLDER = ROOT / "slurm" / "templates"
NAMES = sorted(path.stem for path in FOLDER.glob("*.sbatch"))

# Says where tasks can run, and that they do.
APP = """
import os, sys
import mpi_runtime as ray

ray.init(num_gpus=int(os.environ.get("SLURM_GPUS_ON_NODE", 0)))

@ray.remote
def where():
    return os.uname().nodename

@ray.remote(num_gpus=0.25)
def share():
    return ray.get_gpu_ids()

names = sorted(node["NodeManagerHostname"] for node in ray.nodes() if node["Resources"].get("CPU"))
assert [ray.get(where.options(resources={"node:" + name: 0.01}).remote()) for name in names] == names
gpus = int(ray.cluster_resources().get("GPU", 0))
if gpus:
    assert all(0 <= ids[0] < gpus for ids in ray.get([share.remote() for _ in range(8)]))
print(f"tasks run on {len(names)} nodes with {gpus} GPUs; arguments: {sys.argv[1:]}", flush=True)
"""

EXPECTED = {
    # Nodes and GPUs that tasks can use.
    "gpu_shares": (1, 2),
    "heterogeneous": (2, 0),
    "job_array": (1, 0),
    "mpich_srun": (2, 0),
    "one_node": (1, GPUS),
    "rank_per_core": (2, 0),
    "rank_per_gpu": (2, 4),
    "rank_per_node": (2, 2 * GPUS),
    "requeue": (2, 2 * GPUS),
}


def test_each_template_runs_as_it_is(slurm: Cluster) -> None:
    """In one test, so that they run side by side also where tests are dealt out to several processes."""
    assert sorted(EXPECTED) == NAMES
    jobs = {}
    for name in NAMES:
        mpi = "mpich" if "mpich" in name else "openmpi"
        text = (FOLDER / f"{name}.sbatch").read_text()
        jobs[name] = slurm.sbatch(in_order(text) if name == "heterogeneous" else text, app=APP, mpi=mpi)
    for name, (nodes, gpus) in EXPECTED.items():
        job = jobs[name]
        tasks = {f"{job}_{number}": f"['{number}']" for number in range(4)} if name == "job_array" else {job: "[]"}
        for one, arguments in tasks.items():
            said = f"tasks run on {nodes} nodes with {gpus} GPUs; arguments: {arguments}\n"
            if name == "heterogeneous":
                if not has_said(slurm, one, said.strip()):
                    again = slurm.sbatch(in_order((FOLDER / f"{name}.sbatch").read_text()), app=APP)
                    slurm.wait_for_output(one := again, said.strip())
                end_heterogeneous(slurm, one)
                continue
            ended = slurm.wait(one).expect()
            assert said in ended.stdout, f"{name}: {ended.stdout}"


def in_order(text: str) -> str:
    """The job's parts on nodes whose names are in the order of the parts.

    The srun of Slurm 22.05 mistakes the nodes for each other otherwise: MPI_Init failed in 12 of 12 jobs, and in
    none of 12 in order.
    """
    first, second = text.split("#SBATCH hetjob\n")
    return f"{first}#SBATCH --nodelist=n1\n#SBATCH hetjob\n#SBATCH --nodelist=n2\n{second}"


def has_said(slurm: Cluster, job: str, text: str) -> bool:
    """Wait for a line. Return False if Open MPI crashed in MPI_Init instead, before anything of ours can run.

    It did so once in some 400 jobs of two parts: a message of a rank that had left MPI_Init reached one that had not
    yet set up its communicators. Slurm's fence had let the first pass.
    """
    wait_until(lambda: text in slurm.output(job) or slurm.facts(job)["JobState"] in ENDED, timeout=JOB_LIMIT_S)
    output = slurm.output(job)
    if text not in output and "Segmentation fault" in output and "ompi_mpi_init" in output:
        return False
    slurm.wait_for_output(job, text)
    return True


def end_heterogeneous(slurm: Cluster, job: str) -> None:
    """Wait for it, but not for ever: once in about sixty jobs the srun of Slurm 22.05 sleeps on.

    It did so in a futex, when all tasks and step daemons of both parts had ended and were gone.
    """
    try:
        wait_until(lambda: slurm.facts(job)["JobState"] in ENDED, timeout=20)
    except pytest.fail.Exception:
        slurm.run("scancel", job)
        slurm.wait(job)
    else:
        slurm.wait(job).expect()


def test_templates_are_listed_and_printed_by_the_command_line(slurm: Cluster) -> None:
    listed = slurm.run("mpi-runtime", "template").stdout
    assert [line.split()[0] for line in listed.splitlines()] == NAMES
    assert slurm.run("mpi-runtime", "template", NAMES[0]).stdout == (FOLDER / f"{NAMES[0]}.sbatch").read_text()
