"""MPI programs as commands of a batch on a real Slurm: two nodes, the end of the time, and the requeue."""

from __future__ import annotations

from pathlib import Path

from tests.helpers import mpi_python, wait_until
from tests.slurm.cluster import Cluster

PROGRAM = """
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
hosts = sorted(set(comm.allgather(os.uname().nodename)))
tasks = [name for name in os.environ if name.startswith(("SLURM_NTASKS", "SLURM_PROCID"))]
print(comm.rank, comm.size, len(hosts), comm.allreduce(comm.rank), tasks, flush=True)
if sys.argv[1] == "long" and not os.path.exists("again"):
    time.sleep(1000)
"""
BATCH = """
[[task]]
name = "prepare"
command = "echo prepared > input"

[[task]]
name = "run"
command = "PYTHON program.py {kind}"
product = { kind = ["short", "long"] }
ranks = 4
ranks_per_node = 2
after = ["prepare"]

[[task]]
name = "plot"
command = "cat batch-jobs/run.*.out > plot"
after = ["run"]
"""


def test_mpi_runs_go_on_in_the_next_life_of_the_job(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "jobs.toml").write_text(BATCH.replace("PYTHON", str(mpi_python("openmpi"))))
    words = ["submit", "--batch", "jobs.toml", "-N", "2", "--cpus-per-node=2", "--time=5", "--requeue"]
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    slurm.wait_until_running(job)
    output = folder / "batch-jobs"
    wait_until(lambda: len(lines(output / "run.1.out")) == 4 and len(lines(output / "run.0.out")) == 4, 60, "both runs")
    (folder / "again").touch()
    slurm.run("scancel", "--batch", "--signal=URG", job)
    ended = slurm.wait_for_requeued(job).expect()
    assert "2 commands were done by earlier runs" in ended.stdout
    assert "4 of 4 done, 2 of them before" in ended.stdout
    assert sorted(lines(folder / "plot")) == sorted([f"{rank} 4 2 6 []" for rank in range(4)] * 2)


LAUNCHED = """
[defaults]
ranks = 4
ranks_per_node = 2

[[task]]
name = "run"
command = "PYTHON program.py short > run.$SLURM_PROCID"
launcher = "srun --overlap --exact --mpi=pmix"

[[task]]
name = "uneven"
command = "uname -n > host.$SLURM_PROCID"
ranks = 3
launcher = "srun --overlap"

[[task]]
name = "limited"
command = "trap '' TERM; touch up.$SLURM_PROCID; sleep 1234"
time_limit = 3
grace = 0.2
on_failure = "continue"
launcher = "srun --overlap"

[[task]]
name = "left"
command = "ps -e -o args= > left.$SLURM_PROCID"
after = ["limited"]
launcher = "srun --overlap"
"""


def test_srun_starts_the_ranks(slurm: Cluster) -> None:
    """On the nodes where the command has its CPUs. After a time limit no rank is left on any node."""
    folder = slurm.directory()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "jobs.toml").write_text(LAUNCHED.replace("PYTHON", str(mpi_python("openmpi"))))
    words = ["submit", "--wait", "--batch", "jobs.toml", "-N", "2", "--cpus-per-node=2", "--time=5"]
    ended = slurm.start("mpi-runtime", *words, cwd=folder).finish()
    assert "failed: limited: it ran longer than its time limit of 3 s" in ended.output()
    assert "3 of 4 done, 1 failed" in ended.output()
    for rank in range(4):
        assert lines(folder / f"run.{rank}")[0].startswith(f"{rank} 4 2 6 ")
        assert (folder / f"up.{rank}").exists()
        left = lines(folder / f"left.{rank}")
        assert left
        assert not [words for words in left if words.startswith("sleep 1234")]
    hosts = [lines(folder / f"host.{rank}") for rank in range(3)]
    assert sorted(map(hosts.count, hosts)) == [1, 2, 2]
    assert hosts[1] in (hosts[0], hosts[2]), "ranks of a node are consecutive"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
