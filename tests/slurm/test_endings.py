"""Jobs that end otherwise than by the end of their program, early or late signals among them; all side by side."""

from __future__ import annotations

import os
import re

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster

# Its state is in an actor. What it says when it is told is how much of its time is left.
STATEFUL = """
import os, sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

if slurm.allocation().restarts >= int(sys.argv[2]):
    print("last life", flush=True)
    sys.exit(0)
ray.init()

@ray.remote
class State:
    def get(self):
        return 42

state = State.options(num_cpus=0).remote()
assert ray.get(state.get.remote()) == 42

def save():
    print(f"saved {ray.get(state.get.remote())}, {slurm.end_time() - time.time():.0f} s left", flush=True)
    slurm.requeue()

slurm.before_walltime(float(sys.argv[1]), save)
print("working", flush=True)
try:
    time.sleep(1000)
finally:
    print("ends in order", flush=True)
"""
VANISHES = "import os\nimport mpi_runtime as ray\n\nray.init()\nos._exit(0)\n"
# Has nothing to save.
SIMPLE = """
import pathlib, sys, time

print("working", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("done", flush=True)
"""


def submit(slurm: Cluster, app: str, *words: str, options: tuple[str, ...] = ()) -> str:
    directory = slurm.directory()
    (directory / "app.py").write_text(app)
    command = ["mpi-runtime", "submit", "--cpus-per-node=1", "--time=5", *options, "app.py", *words]
    return slurm.run(*command, cwd=directory).stdout.strip()


def announce(slurm: Cluster, job: str) -> None:
    """Send what Slurm sends for --warn-s."""
    slurm.run("scancel", "--batch", "--signal=URG", job)


def test_an_announcement_that_comes_before_the_program_waits_for_it(slurm: Cluster) -> None:
    done = slurm.directory() / "done"
    early = ("--warn-s=60", "--setup=echo setting up; sleep 2", "--setup=sleep 1")
    jobs = {
        "callback": submit(slurm, STATEFUL, "0", "1", options=early),
        "two nodes": submit(slurm, STATEFUL, "0", "1", options=("-N2", *early)),
        "none": submit(slurm, SIMPLE, str(done), options=early),
    }
    at_once = submit(slurm, SIMPLE, str(done))
    while "working" not in slurm.output(at_once):  # at the very begin of the script, too
        slurm.run("scancel", "--batch", "--signal=URG", at_once, code=None)
        assert slurm.facts(at_once)["JobState"] in ("PENDING", "CONFIGURING", "RUNNING")
    for job in jobs.values():
        slurm.wait_for_output(job, "setting up\n")
        announce(slurm, job)
    said = slurm.wait_for_output(jobs["none"], "SIGUSR1 announces that the job's time ends")
    assert "mpi_runtime.slurm.before_walltime(seconds, callback)" in said
    done.touch()
    assert slurm.wait(jobs["none"]).expect().stdout.endswith("done\n")
    assert slurm.wait(at_once).expect().stdout.endswith("done\n")
    for name in ("callback", "two nodes"):
        ended = slurm.wait_for_requeued(jobs[name]).expect()
        assert "saved 42, " in ended.stdout, name
        assert "ends in order\n" in ended.stdout, name
        assert ended.stdout.endswith("last life\n"), name


def test_where_the_end_is_known_an_early_announcement_waits_and_a_requeue_is_one_line(slurm: Cluster) -> None:
    options = ("-N2", "--requeue", "--warn-s=18")
    jobs = [submit(slurm, STATEFUL, seconds, "2", options=options) for seconds in ("10", "18")]
    for life in (1, 2):
        for job in jobs:
            slurm.wait_for_output(job, "working\n", times=life)
            slurm.run("scontrol", "update", f"JobId={job}", "EndTime=now+22")
            announce(slurm, job)
        for job in jobs:
            slurm.wait_for_output(job, "saved ", times=life)
        if life == 1:
            wait_until(lambda: all(slurm.facts(job)["Restarts"] == "1" for job in jobs), 30, "the requeue")
    for job in jobs:
        wait_until(lambda job=job: slurm.facts(job)["Restarts"] == "2", 30, "the second requeue")  # type: ignore[misc]
        ended = slurm.wait(job).expect()
        # The shell of the script says "Terminated" if it outlives the program that Slurm ends.
        lines = [line for line in ended.stdout.splitlines() if line != "Terminated"]
        left_s = [int(line.split()[2]) for line in lines if line.startswith("saved 42, ")]
        assert len(left_s) == 2
        assert all(10 < seconds <= 18 for seconds in left_s), ended.stdout  # not at 10 s, which one has asked for
        first = lines[lines.index("ends in order") + 1 :]
        assert "DUE TO JOB REQUEUE" in first[0], ended.stdout
        assert first[1] == "working", ended.stdout
        assert len(lines) == 2 * 4 + 1, ended.stdout


