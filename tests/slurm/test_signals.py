"""Signals, the end of a job's time, requeue, scancel and nodes that break, on a real Slurm; all jobs side by side."""

import os

import pytest

from mpi_runtime.slurm import nodelist
from tests.helpers import MARK, marked, wait_until
from tests.slurm.cluster import START_LIMIT_S, Cluster

# In its first life it is told of the end, saves with the help of a task, and has itself queued again.
LIVES = """
import os, pathlib, sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init()
saved = pathlib.Path(f"saved-{os.environ['SLURM_JOB_ID']}")

@ray.remote
def work(seconds):
    time.sleep(seconds)
    return 40

def save():
    saved.write_text(str(ray.get(work.options(num_cpus=0).remote(0)) + 2))
    print("saved", flush=True)
    slurm.requeue()

if slurm.allocation().restarts:
    assert not saved.exists() or saved.read_text() == "42"
    print("second life", flush=True)
    sys.exit(0)
slurm.before_walltime(float(sys.argv[1]), save)
print("working", flush=True)
ray.get([work.remote(1000) for _ in range(4)])
"""

# Survives a signal that all its processes get, and ends by one that it has not asked for.
PATIENT = """
import os, signal, subprocess, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init()

@ray.remote
class Task:
    def run(self):
        return os.getpid()

    def default_in_children(self):
        return subprocess.run(["sh", "-c", "kill -USR1 $$"]).returncode

actors = [Task.options(num_cpus=0.1).remote() for _ in range(4)]
before = ray.get([actor.run.remote() for actor in actors])
told = []
slurm.before_walltime(1, lambda: told.append(True))
print("working", flush=True)
while not told:
    time.sleep(0.05)
assert ray.get([actor.run.remote() for actor in actors]) == before
assert ray.get(actors[0].default_in_children.remote()) == -signal.SIGUSR1
print("survived", flush=True)
"""

BUSY = """
import time
import mpi_runtime as ray

ray.init()

@ray.remote
def work():
    print("working", flush=True)
    time.sleep(1000)

ray.get([work.remote() for _ in range(4)])
"""


def submit(slurm: Cluster, app: str, *words: str, options: tuple[str, ...] = (), mpi: str = "openmpi") -> str:
    """The id of a job of two nodes that `mpi-runtime submit` has made."""
    directory = slurm.directory()
    (directory / "app.py").write_text(app)
    if not any(one.startswith("--time") for one in options):
        options = ("--time=5", *options)
    command = ["mpi-runtime", "submit", "-N2", "--cpus-per-node=2", *options, "app.py", *words]
    return slurm.run(*command, cwd=directory, mpi=mpi).stdout.strip()


def submit_all(slurm: Cluster) -> dict[str, str]:
    """Jobs by what happens to them; two of them have lost a node."""
    srun = {"openmpi": "--launcher=srun --mpi=pmix --cpu-bind=none", "mpich": "--launcher=srun --mpi=pmi2"}
    made = {
        # The time is a minute, the least that Slurm has: 50 s before its end are 10 s after its begin.
        "walltime": submit(slurm, LIVES, "50", options=("--requeue", "--time=1")),
        "signal": submit(slurm, LIVES, "0", options=("--requeue",)),
        "node is lost": submit(
            slurm, BUSY, options=("--partition=fragile", "--sbatch=--nodelist=n[3-4]", "--sbatch=--no-kill")
        ),
        "node is lost, to be requeued": submit(
            slurm, LIVES, "0", options=("--partition=fragile", "--sbatch=--nodelist=n[3-4]", "--requeue")
        ),
        "power is lost": submit(
            slurm, LIVES, "0", options=("--partition=fragile", "--sbatch=--exclude=n4", "--requeue")
        ),
        "signal by srun, openmpi": submit(slurm, PATIENT, options=(srun["openmpi"],)),
        "signal by srun, mpich": submit(slurm, PATIENT, options=(srun["mpich"],), mpi="mpich"),
        "signal by mpirun, mpich": submit(slurm, PATIENT, mpi="mpich"),
    }
    slurm.wait_for_output(made["node is lost"], "working\n", times=2)
    slurm.wait_for_output(made["power is lost"], "working\n")
    nodes = slurm.facts(made["power is lost"])["NodeList"]
    once = ("--partition=fragile", f"--sbatch=--nodelist={nodes}")
    made["power is lost, not to be requeued"] = submit(slurm, LIVES, "0", options=once)
    for name in ("node is lost, to be requeued", "power is lost, not to be requeued"):
        slurm.wait_for_output(made[name], "working\n")
    slurm.crash("n4", silently=False)
    slurm.crash(nodelist.expand(nodes)[-1], silently=True)
    return made


