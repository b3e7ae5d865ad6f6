"""Jobs of `submit` on stand-ins of PBS, LSF and Flux: exit codes, arrays, cancels, the end of the time, requeues."""

import json
import re
import socket

import pytest

from tests.helpers import MARK, wait_until
from tests.standins import flux
from tests.standins.farm import Farm

APP = """
import sys
import mpi_runtime as ray

ray.init()
print("began", flush=True)
sys.exit(int(sys.argv[1]))
"""
SHOW = """
import json, os, time
from mpi_runtime import slurm

own = slurm.allocation()
end_s = slurm.end_time()
print(json.dumps([own.system, own.job, own.nodes, own.cpus, own.gpus, end_s and end_s - time.time()]), flush=True)
time.sleep(300)
"""
WARNED = """
import sys, time
from mpi_runtime import slurm

end_s = slurm.end_time()
slurm.before_walltime(1, lambda: print("called", round(end_s - time.time()), "s before the end", flush=True))
time.sleep(int(sys.argv[1]))
"""
JOURNAL = """
import sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(num_cpus=2, journal="journal", requeue=True, requeue_before_s=int(sys.argv[2]))
print("life", slurm.allocation().restarts, flush=True)

@ray.remote
def part(x):
    time.sleep(1)
    return x

parts = [part.options(num_cpus=1).remote(x) for x in range(int(sys.argv[1]))]
print("right", sum(ray.get(parts)), flush=True)
"""
HERE = socket.gethostname()


def printed(queue: Farm, job: str) -> str:
    """The id as commands of the system print it."""
    return {"pbs": f"{job}.head", "lsf": job, "flux": flux.f58(int(job)) if queue.system == "flux" else ""}[
        queue.system
    ]


@pytest.mark.timeout(240)
def test_a_job_ends_with_the_exit_code_of_the_program(queue: Farm) -> None:
    queue.program(APP)
    for code in (0, 3, 99):
        words = ["--ranks-per-node", "2", "--cpus-per-node", "2", "--time", "5:00", "app.py", str(code)]
        done = queue.run("mpi-runtime", "submit", "--wait", *words, code=code)
        assert done.stdout.count("began") == 1, "99 queues nothing again"
        assert ("FAILED" if code else "COMPLETED") in done.stderr.splitlines()[-1]
        job = done.stdout.split()[0]
        assert f"the program has ended with {code}" in queue.run("mpi-runtime", "status", job).stdout
        written = [queue.work / f"app-{job}.{name}" for name in ("out", "exit")]
        assert {*queue.work.iterdir()} == {queue.work / "app.py", *written}
        for path in written:
            path.unlink()


def test_what_a_job_knows_and_a_cancel(queue: Farm) -> None:
    queue.program(SHOW)
    job = queue.submit("--gpus-per-node", "1", "--time", "5:00", "app.py")
    out = queue.work / f"app-{job}.out"
    wait_until(lambda: out.exists() and "]" in out.read_text(), 60, "the program")
    system, own, nodes, cpus, gpus, left_s = json.loads(out.read_text())
    assert (system, own, nodes, gpus) == (queue.system, job, [HERE], ["0"])
    assert cpus == ([] if system == "flux" else [4]), "the whole node"
    assert 200 < left_s <= 300
    (now,) = queue.status(printed(queue, job))
    assert (now["state"], now["nodes"], now["name"], now["time_limit"]) == ("RUNNING", HERE, "app", "00:05:00")
    waits = queue.submit("--time", "5:00", "app.py")
    wait_until(lambda: queue.status(waits)[0]["reason"] != "", 20, "a reason")
    (then,) = queue.status(waits)
    reason = {"pbs": "Insufficient amount of resource: ncpus", "lsf": "Job slot limit reached: 2 hosts",
              "flux": "insufficient resources"}[queue.system]  # fmt: skip
    assert (then["state"], then["reason"]) == ("PENDING", reason)
    queue.run("python", "-c", f"from mpi_runtime.slurm import jobs; jobs.cancel_waiting(['{job}', '{waits}'])")
    assert queue.status(waits)[0]["state"] == "CANCELLED"
    assert queue.status(job)[0]["state"] == "RUNNING"
    queue.run("python", "-c", f"from mpi_runtime.slurm import jobs; jobs.cancel('{job}'); jobs.cancel('{waits}')")
    wait_until(lambda: queue.status(job)[0]["state"] == "CANCELLED", 40, "the end of the job")


def test_an_array_has_a_table(queue: Farm) -> None:
    queue.program("import sys; print('task', sys.argv[1]); sys.exit(int(sys.argv[1]) - 1)")
    words = ["--array", "1-3%2", "--cpus-per-node", "1", "--time", "5:00", "app.py", "{task}"]
    if queue.system == "flux":
        done = queue.run("mpi-runtime", "submit", *words, code=2)
        assert "Flux has no arrays of jobs: one job can run many commands by --batch" in done.stderr
        return
    done = queue.run("mpi-runtime", "submit", "--wait", *words, code=1)
    rows = re.findall(r"^(\d) +(\w+) +(\d)", done.stdout, re.MULTILINE)
    assert rows == [("1", "COMPLETED", "0"), ("2", "FAILED", "1"), ("3", "FAILED", "2")]
    assert len(list(queue.work.glob("app-*_2.out"))) == 1


