"""Jobs that `submit` makes, on a real Grid Engine: exit codes, arrays, cancels, the end of the time, and requeues."""

import json
import re
import subprocess

import pytest

from tests.helpers import wait_until
from tests.sge.cluster import Cluster

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
print(json.dumps([own.system, own.job, own.nodes, own.tasks, slurm.end_time() - time.time()]), flush=True)
time.sleep(300)
"""
WARNED = """
import time
from mpi_runtime import slurm

end_s = slurm.end_time()
slurm.before_walltime(1, lambda: print("called", round(end_s - time.time()), "s before the end", flush=True))
time.sleep(20)
"""
JOURNAL = """
import sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(journal="journal", requeue=True, requeue_before_s=15)
print("life", slurm.allocation().restarts, flush=True)

@ray.remote
def part(x):
    time.sleep(1)
    return x

parts = [part.options(num_cpus=1).remote(x) for x in range(int(sys.argv[1]))]
print("right", sum(ray.get(parts)), flush=True)
"""


def test_a_job_on_two_nodes_ends_with_the_exit_code_of_the_program(sge: Cluster) -> None:
    place = sge.program(APP)
    done = sge.run("mpi-runtime", "submit", "--wait", "-N", "2", "--time", "5:00", "app.py", "3", cwd=place, code=3)
    assert "hosts ['n1', 'n2']" in done.stdout
    assert "FAILED" in done.stderr.splitlines()[-1]
    job = done.stdout.split()[0]
    assert "the program has ended with 3" in sge.run("mpi-runtime", "status", job, cwd=place).stdout


def test_a_program_that_ends_with_99_is_not_run_again(sge: Cluster) -> None:
    place = sge.program(APP)
    done = sge.run("mpi-runtime", "submit", "--wait", "--time", "5:00", "app.py", "99", cwd=place, code=99)
    assert done.stdout.count("hosts ['n") == 1


def test_an_array_has_a_table(sge: Cluster) -> None:
    place = sge.program(APP)
    words = ["--array", "1-3%2", "--time", "5:00", "app.py", "{task}"]
    done = sge.run("mpi-runtime", "submit", "--wait", *words, cwd=place, code=1)
    rows = re.findall(r"^(\d) +FAILED +(\d)", done.stdout, re.MULTILINE)
    assert rows == [("1", "1"), ("2", "2"), ("3", "3")]


def test_a_deleted_job_leaves_nothing(sge: Cluster) -> None:
    place = sge.program(HOLD)
    job = sge.submit(place, "-N", "2", "--cpus-per-node", "2", "--time", "5:00", "app.py")
    out = place / f"app-{job}.out"
    wait_until(lambda: out.exists() and "sge" in out.read_text(), 60, "the program")
    system, own, nodes, tasks, left_s = json.loads(re.findall(r"^\[.*\]$", out.read_text(), re.MULTILINE)[0])
    assert (system, own, sorted(nodes), tasks) == ("sge", job, ["n1", "n2"], [2, 2])
    assert 200 < left_s <= 300
    assert sge.status(place, job)["state"] == "RUNNING"
    sge.run("qdel", job)
    wait_until(lambda: sge.status(place, job)["state"] == "CANCELLED", 40, "the end of the job")
    words = ["pgrep", "-f", f"{place}|app-{job}.exit"]
    wait_until(lambda: not sge.run(*words, code=None).stdout, 20, "the end of all its processes")


def test_a_job_waits_for_the_end_of_another_and_starts_then(sge: Cluster) -> None:
    place = sge.program(APP)
    first = sge.submit(place, "--setup", "sleep 6", "--time", "5:00", "app.py", "3")
    words = ["--wait", "--after", first, "--time", "5:00", "app.py", "0"]
    done = sge.run("mpi-runtime", "submit", *words, cwd=place)
    assert "hosts ['n" in done.stdout
    assert sge.status(place, first)["program_exit_code"] == 3, "it has ended, though not well"


def test_a_job_that_waits_is_cancelled(sge: Cluster) -> None:
    place = sge.program(APP)
    job = sge.submit(place, "--qsub=-h", "--time", "5:00", "app.py", "0")
    found = sge.status(place, job)
    assert (found["state"], found["reason"]) == ("PENDING", "hold")
    code = f"from mpi_runtime.slurm import jobs; jobs.cancel_waiting(['{job}'])"
    sge.run("python", "-c", code, cwd=place)
    assert f"JB_job_number>{job}<" not in sge.run("qstat", "-xml").stdout


def test_the_signal_before_the_end(sge: Cluster) -> None:
    place = sge.program(WARNED)
    done = sge.run("mpi-runtime", "submit", "--wait", "--time", "0:30", "--warn-s", "18", "app.py", cwd=place)
    (left_s,) = re.findall(r"called (\d+) s before the end", done.stdout)
    assert 10 <= int(left_s) <= 18


@pytest.mark.timeout(480)
def test_a_journal_and_a_batch_end_over_several_lives_without_a_hand(sge: Cluster) -> None:
    """At once, to save time: each has a node of its own. `--fresh` must be followed in the first life only."""
    place = sge.program(JOURNAL)
    (place / "jobs.txt").write_text("".join(f"sleep 0.3; echo {number} >> ran\n" for number in range(250)))
    words = ["--cpus-per-node", "2", "--time", "0:36"]
    job = sge.submit(place, *words, "app.py", "90")
    done = sge.run(
        "mpi-runtime", "submit", "--wait", *words, "--batch", "jobs.txt", "--requeue", "--", "--fresh",
        cwd=place, limit_s=400,
    )  # fmt: skip
    assert "250 of 250 done" in done.stdout
    assert done.stdout.count("ending what runs; the same line continues later") >= 2, "three lives, or more"
    ran = (place / "ran").read_text().split()
    assert {*ran} == {*map(str, range(250))}
    assert len(ran) < 270, "what was done is not forgotten"
    assert "250 of 250 done" in sge.run("mpi-runtime", "batch", "status", "jobs", cwd=place).stdout
    wait_until(lambda: sge.status(place, job)["state"] == "COMPLETED", 240, "the end of the job with a journal")
    text = (place / f"app-{job}.out").read_text()
    assert "right 4005" in text
    lives = re.findall(r"^life (\d)$", text, re.MULTILINE)
    assert lives[0] == "0"
    assert len(lives) >= 3
    assert set(lives[1:]) == {"1"}, "Grid Engine does not count"


@pytest.mark.timeout(400)
def test_work_makes_jobs_and_each_command_is_done_though_a_job_is_deleted(sge: Cluster) -> None:
    place = sge.directory()
    (place / "jobs.txt").write_text("".join(f"sleep 0.5; echo {number} >> ran\n" for number in range(200)))
    words = sge.on_login(["mpi-runtime", "batch", "jobs.txt", "--allocate", "max=2,cpus=2,time=1m,idle=20s"], place)
    with (
        open(place / "said", "wb") as log,
        subprocess.Popen(words, env=sge.environment(), stdin=subprocess.DEVNULL, stderr=log) as program,
    ):
        try:
            wait_until(lambda: (place / "ran").exists() and len((place / "ran").read_text()) > 30, 90, "commands")
            listed = re.findall(r"<JB_job_number>(\d+)<", sge.run("qstat", "-xml").stdout)
            assert 1 <= len(listed) <= 2
            sge.run("qdel", listed[0])
            assert program.wait(300) == 0, (place / "said").read_text()
        finally:
            program.kill()
    ran = (place / "ran").read_text().split()
    assert {*ran} == {*map(str, range(200))}
    assert len(ran) < 220, "only what a job had begun is begun again"
    own = json.loads((place / "batch-jobs/journal/allocator/record").read_text())
    assert len(own["jobs"]) >= 3
    assert sum(one["commands"] for one in own["jobs"]) >= 200


def test_what_can_never_run_is_refused(sge: Cluster) -> None:
    place = sge.program(APP)
    for words, error in (
        (["-N", "9", "app.py"], "no suitable queues"),
        (["-p", "absent.q", "app.py"], 'unknown queue "absent.q"'),
        (["-N", "2", "--cpus-per-node", "3", "app.py"], "no parallel environment gives 3 slots on each of 2 nodes"),
        (["--array", "0-3", "app.py"], "array must be like '1-9'"),
        (["--sbatch=-Cx", "app.py"], "Grid Engine has no options of sbatch"),
    ):
        done = sge.run("mpi-runtime", "submit", *words, cwd=place, code=2)
        assert error in done.stderr


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


def test_calls_of_an_executor_are_jobs_and_tasks_of_an_array(sge: Cluster) -> None:
    place = sge.program(CALLS)
    words = sge.run("python", "app.py", cwd=place).stdout.strip()
    assert words == "(0, 'sge', 1) (1, 'sge', 2) (2, 'sge', 3) True JobError"