def told_by_usr1_it_saves_and_lives_again(slurm: Cluster, job: str) -> None:
    slurm.wait_for_output(job, "working\n")
    slurm.run("scancel", "--batch", "--signal=USR1", job)  # what --signal=B:USR1@SECONDS does
    ended = slurm.wait_for_requeued(job).expect()
    assert ended.stdout.count("working\n") == 1
    assert ended.stdout.count("saved\n") == 1
    assert ended.stdout.endswith("second life\n")
    assert ended.facts["Restarts"] == "1"


def all_processes_survive_usr1(slurm: Cluster, job: str) -> None:
    slurm.wait_for_output(job, "working\n")
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    assert "survived\n" in slurm.wait(job).expect().stdout


def told_by_the_known_end_it_lives_again(slurm: Cluster, job: str) -> None:
    ended = slurm.wait_for_requeued(job).expect()
    assert ended.stdout.endswith("second life\n")
    assert ended.stdout.count("saved\n") == 1


def it_is_not_called_completed(slurm: Cluster, job: str) -> None:
    """Open MPI's launcher ends with 0 when the connection to a node is lost.

    The driver may just have the time to leave a code of its own, or is killed before; it is never 0.
    """
    ended = slurm.wait(job)
    assert ended.state == "FAILED", ended
    assert ended.exit_code != "0:0"


def it_begins_again_on_other_nodes(slurm: Cluster, job: str) -> None:
    ended = slurm.wait_for_requeued(job).expect()
    assert ended.stdout.endswith("second life\n")


def it_is_queued_again_when_a_node_does_not_answer(slurm: Cluster, job: str) -> None:
    """Its launcher ends long before Slurm notices that the node is down."""
    wait_until(lambda: slurm.facts(job)["Restarts"] != "0", 60, "the requeue")
    said = slurm.output(job)
    slurm.run("scancel", job)  # it has asked for that very node
    assert "mpi-runtime: a node of the job does not answer, so it is queued again. srun: error: " in said


def test_a_job_that_is_cancelled_may_save_but_does_not_come_back(slurm: Cluster) -> None:
    job = submit(slurm, LIVES, "0", options=("-N1", "--requeue"))
    slurm.wait_for_output(job, "working\n")
    slurm.run("scancel", job)
    ended = slurm.wait(job)
    assert (ended.state, ended.facts["Restarts"]) == ("CANCELLED", "0")
    assert "saved\n" in ended.stdout
    assert f"SlurmError: job {job} was cancelled" in ended.stdout


@pytest.mark.parametrize(("mpi", "launcher"), [("openmpi", "mpirun"), ("mpich", "srun --mpi=pmi2")])
def test_a_cancelled_job_leaves_nothing_on_any_node(mpi: str, launcher: str, slurm: Cluster) -> None:
    job = submit(slurm, BUSY, options=(f"--launcher={launcher}",), mpi=mpi)
    slurm.wait_for_output(job, "working\n", times=2)
    mark = os.environ[MARK]
    assert len(marked(mark)) > 5
    slurm.run("scancel", job)
    assert slurm.wait(job).state == "CANCELLED"
    wait_until(lambda: not marked(mark), 20, "the end of all processes of the job")