def test_a_job_waits_for_the_end_of_another(queue: Farm) -> None:
    queue.program(
        "import os, sys, time\n"
        "began = time.time()\n"
        "while not os.path.exists('go'): time.sleep(0.1)\n"
        "print(began, time.time(), flush=True); sys.exit(3)"
    )
    words = ["--cpus-per-node", "1", "--time", "5:00"]
    first = queue.submit(*words, "app.py")
    second = queue.submit(*words, "--after", first, "app.py")
    wait_until(lambda: queue.status(second)[0]["reason"] != "", 20, "a reason")
    assert re.search("hold|dependency", str(queue.status(second)[0]["reason"]))
    (queue.work / "go").touch()
    wait_until(lambda: queue.status(second)[0]["state"] == "FAILED", 60, "the end")
    (_, end), (began, _) = ((queue.work / f"app-{job}.out").read_text().split() for job in (first, second))
    assert float(began) > float(end)


def test_the_signal_before_the_end_and_the_end(queue: Farm) -> None:
    queue.program(WARNED)
    limit, warn_s, stays_s = ("1:00", "50", "20") if queue.system == "lsf" else ("0:14", "8", "40")
    words = ["--cpus-per-node", "1", "--time", limit, "--warn-s", warn_s, "app.py", stays_s]
    done = queue.run("mpi-runtime", "submit", "--wait", *words, code=None)
    (left_s,) = re.findall(r"called (\d+) s before the end", done.stdout)
    assert 3 <= int(left_s) <= int(warn_s)
    assert done.returncode == 0 if queue.system == "lsf" else "TIMEOUT" in done.stderr.splitlines()[-1]


@pytest.mark.timeout(240)
def test_a_job_with_a_journal_ends_over_several_lives(queue: Farm) -> None:
    queue.program(JOURNAL)
    limit, before_s, parts = ("1:00", 40, 100) if queue.system == "lsf" else ("0:24", 12, 36)
    words = ["--cpus-per-node", "2", "--time", limit, "app.py", str(parts), str(before_s)]
    done = queue.run("mpi-runtime", "submit", "--wait", *words)
    assert f"right {sum(range(parts))}" in done.stdout
    lives = re.findall(r"^life (\d)$", done.stdout, re.MULTILINE)
    assert len(lives) >= 2
    counted = list(map(str, range(len(lives))))
    assert lives == (["0", *["1"] * (len(lives) - 1)] if queue.system == "lsf" else counted)
    job = done.stdout.split()[0]
    (now,) = queue.status(job)
    assert (now["job"], now["state"], now["program_exit_code"]) == (job, "COMPLETED", 0)
    assert not list(queue.work.glob("*.job"))


@pytest.mark.timeout(300)
def test_a_batch_ends_over_several_lives(queue: Farm) -> None:
    limit, count = ("1:00", 80) if queue.system == "lsf" else ("0:30", 50)  # a life ends in the middle of its time
    (queue.work / "jobs.txt").write_text("".join(f"sleep 1; echo {number} >> ran\n" for number in range(count)))
    words = ["--batch", "jobs.txt", "--cpus-per-node", "2", "--time", limit, "--requeue", "--", "--fresh"]
    done = queue.run("mpi-runtime", "submit", "--wait", *words)
    assert f"{count} of {count} done" in done.stdout
    assert "ending what runs; the same line continues later" in done.stdout
    ran = (queue.work / "ran").read_text().split()
    assert {*ran} == {*map(str, range(count))}
    assert len(ran) < count + 10, "what was done is not forgotten"


def test_a_wrong_launch_line_is_named_with_its_cure(queue: Farm) -> None:
    queue.program("")
    text = queue.run("mpi-runtime", "submit", "--dry-run", "-N", "2", "--cpus-per-node", "1", "app.py").stdout
    lines = [line for line in text.splitlines() if re.match(r"#|cd |own=|export MPI_RUNTIME_FLUX", line)]
    script = "\n".join([*lines, f"cd {queue.work}; mpi-runtime doctor >found 2>&1"])
    command = {"pbs": ["qsub"], "lsf": ["bsub"], "flux": ["flux", "batch"]}[queue.system]
    queue.run(*command, stdin=f"{script}\n")
    found = queue.work / "found"
    wait_until(lambda: found.exists() and "fix" in found.read_text(), 60, "doctor")
    assert "no rank runs on ghost, though the job has them" in found.read_text()
    assert "mpi-runtime run -n 2 app.py" in found.read_text()


