"""Sessions in batch jobs of a real Slurm: started from the login host, used on a node, ended in every way."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpi_runtime.files import session_files
from tests.helpers import Program, wait_until
from tests.slurm.cluster import JOB_LIMIT_S, Cluster

START = ("mpi-runtime", "session", "start")
OPTIONS = ("--cpus-per-node=2", "--memory=700M")

APP = """
import os, signal, sys, time
import mpi_runtime as ray

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # scancel sends it to this step too
ray.init(sys.argv[1], quiet=True, namespace="tests")

@ray.remote(num_cpus=1)
def where():
    time.sleep(0.3)
    return os.uname().nodename

print(sorted(set(ray.get([where.remote() for _ in range(8)]))), int(ray.cluster_resources()["CPU"]), flush=True)
if sys.argv[2:]:
    @ray.remote
    def forever():
        time.sleep(1000)
    try:
        ray.get(forever.remote())
    except ray.exceptions.SessionEndedError as error:
        print(error, flush=True)
"""


def content(slurm: Cluster, name: str) -> session_files.Session | None:
    found = list((slurm.place / "home/.local/state/mpi_runtime/sessions/test").glob(f"{name}.json"))
    return session_files.read(found[0]) if found else None


def on_node(slurm: Cluster, found: session_files.Session, *command: str, mpi: str = "openmpi") -> Program:
    """Start a command on the node of rank 0."""
    words = ("srun", f"--jobid={found.job}", "--overlap", "-N1", "-n1", "-w", found.host, "--mpi=none", "--mem=0")
    return slurm.start(*words, *command, mpi=mpi, cwd=slurm.directory())


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_session_on_two_nodes(slurm: Cluster, mpi: str) -> None:
    place = slurm.directory()
    (place / "app.py").write_text(APP)
    name = f"two-{mpi}"
    started = slurm.run(*START, *OPTIONS, "-N", "2", "--time=5", "--name", name, cwd=place, mpi=mpi)
    assert "mpi-runtime: job " in started.stderr, "it waits with a line"
    found = content(slurm, name)
    assert found is not None
    assert f"The session '{name}' runs on {found.host}, in job {found.job}" in started.stdout
    assert "exists: on n" in slurm.run(*START, *OPTIONS, "--name", name, code=2, cwd=place).stderr
    line = next(one for one in slurm.run("mpi-runtime", "session", "list").stdout.splitlines() if name in one)
    assert line.split()[:4] == [name, found.host, str(found.pid), found.job]
    assert line.endswith("running")
    assert f"job {found.job} session-{name}: RUNNING" in slurm.run("mpi-runtime", "session", "status", name).stdout
    for address in (f"session:{name}", f"slurm:{found.job}"):
        with on_node(slurm, found, "python", str(place / "app.py"), address, mpi=mpi) as program:
            hosts, cpus = program.finish().expect(0).stdout.rsplit(maxsplit=1)
            assert (hosts.count("'n"), cpus) == (2, "4"), "both nodes run calls"
    with on_node(slurm, found, "mpi-runtime", "session", "run", name, str(place / "app.py"), f"session:{name}") as run:
        assert run.finish().expect(0).stdout.endswith(" 4\n")
    with on_node(slurm, found, "python", str(place / "app.py"), f"session:{name}", "wait", mpi=mpi) as program:
        program.wait_for_line(" 4\n")
        slurm.run("mpi-runtime", "session", "stop", name)
        assert "has ended: it was stopped (`mpi-runtime session stop`)" in program.finish().stdout
    assert content(slurm, name) is None
    slurm.wait(found.job).expect()
    assert f"there is no session '{name}'" in slurm.run("mpi-runtime", "session", "stop", name, code=2).stderr
    assert list(place.iterdir()) == [place / "app.py"], "its files are elsewhere"


def test_of_two_starts_at_once_one_is_submitted(slurm: Cluster) -> None:
    words = (*START, *OPTIONS, "--time=5", "--name", "race")
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda _: slurm.run(*words, code=None).returncode, range(2)))
    assert sorted(ended) == [0, 2]
    assert len(slurm.run("squeue", "-h", "-n", "session-race").stdout.splitlines()) == 1
    slurm.run("mpi-runtime", "session", "stop", "race")


def test_a_session_that_waits_in_the_queue(slurm: Cluster) -> None:
    """Ctrl-C leaves it there; `stop` cancels it; of a job that is gone the name is free."""
    program = slurm.start(*START, *OPTIONS, "--time=5", "--name", "held", "--sbatch=--hold")
    wait_until(lambda: "PENDING (JobHeldUser)" in program.stderr, what="the line")
    program.signal(2, group=True)
    assert "stays in the queue" in program.finish().expect(130).stderr
    assert "PENDING (JobHeldUser)" in slurm.run("mpi-runtime", "session", "list").stdout
    refused = slurm.run("python", "-c", "import mpi_runtime as ray; ray.init('session:held')", code=1)
    assert "the session has not started. job " in refused.stderr
    assert "exists: job " in slurm.run(*START, *OPTIONS, "--name", "held", code=2).stderr
    slurm.run("mpi-runtime", "session", "stop", "held")
    assert content(slurm, "held") is None
    program = slurm.start(*START, *OPTIONS, "--time=5", "--name", "held", "--sbatch=--hold")
    wait_until(lambda: "PENDING (JobHeldUser)" in program.stderr, what="the line")
    found = content(slurm, "held")
    assert found is not None
    slurm.run("scancel", found.job)
    assert "the session 'held' has not started. job " in program.finish().expect(2).stderr
    assert content(slurm, "held") is None


def test_what_slurm_refuses_leaves_no_file(slurm: Cluster) -> None:
    refused = slurm.run(*START, "-p", "none", "--name", "no", code=2)
    assert "invalid partition specified: none" in refused.stderr
    assert content(slurm, "no") is None
    refused = slurm.run(*START, "--time=5", "--setup=false", "--name", "no", code=2)
    assert "the program is not started: false has ended with 1" in refused.stderr
    assert content(slurm, "no") is None


@pytest.mark.parametrize("end", ["cancelled", "node", "time"])
def test_programs_see_why_the_job_has_ended(slurm: Cluster, end: str) -> None:
    """After each the name can be used again."""
    place = slurm.directory()
    (place / "app.py").write_text(APP)
    where = ["-p", "fragile", "--sbatch=--nodelist=n6"] if end == "node" else []
    slurm.run(*START, *OPTIONS, *where, "--time=1" if end == "time" else "--time=5", "--name", end, cwd=place)
    found = content(slurm, end)
    assert found is not None
    program = on_node(slurm, found, "python", str(place / "app.py"), f"slurm:{found.job}", "wait")
    program.wait_for_line(" 2\n")
    if end == "cancelled":
        slurm.run("scancel", found.job)
        assert f"has ended: its batch job {found.job} was cancelled, or preempted" in program.finish().stdout
    elif end == "time":
        assert f"the time of its batch job {found.job} is over" in program.finish().stdout
    else:
        slurm.crash("n6", silently=False)
        wait_until(lambda: slurm.facts(found.job)["JobState"] == "NODE_FAIL", JOB_LIMIT_S, "the end of the job")
        program.signal(9, group=True)
        program.finish()
        refused = slurm.run("python", "-c", f"import mpi_runtime as ray; ray.init('session:{end}')", code=1)
        assert f"the session has ended: job {found.job} session-node: NODE_FAIL" in refused.stderr
        slurm.start_node("n6")
        slurm.wait_for_nodes()
    slurm.run(*START, *OPTIONS, "--time=5", "--name", end, cwd=place)
    slurm.run("mpi-runtime", "session", "stop", end)


OWN = """
import os, sys, time
import mpi_runtime as ray