def preempt(slurm: Cluster) -> dict[str, str]:
    """Jobs that lose their GPUs to a job of a partition that comes first; as they are told of it."""
    share = ("--partition=spare", "--gpus-per-node=1", "--requeue", "--env=MPI_RUNTIME_FIND_GPUS=never")
    both = (*share, "--sbatch=--nodelist=n[1-2]")
    jobs = {
        "by the signal that it has asked for": submit(slurm, LIVES, "0", options=(*both, "--warn-s=10")),
        "by the end of its launcher": submit(slurm, LIVES, "0", options=both),
        "although such jobs are cancelled": submit(
            slurm, LIVES, "0", options=("-N1", "--partition=sparecancel", *share[1:], "--sbatch=--nodelist=n3")
        ),
        "when its grace time is over": submit(slurm, LIVES, "0", options=("-N1", *share, "--sbatch=--nodelist=n3")),
    }
    for job in jobs.values():
        slurm.wait_for_output(job, "working\n")
    slurm.sbatch("#!/bin/sh\nsleep 1\n", "-N3", "--gpus-per-node=4")
    return jobs


def the_preempted_live_again(slurm: Cluster, jobs: dict[str, str]) -> None:
    ended = {told: slurm.wait_for_requeued(job).expect() for told, job in jobs.items()}
    for told, job in ended.items():
        assert job.stdout.endswith("second life\n"), told
        # Slurm 24.11 starts each job that it has preempted once more after its end, whatever it is.
        assert job.facts["Restarts"] == "1" or slurm.is_new, told
    del ended["by the end of its launcher"]  # it falls apart, and begins with what it had saved before
    for told, job in ended.items():
        assert job.stdout.count("saved\n") == 1, told
        assert "a callback of before_walltime failed" not in job.stdout, told
    assert "DUE TO JOB REQUEUE" in ended["by the signal that it has asked for"].stdout, "by its own request"
    assert "DUE TO PREEMPTION" in ended["when its grace time is over"].stdout, "by Slurm itself"


@pytest.mark.timeout(240)
def test_slurm_itself_ends_jobs_whose_time_is_over_and_those_that_others_preempt(slurm: Cluster) -> None:
    """In one test, side by side: Slurm looks at times every 30 s."""
    told = submit(slurm, LIVES, "0", options=("--requeue", "--time=1", "--warn-s=10"))
    directory = slurm.directory()
    (directory / "app.py").write_text(BUSY)
    wait = ["mpi-runtime", "submit", "--wait", "-N2", "--cpus-per-node=2", "--time=1", "app.py"]
    over = slurm.start(*wait, cwd=directory)
    over.wait_for_line("working", timeout=START_LIMIT_S)
    slurm.wait_for_output(told, "working\n")
    job = over.stdout.split()[0]
    slurm.run("scontrol", "update", f"JobId={told}", "EndTime=now+40")  # 10 s before it is within the next 30 s
    slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    preempted = preempt(slurm)

    saved = slurm.wait_for_requeued(told).expect()
    assert saved.stdout.count("saved\n") == 1
    assert "DUE TO JOB REQUEUE" in saved.stdout
    assert saved.stdout.endswith("second life\n")

    said = over.finish().expect(1).stderr  # and no process of it is left on any node
    assert slurm.wait(job).state == "TIMEOUT"
    assert f"job {job} app: TIMEOUT (TimeLimit), on n" in said
    assert "exit code 1; the program did not run to its end" in said
    assert "TIMEOUT (TimeLimit)" in slurm.run("mpi-runtime", "status", job).stdout

    the_preempted_live_again(slurm, preempted)


@pytest.mark.timeout(240)
def test_signals_the_end_of_the_time_and_nodes_that_break(slurm: Cluster) -> None:
    """In one test, side by side: most of the time Slurm waits, to miss a node and to start a requeued job again."""
    jobs = submit_all(slurm)
    told_by_usr1_it_saves_and_lives_again(slurm, jobs["signal"])
    for name in ("signal by srun, openmpi", "signal by srun, mpich", "signal by mpirun, mpich"):
        all_processes_survive_usr1(slurm, jobs[name])
    told_by_the_known_end_it_lives_again(slurm, jobs["walltime"])
    it_is_not_called_completed(slurm, jobs["node is lost"])
    it_begins_again_on_other_nodes(slurm, jobs["power is lost"])
    it_is_queued_again_when_a_node_does_not_answer(slurm, jobs["node is lost, to be requeued"])
    assert slurm.wait(jobs["power is lost, not to be requeued"]).state == "NODE_FAIL", "nobody has asked for more"
