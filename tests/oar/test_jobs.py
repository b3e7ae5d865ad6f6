"""Jobs that `submit` makes, on a real OAR: exit codes, arrays, cancels, the end of the time, requeues, launch lines."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest

from tests.helpers import MARK, wait_until
from tests.oar.cluster import Cluster

# Ends with the code that it is given.
APP = """
import os, sys
import mpi_runtime as ray

ray.init()
print("hosts", sorted({node["NodeManagerHostname"] for node in ray.nodes()}), flush=True)
sys.exit(int(sys.argv[1]))
"""
HOLD = """
import json, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init()
own = slurm.allocation()
late = ray.remote(time_limit=3600)(abs).remote(1)
left_s = slurm.end_time() - time.time()
print(json.dumps([own.system, own.job, own.nodes, own.tasks, left_s, ray.explain(late)]), flush=True)
time.sleep(300)
"""
WARNED = """
import threading, time
from mpi_runtime import slurm

end_s, called = slurm.end_time(), threading.Event()

def warned():
    print("called", round(end_s - time.time()), "s before the end", flush=True)
    called.set()

slurm.before_walltime(1, warned)
called.wait(120)
"""
JOURNAL = """
import sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(journal="journal", requeue=True, requeue_before_s=25)
print("life", slurm.allocation().restarts, flush=True)

@ray.remote
def part(x):
    time.sleep(1)
    return x

parts = [part.options(num_cpus=1).remote(x) for x in range(int(sys.argv[1]))]
print("right", sum(ray.get(parts)), flush=True)
"""
REQUEUES = """
import time
from mpi_runtime import slurm

