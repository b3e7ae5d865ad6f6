"""Jobs that `submit` makes, on a real Slurm: their output, their exit codes, and two that share a node."""

import json
import re
import signal

from tests.helpers import ROOT, Program, wait_until
from tests.slurm.cluster import MEET, Cluster

# Ends with the code that it is given.
APP = """
import os, sys
import mpi_runtime as ray

ray.init()

@ray.remote
def where():
    return os.uname().nodename

print("hosts", sorted({node["NodeManagerHostname"] for node in ray.nodes()}), ray.get(where.remote()), flush=True)
if sys.argv[1] == "raise":
    raise ValueError("as asked")
if sys.argv[1] == "vanish":
    os._exit(0)
sys.exit(int(sys.argv[1]))
"""

# What is to be seen of the allocation, and of another job that is there at the same time.
NEIGHBOUR = """
import json, os, sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init()
meet(*sys.argv[1:])

@ray.remote
def affinity():
    time.sleep(0.1)
    return len(os.sched_getaffinity(0))

assert ray.get([affinity.remote() for _ in range(8)])
own = slurm.allocation()
left_s = slurm.end_time() - time.time()
in_time, too_long = affinity.options(time_limit=60).remote(), affinity.options(time_limit=600).remote()
ray.get(in_time)
print(json.dumps({
    "job": own.job, "nodes": own.nodes, "cpus": own.cpus, "gpus": own.gpus, "left": 200 < left_s <= 300,
    "too long": ray.explain(too_long),
    "memory": ray.cluster_resources()["memory"], "hosts": [node["NodeManagerHostname"] for node in ray.nodes()],
    "CPU": ray.cluster_resources()["CPU"],
}), flush=True)
"""

PYTHON_CALL = """
import sys
from mpi_runtime import slurm

job = slurm.submit(["app.py", "5"], nodes=2, cpus_per_node=2, launcher="srun --mpi=pmix", name="by call", time="5")
print("submitted", slurm.status(job).name, flush=True)
sys.exit(slurm.follow(job))
"""
# The first program of docs/slurm.md.
DOCUMENTED = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "slurm.md").read_text(), re.M | re.S)[0]


def interrupted(slurm: Cluster, program: Program) -> None:
    """Ctrl-C ends the waiting, not the job."""
    program.wait_for_line("up")
    job = program.stdout.split()[0]
    program.signal(signal.SIGINT, group=True)
    wait_until(lambda: f"job {job} continues" in program.stderr, 20, "what Ctrl-C says")
    assert f"to end it: scancel {job}" in program.stderr
    assert slurm.facts(job)["JobState"] == "RUNNING"
    slurm.run("scancel", job)
    program.finish().expect(130)  # with it its job, which has the same mark