def test_on_one_node_actors_survive_the_sigterm_that_all_processes_get(slurm: Cluster) -> None:
    job = submit(slurm, STATEFUL, "0", "1")
    slurm.wait_for_output(job, "working\n")
    slurm.run("scancel", job)
    ended = slurm.wait(job)
    assert ended.state == "CANCELLED"
    assert "saved 42, " in ended.stdout, ended.stdout
    assert f"SlurmError: job {job} was cancelled" in ended.stdout


def test_setup_moves_fails_and_knows_variables(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "sub").mkdir()
    (directory / "sub/app.py").write_text(
        "import os, sys\nprint(os.environ['PLACE'], os.environ['PRICE'])\nsys.exit(3)\n"
    )
    submit = ["mpi-runtime", "submit", "--wait", "--cpus-per-node=1"]
    started = {
        "moved": slurm.start(
            *submit,
            "--setup=cd sub",
            "--env=PLACE=$HOME/${SLURM_JOB_USER}",
            "--env=PRICE=5\\$",
            "app.py",
            cwd=directory,
        ),
        "setup": slurm.start(*submit, "--setup=ls no-such-file", "sub/app.py", cwd=directory),
        "module": slurm.start(*submit, "--module=gcc", "sub/app.py", cwd=directory),
    }
    ended = {name: program.finish() for name, program in started.items()}
    ended["moved"].expect(3)
    assert f"{slurm.place}/home/root 5$\n" in ended["moved"].stdout
    ended["setup"].expect(2)
    assert "mpi-runtime: the program is not started: ls no-such-file has ended with 2\n" in ended["setup"].stdout
    ended["module"].expect(127)
    assert "the program is not started: module load gcc has ended with 127\n" in ended["module"].stdout
    for name, program in ended.items():
        state = slurm.wait(program.stdout.splitlines()[0]).state
        assert state == "FAILED", name


def test_a_program_that_ends_early_is_not_requeued_though_another_step_has_all_memory(slurm: Cluster) -> None:
    """The script asks all nodes whether they are there, which must not wait for anything."""
    other = "--setup=srun --mpi=none -n2 sleep 60 & sleep 2"
    launcher = "--launcher=srun --mpi=pmix --overlap --mem=0"
    job = submit(slurm, VANISHES, options=("-N2", "--requeue", other, launcher))
    ended = slurm.wait(job).expect("FAILED", "1:0")
    assert ended.facts["Restarts"] == "0"
    assert "mpi-runtime: the program did not run to its end" in ended.stdout
    assert "does not answer" not in ended.stdout