begin = time.monotonic()
ray.init(nodes=1, time="5", cpus_per_node=2, profile="here", num_cpus=1, queue_timeout_s=60)

@ray.remote
def where():
    return os.uname().nodename

print(ray.get(where.remote()), int(ray.cluster_resources()["CPU"]), flush=True)
if sys.argv[1:]:
    os.kill(os.getpid(), 9)
"""
PROFILES = '[here]\nsbatch = ["--nodelist=n2"]\nmemory = "700M"\n[held]\nsbatch = ["--hold"]\n'


def test_a_program_with_a_session_of_its_own(slurm: Cluster) -> None:
    """It runs on the node of its session: programs elsewhere connect in another way."""
    place = slurm.directory()
    (place / "own.py").write_text(OWN)
    (place / "profiles.toml").write_text(PROFILES)
    slurm.run("true")
    step = ("srun", "-N1", "-n1", "--nodelist=n2", "--mem=100M", "--time=5", "--mpi=none", "--overlap")
    inside = ("env", f"MPI_RUNTIME_PROFILES={place}/profiles.toml", "python", "own.py")
    done = slurm.start(*step, *inside, cwd=place).finish().expect(0)
    assert done.stdout == "n2 1\n"
    job = re.findall(r"job (\d+) session-own", done.stderr)[0]
    assert slurm.wait(job).expect()
    assert not list(Path(slurm.place / "home/.local/state/mpi_runtime/sessions/test").glob("*own-*"))
    killed = slurm.run(*step, *inside, "die", cwd=place, code=137)
    assert killed.stdout == "n2 1\n"
    job = re.findall(r"job (\d+) session-own", killed.stderr)[0]
    slurm.wait(job).expect()
    late = slurm.run(
        "env", f"MPI_RUNTIME_PROFILES={place}/profiles.toml", "python", "-c",
        "import mpi_runtime as ray; ray.init(nodes=1, profile='held', queue_timeout_s=2)", code=1, cwd=place,
    )  # fmt: skip
    assert re.search(r"the job (\d+) of the session 'own-\w+' has not started in 2 s, and was cancelled", late.stderr)
    assert not slurm.run("squeue", "-h").stdout.strip()