def test_submit_follows_the_output_and_ends_with_the_exit_code_of_the_program(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text(APP)
    (directory / "call.py").write_text(PYTHON_CALL)
    (directory / "documented.py").write_text(DOCUMENTED)
    (directory / "waits.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(100)\n")
    submit = ["mpi-runtime", "submit", "--wait", "--time=5", "--cpus-per-node=2"]
    started = {
        "two nodes": slurm.start(*submit, "-N", "2", "app.py", "0", cwd=directory),
        "documented": slurm.start(*submit, "-N", "2", "documented.py", cwd=directory),
        "one node": slurm.start(*submit, "app.py", "7", cwd=directory),
        "exception": slurm.start(*submit, "app.py", "raise", cwd=directory),
        "no end": slurm.start(*submit, "-N", "2", "app.py", "vanish", cwd=directory),
        "call": slurm.start("python", "call.py", cwd=directory),
        "mpich": slurm.start(*submit, "-N", "2", "app.py", "4", cwd=directory, mpi="mpich"),
    }
    interrupted(slurm, slurm.start(*submit, "waits.py", cwd=directory))
    unread = slurm.start("sh", "-c", f"{' '.join(submit)} app.py 0 | head -n 1", cwd=directory)
    ended = {name: program.finish() for name, program in started.items()}
    told = unread.finish().expect(0)
    assert f"mpi-runtime: job {told.stdout.strip()} continues\n" in told.stderr
    assert "Traceback" not in told.stderr
    ended["two nodes"].expect(0)
    assert "hosts ['n" in ended["two nodes"].stdout
    job = ended["two nodes"].stdout.splitlines()[0]
    assert ended["two nodes"].stdout.splitlines()[1].startswith("hosts"), "nothing else is there"
    said = ended["two nodes"].stderr
    every = "".join(one.stderr for one in ended.values())  # a job may end between two looks
    assert re.search(r"^mpi-runtime: job \d+ app: RUNNING, on n\S+, 00:00:\d\d of 00:05:00, until 20", every, re.M)
    assert f"job {job} app: COMPLETED" in said
    ended["documented"].expect(0)
    assert " hosts, 328350\n" in ended["documented"].stdout
    ended["one node"].expect(7)
    assert slurm.wait(ended["one node"].stdout.splitlines()[0]).expect("FAILED", "7:0")
    ended["exception"].expect(1)
    assert "ValueError: as asked" in ended["exception"].stdout
    assert "the program has ended with 1" in ended["exception"].stderr
    ended["no end"].expect(1)
    assert "the program did not run to its end" in ended["no end"].stdout
    assert slurm.wait(ended["no end"].stdout.splitlines()[0]).expect("FAILED", "1:0")
    ended["call"].expect(5)
    assert "submitted by_call" in ended["call"].stdout
    ended["mpich"].expect(4)
    line = slurm.run("mpi-runtime", "status", job).stdout
    assert line.startswith(f"job {job} app: COMPLETED, on n")
    assert "the program has ended with 0" in line


def test_what_slurm_refuses_is_explained(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text(APP)
    for words, said, cure in (
        (["-p", "none"], "invalid partition specified: none", "sinfo -o '%R %l %G'"),
        (["--gpus-per-node=9"], "Requested node configuration is not available", "sinfo -o"),
        (["--gpus-per-node=tpu:1"], "Requested node configuration is not available", "sinfo -o"),
        (["--time=soon"], "time must be minutes, minutes:seconds", "not 'soon'"),
        (["--memory=900G"], "it could never start. sbatch says: allocation failure: Requested node config", "%m %G"),
    ):
        refused = slurm.run("mpi-runtime", "submit", *words, "app.py", "0", cwd=directory, code=2)
        assert said in refused.stderr, words
        assert cure in refused.stderr, words
    # What can never run is accepted by Slurm 22.05, unless a site has configured otherwise.
    if not slurm.is_new:
        job = slurm.sbatch("#!/bin/sh\n", "-N9")

        def waits() -> bool:
            said = slurm.run("mpi-runtime", "status", job).stdout
            return "PENDING (Partition" in said and "its partition" in said

        wait_until(waits, what="a reason")
        slurm.run("scancel", job)
    job = slurm.run("mpi-runtime", "submit", "--sbatch=--hold", "app.py", "0", cwd=directory).stdout.strip()
    refused = slurm.run("mpi-runtime", "status", "4711", "", f"{job}_9", job, code=2)
    assert "4711: scontrol says: slurm_load_jobs error: Invalid job id specified" in refused.stderr
    assert "'' is not the id of a job: ids are like 4711, or 4711_3" in refused.stderr, "for Slurm it is all jobs"
    assert f"{job}_9: scontrol says: " in refused.stderr
    assert refused.stdout.startswith(f"job {job} app: PENDING (JobHeldUser)"), "of others it says what it knows"
    slurm.run("scancel", job)


def test_two_jobs_on_one_node_see_their_own_share_and_do_not_meet(slurm: Cluster) -> None:
    place = slurm.directory()
    (place / "app.py").write_text(MEET + NEIGHBOUR)
    share = ["--cpus-per-node=2", "--gpus-per-node=2", "--memory=700M", "--time=5", "--sbatch=--nodelist=n1"]
    share.append("--env=MPI_RUNTIME_FIND_GPUS=never")
    files = [str(place / "first"), str(place / "second")]
    jobs = [
        slurm.run("mpi-runtime", "submit", *share, "app.py", *arguments, cwd=place).stdout.strip()
        for arguments in (files, files[::-1])
    ]
    printed = [slurm.wait(job).expect().stdout.splitlines() for job in jobs]
    for lines in printed:  # the job's output has both streams
        (note,) = [line for line in lines if " mpi_runtime: calls " in line]
        assert "calls of affinity, each of which may take 600 s (its time_limit), are not started any more" in note
    seen = [json.loads(next(line for line in lines if line.startswith("{"))) for lines in printed]
    assert [one["job"] for one in seen] == jobs
    for one in seen:
        assert (one["nodes"], one["hosts"], one["cpus"], one["left"]) == (["n1"], ["n1"], [2], True)
        assert "It is not started: it may take 600 s (its time_limit)" in one["too long"]
        assert one["memory"] == 700 << 20
        assert one["CPU"] <= 2
    assert sorted(seen[0]["gpus"] + seen[1]["gpus"]) == ["0", "1", "2", "3"]