slurm.before_walltime(1, slurm.requeue)
time.sleep(300)
"""


def runs(oar: Cluster, place: Path, job: str) -> Path:
    """Wait until the program of a job runs. Return the output file."""
    wait_until(lambda: (place / f"app-{job}.exit").exists(), 60, "the program")
    return place / f"app-{job}.out"


def test_a_job_on_two_nodes_ends_with_the_exit_code_of_the_program(oar: Cluster) -> None:
    place = oar.program(APP)
    words = ["--wait", "-N", "2", "--setup", "module load x", "--setup", 'echo "have $A_SECRET"', "--time", "5:00"]
    line = shlex.join(["exec", "python", "-m", "mpi_runtime.cli.main", "submit", *words, "app.py", "3"])
    text = f'module() {{ echo "loads $2"; }}; export -f module; export A_SECRET="as it\'s"; {line}'
    done = oar.run("bash", "-c", text, cwd=place, code=3)
    assert "hosts ['n1', 'n2']" in done.stdout
    assert "loads x\nhave as it's\n" in done.stdout, "the environment of submit is that of the job"
    assert "FAILED" in done.stderr.splitlines()[-1]
    job = done.stdout.split()[0]
    assert "the program has ended with 3" in oar.run("mpi-runtime", "status", job, cwd=place).stdout
    assert "hosts ['n1', 'n2']" in (place / f"app-{job}.out").read_text()
    assert "SECRET" not in oar.run("oarstat", "-f", "-J", "-j", job).stdout, "everybody may ask that"
    assert not list(place.glob("*.job"))


def test_a_program_that_ends_with_99_is_not_run_again(oar: Cluster) -> None:
    place = oar.program(APP)
    words = ["--wait", "--cpus-per-node", "1", "--setup", "sleep 60", "--time", "5:00", "app.py", "99"]
    done = oar.run("mpi-runtime", "submit", *words, cwd=place, code=99)
    assert done.stdout.count("hosts ['n") == 1


def test_an_array_has_a_table(oar: Cluster) -> None:
    place = oar.program(APP)
    words = ["--array", "1-3", "--cpus-per-node", "1", "--time", "5:00", "app.py", "{task}"]
    done = oar.run("mpi-runtime", "submit", "--wait", *words, cwd=place, code=1)
    rows = re.findall(r"^(\d) +FAILED +(\d)", done.stdout, re.MULTILINE)
    assert rows == [("1", "1"), ("2", "2"), ("3", "3")]
    job = done.stdout.split()[0]
    assert oar.status(place, f"{job}_2")["program_exit_code"] == 2
    assert oar.status(place, str(int(job) + 1))["job"] == f"{job}_2", "as oarstat names it"


def test_a_deleted_job_leaves_nothing(oar: Cluster) -> None:
    place = oar.program(HOLD)
    job = oar.submit(place, "-N", "2", "--time", "5:00", "app.py")
    out = runs(oar, place, job)
    wait_until(lambda: "oar" in out.read_text(), 60, "the program")
    system, own, nodes, tasks, left_s, late = json.loads(re.findall(r"^\[\".*\]$", out.read_text(), re.MULTILINE)[0])
    assert (system, own, sorted(nodes), tasks) == ("oar", job, ["n1", "n2"], [4, 4])
    assert 200 < left_s <= 300
    assert "It is not started: it may take 3600 s" in late
    assert oar.status(place, job)["state"] == "RUNNING"
    oar.run("oardel", job)
    wait_until(lambda: oar.status(place, job)["state"] == "CANCELLED", 60, "the end of the job")

    wait_until(lambda: not [one for one in oar.processes() if str(place) in one], 20, "the end of all processes")


def test_a_job_that_outlives_its_time(oar: Cluster) -> None:
    place = oar.program(HOLD)
    done = oar.run("mpi-runtime", "submit", "--wait", "--time", "0:20", "app.py", cwd=place, code=1)
    assert "TIMEOUT" in done.stderr.splitlines()[-1]


def test_a_job_waits_for_the_end_of_another_and_starts_then(oar: Cluster) -> None:
    place = oar.program(APP)
    one = ["--cpus-per-node", "1", "--time", "5:00"]
    first = oar.submit(place, *one, "--array", "1-2", "--setup", "sleep 5", "app.py", "3")
    words = ["--wait", "--after", first, *one, "app.py", "0"]
    done = oar.run("mpi-runtime", "submit", *words, cwd=place)
    assert "hosts ['n" in done.stdout
    for task in ("1", "2"):
        assert oar.status(place, f"{first}_{task}")["program_exit_code"] == 3, "it has ended, though not well"


def test_jobs_that_wait_are_cancelled(oar: Cluster) -> None:
    place = oar.program(APP)
    job = oar.submit(place, "--qsub=--hold", "--time", "5:00", "app.py", "0")
    found = oar.status(place, job)
    assert (found["state"], found["reason"], found["advice"]) == ("PENDING", "hold", f"it is held: oarresume {job}")
    after = oar.submit(place, "--after", job, "--time", "5:00", "app.py", "0")
    wait_until(lambda: oar.status(place, after)["reason"] == "dependency", 30, "why it waits")

    def is_cancelled(job: str) -> bool:
        return oar.status(place, job)["state"] == "CANCELLED"

    code = f"from mpi_runtime.slurm import jobs; jobs.cancel_waiting(['{after}', '{job}'])"
    oar.run("python", "-c", code, cwd=place)
    for one in (job, after):
        wait_until(partial(is_cancelled, one), 30, "the cancel")


def test_the_signal_before_the_end(oar: Cluster) -> None:
    place = oar.program(WARNED)
    words = ["--wait", "--cpus-per-node", "1", "--time", "1:00", "--warn-s", "35"]
    done = oar.run("mpi-runtime", "submit", *words, "app.py", cwd=place)
    (left_s,) = re.findall(r"called (\d+) s before the end", done.stdout)
    assert 5 <= int(left_s) <= 35, "OAR looks every 10 s"


@pytest.mark.timeout(600)
def test_a_job_with_a_journal_ends_over_several_lives(oar: Cluster) -> None:
    place = oar.program(JOURNAL)
    words = ["-N", "2", "--time", "1:30", "app.py", "400"]
    done = oar.run("mpi-runtime", "submit", "--wait", *words, cwd=place, limit_s=500)
    assert "right 79800" in done.stdout
    lives = re.findall(r"^life (\d)$", done.stdout, re.MULTILINE)
    assert lives == [str(number) for number in range(len(lives))]
    assert len(lives) >= 2
    assert not list(place.glob("*.job"))


@pytest.mark.timeout(600)
def test_a_batch_of_500_commands_ends_over_several_lives(oar: Cluster) -> None:
    place = oar.directory()
    (place / "jobs.txt").write_text("".join(f"sleep 0.3; echo {number} >> ran\n" for number in range(500)))
    words = ["--batch", "jobs.txt", "--cpus-per-node", "4", "--time", "1:30", "--requeue"]
    done = oar.run("mpi-runtime", "submit", "--wait", *words, cwd=place, limit_s=560)
    assert "500 of 500 done" in done.stdout
    assert "ending what runs; the same line continues later" in done.stdout
    ran = (place / "ran").read_text().split()
    assert {*ran} == {*map(str, range(500))}
    assert len(ran) < 520, "what was done is not forgotten"


def test_what_somebody_ends_is_not_queued_again(oar: Cluster) -> None:
    place = oar.program(REQUEUES)
    job = oar.submit(place, "--cpus-per-node", "1", "--time", "10:00", "app.py")
    runs(oar, place, job)
    oar.run("python", "-c", f"from mpi_runtime.slurm import jobs; jobs.end('{job}')", cwd=place)
    wait_until(lambda: oar.status(place, job)["state"] == "CANCELLED", 60, "the end")
    assert oar.run("oarstat", "-J", "--array", job).stdout.count('"Job_Id"') == 1


def test_a_job_of_less_than_a_minute_cannot_be_queued_again(oar: Cluster) -> None:
    place = oar.program("from mpi_runtime import slurm\nslurm.requeue()\n")
    words = ["--wait", "--cpus-per-node", "1", "--time", "1:00", "app.py"]
    done = oar.run("mpi-runtime", "submit", *words, cwd=place, code=1)
    assert "OAR queues no job again that has run for less than 60 s" in done.stdout


def has_cure(found: Path) -> bool:
    return found.exists() and "fix" in found.read_text()


def test_a_wrong_launch_line_is_named_with_its_cure(oar: Cluster) -> None:
    place = oar.directory()
    for number, (line, cure) in enumerate(
        (
            ("python -m mpi_runtime doctor", "the program was started as a single process"),
            ("mpirun -n 2 --oversubscribe python -m mpi_runtime doctor", "mpirun knows no jobs of OAR"),
        )
    ):
        found = place / f"found{number}"
        path = oar.environment()["PATH"]
        text = f"export PATH={path} HOME={place} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        text += f" {MARK}=1; {line} >{found} 2>&1"
        oar.run("oarsub", "-l", "nodes=2,walltime=0:02:00", text, cwd=place)
        wait_until(partial(has_cure, found), 60, "doctor")
        assert cure in found.read_text()
        assert "mpi-runtime run -n 2 app.py" in found.read_text()


def test_doctor_as_a_job_finds_nothing_wrong(oar: Cluster) -> None:
    words = ["--wait", "-N", "2", "--time", "5:00", "--warn-s", "60", "--name", "9.b-5"]
    said = oar.run("mpi-runtime", "submit", "--doctor", *words, cwd=oar.directory()).stdout
    assert "(oar) on n1, n2" in said
    assert "nothing wrong was found" in said
    assert {*re.findall(r"(\w+) is set, and this runtime does not read it", said)} <= {MARK}


CALLS = """
import os, time
from mpi_runtime import slurm