def test_doctor_as_a_job_knows_the_variables_of_submit(queue: Farm) -> None:
    words = ["--wait", "--time", "5:00", "--warn-s", "60", "--name", "a.b-5"]
    said = queue.run("mpi-runtime", "submit", "--doctor", *words).stdout
    assert f"({queue.system}) on {HERE}" in said
    assert "nothing wrong was found" in said
    noted = re.findall(r"(\w+) is set, and this runtime does not read it", said)
    assert {*noted} <= {MARK}


CALLS = """
import os, time
from mpi_runtime import slurm

def where(number):
    return number, slurm.allocation().system

executor = slurm.Executor("calls", time="0:02:00", cpus_per_node=1)
jobs = [*executor.map_array(where, [0]), *executor.map_array(where, range(1, 3))]
waits, bad = executor.submit(time.sleep, 300), executor.submit(os._exit, 3)
print(*[job.result(60) for job in jobs], waits.cancel(), type(bad.exception(90)).__name__)
"""


def test_calls_of_an_executor_are_jobs(queue: Farm) -> None:
    queue.program(CALLS)
    words = queue.run("python", "app.py").stdout.strip()
    assert words == " ".join(str((number, queue.system)) for number in range(3)) + " True JobError"


def test_a_pbs_without_history_forgets_a_job_at_its_end(pbs: Farm) -> None:
    (pbs.queue / "history").unlink()
    pbs.program("import sys, time; time.sleep(float(sys.argv[1])); sys.exit(3)")
    words = ["--cpus-per-node", "4", "--time", "5:00", "app.py"]
    done = pbs.run("mpi-runtime", "submit", "--wait", *words, "0", code=3)
    job = done.stdout.split()[0]
    assert (
        "FAILED (PBS has forgotten it), exit code 3; the program has ended with 3"
        in pbs.run("mpi-runtime", "status", job).stdout
    )
    long, waits = pbs.submit(*words, "300"), pbs.submit(*words, "300")
    pbs.run("qdel", waits)
    assert pbs.status(waits)[0]["state"] == "CANCELLED"
    wait_until(lambda: (pbs.work / f"app-{long}.exit").exists(), 60, "the program")
    pbs.run("qdel", long)
    wait_until(lambda: pbs.status(long)[0]["state"] == "FAILED", 60, "the end")
    assert "does not know the job 4711" in pbs.run("mpi-runtime", "status", "4711", code=2).stderr


REQUEUES = """
import pathlib, time
from mpi_runtime import slurm

slurm.before_walltime(1, slurm.requeue)
pathlib.Path("listens").touch()
time.sleep(300)
"""


def test_a_deleted_job_is_not_queued_again(queue: Farm) -> None:
    """SIGTERM calls the callback, long before the end of the time."""
    queue.program(REQUEUES)
    job = queue.submit("--cpus-per-node", "1", "--time", "10:00", "app.py")
    wait_until((queue.work / "listens").exists, 60, "the program")
    queue.run(*{"pbs": ["qdel"], "lsf": ["bkill"], "flux": ["flux", "cancel"]}[queue.system], job)
    wait_until(lambda: queue.status(job)[0]["state"] not in ("RUNNING", "PENDING"), 60, "the end")
    assert queue.status(job)[0]["state"] == "CANCELLED"
    assert not list(queue.work.glob("*.next"))
    assert len(list(queue.queue.glob("*.job"))) == (1 if queue.system == "lsf" else 2), (
        "the successor, which is deleted"
    )


def test_a_user_cannot_rerun_a_job_of_pbs(pbs: Farm) -> None:
    pbs.program(REQUEUES)
    job = pbs.submit("--cpus-per-node", "1", "--time", "10:00", "app.py")
    assert "Unauthorized Request" in pbs.run("qrerun", job, code=159).stderr


REFUSED: list[tuple[list[str], dict[str, str]]] = [
    (["-p", "absent"], {"pbs": "The queues there are: qstat -Q", "lsf": "The queues there are: bqueues",
                        "flux": "The queues there are: flux queue list"}),
    (["-p", "short", "--time", "5:00"], {"pbs": "limits of a queue: qstat -Q -f QUEUE", "lsf": "bqueues -l QUEUE",
                                         "flux": "The limits of each queue: flux queue list"}),
    (["-N", "1-2"], dict.fromkeys(("pbs", "lsf", "flux"), "no ranges of nodes")),
    (["--sbatch=-Cx"], dict.fromkeys(("pbs", "lsf", "flux"), "no options of sbatch")),
    (["--gpus-per-node", "a100:2"], dict.fromkeys(("pbs", "lsf", "flux"), "no types of GPUs")),
    (["--qsub=--nonsense"], {"pbs": "usage: qsub", "lsf": "Bad option", "flux": "unrecognized arguments"}),
]  # fmt: skip


def test_what_is_refused_is_explained(queue: Farm) -> None:
    queue.program("")
    for words, error in REFUSED:
        done = queue.run("mpi-runtime", "submit", *words, "app.py", code=2)
        assert error[queue.system] in done.stderr, words
    assert not list(queue.work.glob("app-*"))