def test_a_directory_into_which_nothing_can_be_written_is_told(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text("print('not reached')\n")
    words = ["mpi-runtime", "submit", "--cpus-per-node=1", "--sbatch=--hold", "app.py"]
    job = slurm.run(*words, cwd=directory).stdout.strip()
    (directory / f"app-{job}.exit").mkdir()  # as little can be written there as on a full file system
    slurm.run("scontrol", "release", job)
    assert slurm.wait(job).expect("FAILED", "73:0").stdout == ""
    (directory / f"app-{job}.exit").rmdir()
    said = slurm.run("mpi-runtime", "status", job, cwd=directory).stdout
    assert "its node could write nothing into its directory: the file system is full, or your quota" in said, said


def test_words_reach_the_program_and_slurm_as_they_are(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "a b.py").write_text("import sys\nprint(ascii(sys.argv[1:]))\n")
    words = ["x y", "it's", '"q"', "new\nline", "\u2603", "$HOME", "`id`", "*", "", "--wait", "\\", "l" * 100_000]
    comment = 'it\'s # a "comment" with \\'
    submit = ["mpi-runtime", "submit", "--wait", "--cpus-per-node=1", f"--sbatch=--comment={comment}"]
    for nodes in ("-N1", "-N2"):
        done = slurm.start(*submit, nodes, "a b.py", *words, cwd=directory).finish().expect(0)
        job, said = done.stdout.splitlines()
        assert said == ascii(words), nodes
        assert f"   Comment={comment}" in slurm.run("scontrol", "show", "job", job).stdout


def test_a_job_submits_another_of_another_shape(slurm: Cluster) -> None:
    """What Slurm has set in the first would mislead the launcher of the second."""
    directory = slurm.directory()
    (directory / "app.py").write_text("import mpi_runtime as ray\nray.init()\nprint(len(ray.nodes()), 'nodes')\n")
    shape = ("-n3", "--ntasks-per-node=3", "--mem-per-cpu=100", "--gpus-per-node=1")
    script = "#!/bin/sh\nexec mpi-runtime submit -N2 --cpus-per-node=1 app.py\n"
    first = slurm.wait(slurm.sbatch(script, *shape, cwd=directory)).expect()
    assert slurm.wait(first.stdout.strip()).expect().stdout == "2 nodes\n"


def test_arrays_are_waited_for_and_shown_task_by_task(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text("import sys\nprint(sys.argv)\nsys.exit({'2': 5}.get(sys.argv[2], 0))\n")
    line = [
        "mpi-runtime",
        "submit",
        "--wait",
        "--cpus-per-node=1",
        "--array=1-3",
        "app.py",
        "--of",
        "{task}",
        "t{task}.x",
    ]
    done = slurm.start(*line, cwd=directory).finish().expect(5)
    job = done.stdout.splitlines()[0]
    rows = [text.split() for text in done.stdout.splitlines()[1:]]
    assert rows[0] == ["task", "state", "exit", "code", "nodes", "time", "output"]
    assert [row[:3] for row in rows[1:]] == [["1", "COMPLETED", "0"], ["2", "FAILED", "5"], ["3", "COMPLETED", "0"]]
    assert "2 COMPLETED, 1 FAILED" in done.stderr
    for number in (1, 2, 3):
        assert (directory / f"app-{job}_{number}.out").read_text() == f"['app.py', '--of', '{number}', 't{number}.x']\n"
        assert (directory / f"app-{job}_{number}.exit").exists()
    shown = slurm.run("mpi-runtime", "status", job, cwd=directory).stdout
    assert [text.split()[:3] for text in shown.splitlines()[2:]] == [row[:3] for row in rows[1:]]
    one = slurm.run("mpi-runtime", "status", f"{job}_2", cwd=directory).stdout
    assert one.startswith(f"job {job}_2 app: FAILED")
    assert "the program has ended with 5" in one


def test_tasks_of_an_array_that_are_cancelled_while_they_wait_have_not_succeeded(slurm: Cluster) -> None:
    """Slurm says nothing of them any more. It writes many indices with a step, as 0-20:2."""
    directory = slurm.directory()
    (directory / "app.py").write_text("print()\n")
    line = ["mpi-runtime", "submit", "--wait", "--cpus-per-node=1", "--sbatch=--hold", "--array=0-20:2%9", "app.py"]
    program = slurm.start(*line, cwd=directory)
    wait_until(lambda: "11 PENDING" in program.stderr, 30, "the array")
    job = program.stdout.split()[0]
    slurm.run("scancel", f"{job}_4")
    wait_until(lambda: "1 CANCELLED, 10 PENDING" in program.stderr, 30, "word of the cancelled task")
    slurm.run("scontrol", "release", job)
    rows = [text.split()[:3] for text in program.finish().expect(1).stdout.splitlines()[2:]]
    ended = {4: ["CANCELLED", "none"]}
    assert rows == [[str(number), *ended.get(number, ["COMPLETED", "0"])] for number in range(0, 21, 2)]


def test_what_can_never_run_is_refused(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text("import time; time.sleep(100)")
    for words, said in (
        (["-N9", "app.py"], "it could never start"),
        (["--cpus-per-node=99", "app.py"], "Requested node configuration is not available"),
        (["missing.py"], f"there is no file 'missing.py' in {directory}"),
        (["app.py --size 3"], "a program with arguments is a list, ['app.py', '--size', '3']"),
        (["--time=1h", "app.py"], "1h is '1:00:00'"),
    ):
        refused = slurm.run("mpi-runtime", "submit", *words, cwd=directory, code=2).stderr
        assert said in refused, (words, refused)
    assert slurm.run("squeue", "-h", "-o", "%j").stdout.split().count("app") == 0
    # A node that is drained may come back.
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    try:
        job = slurm.run("mpi-runtime", "submit", "-N3", "--cpus-per-node=1", "app.py", cwd=directory).stdout.strip()
        assert slurm.facts(job)["JobState"] == "PENDING"
        slurm.run("scancel", job)
    finally:
        slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")


def test_init_says_what_of_the_job_is_not_used(slurm: Cluster) -> None:
    """One job of two nodes, several launches in it."""
    launches = {
        "alone": "python app.py",
        "meant": "srun -N1 -n1 python app.py",
        "bound": "mpirun --bind-to core -n 2 --map-by ppr:1:node python app.py",
        "a part": "mpirun --bind-to none -n 2 --map-by ppr:2:node python app.py",
        "right": "mpi-runtime run -n 2 app.py",
        "no gpus": "env -u MPI_RUNTIME_FIND_GPUS mpi-runtime run -n 2 app.py",
        "more": "mpi-runtime run -n 5 app.py",
    }
    lines = [f"echo '== {name}'; {line} 2>&1" for name, line in launches.items()]
    share = ("-N2", "--ntasks-per-node=2", "--cpus-per-task=1", "--gpus-per-node=2")
    app = "import mpi_runtime as ray\nray.init()\nprint(len(ray.nodes()), 'nodes')\n"
    text = (
        slurm.wait(
            slurm.sbatch("\n".join(["#!/bin/bash", "export MPI_RUNTIME_FIND_GPUS=never", *lines, ""]), *share, app=app)
        )
        .expect()
        .stdout
    )
    said = dict(part.split("\n", 1) for part in text.split("== ")[1:])
    for name in ("meant", "right", "more"):
        assert "mpi_runtime:" not in said[name], (name, said[name])
    assert said["right"] == said["more"] == "2 nodes\n"
    alone = "mpi_runtime: the program was started as a single process: no rank runs on n"
    assert alone in said["alone"], said["alone"]
    assert (
        " though the job has them (fix: mpi-runtime run -n 2 app.py; for a batch: mpi-runtime batch -n 2 FILE)\n"
        in said["alone"]
    )
    assert "1 nodes\n" in said["alone"]
    assert "mpi_runtime: no rank runs on n" in said["a part"], said["a part"]
    assert "(fix: mpi-runtime run -n 2 app.py, or mpirun --map-by ppr:1:node" in said["a part"]
    if (os.cpu_count() or 1) > 1:
        assert " (and 1 more) calls use 1 of the job's 2 CPUs, since the ranks are bound" in said["bound"]
    assert " (and 1 more) calls can use 0 of the job's 2 GPUs (fix: " in said["no gpus"]


def test_ranks_are_spread_over_nodes_with_unequal_tasks(slurm: Cluster) -> None:
    script = (
        "#!/bin/bash\nfor n in 3 4; do mpi-runtime run -n $n -c 'import os; print(os.uname().nodename)' | sort; done\n"
    )
    jobs = {mpi: slurm.sbatch(script, "-N3", "-n5", mpi=mpi) for mpi in ("openmpi", "mpich")}
    for mpi, job in jobs.items():
        assert slurm.wait(job).expect().stdout.split() == ["n1", "n2", "n3", "n1", "n1", "n2", "n3"], mpi


def test_a_job_has_what_it_has_asked_for_on_each_node(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text(
        "import os\nimport mpi_runtime as ray\nray.init()\n"
        "see = ray.remote(num_cpus=0)(lambda: os.environ.get('SEEN'))\n"
        "print(len(ray.nodes()), ray.cluster_resources()['CPU'], os.environ['SLURM_JOB_CPUS_PER_NODE'])\n"
    )
    wait = ["mpi-runtime", "submit", "--wait"]
    one_cpu = slurm.start(*wait, "-N3", "--cpus-per-node=1", "app.py", cwd=directory)
    whole = [
        slurm.start(*wait, "-N2", "--gpus-per-node=2", "--doctor", cwd=directory, mpi=mpi)
        for mpi in ("openmpi", "mpich")
    ]
    said = one_cpu.finish().expect(0).stdout.splitlines()[-1]
    assert said.startswith("3 "), said
    assert said.endswith(" 1(x3)"), said
    for program in whole:
        text = program.finish().stdout
        rows = re.findall(r"^ +(\d)  (n\d) +\S+ +\S+ GiB  (\S+) \(0\)$", text, re.MULTILINE)
        assert [(rank, gpus) for rank, _, gpus in rows] == [("0", "0,1"), ("1", "0,1")], text