def where(number):
    return number, slurm.allocation().system, slurm.allocation().array_task

executor = slurm.Executor("calls", time="0:02:00", cpus_per_node=1)
jobs = executor.map_array(where, range(3))
waits, bad = executor.submit(time.sleep, 300), executor.submit(os._exit, 3)
print(*[job.result(60) for job in jobs], waits.cancel(), type(bad.exception(90)).__name__)
"""


def test_calls_of_an_executor_are_jobs_and_tasks_of_an_array(oar: Cluster) -> None:
    place = oar.program(CALLS)
    words = oar.run("python", "app.py", cwd=place).stdout.strip()
    assert words == "(0, 'oar', 1) (1, 'oar', 2) (2, 'oar', 3) True JobError"


def test_what_can_never_run_is_refused(oar: Cluster) -> None:
    place = oar.program(APP)
    for words, error in (
        (["-N", "9", "app.py"], "There are not enough resources for your request"),
        (["-p", "absent", "app.py"], "The queue absent does not exist"),
        (["--gpus-per-node", "1", "app.py"], 'column "gpu" does not exist'),
        (["--array", "0-3", "app.py"], "array must be like '1-9'"),
        (["--memory", "4G", "app.py"], "OAR has no memory of jobs"),
        (["--sbatch=-Cx", "app.py"], "OAR has no options of sbatch"),
    ):
        done = oar.run("mpi-runtime", "submit", *words, cwd=place, code=2)
        assert error in done.stderr
    assert not list(place.glob("*.job"))
