"""`mpi-runtime doctor` in the place of a program: what it sees in a job, and what it finds wrong with launches."""

import os
import re
import shlex
from itertools import pairwise

from tests.fake_nvml.machines import shown, v100_pairs
from tests.slurm.cluster import Cluster

# The first two GPUs of n2 belong to another job, so that the job has other numbers there than on n1.
OTHER = "#!/bin/sh\nexec sleep 60\n"


def assignments(variables: dict[str, str]) -> str:
    """As words for `env`."""
    return shlex.join(f"{name}={value}" for name, value in variables.items())


# Each node has four GPUs, to be seen by whoever is not told which are its own.
SEES_FOUR = {name: value for name, value in shown(v100_pairs()).items() if value is not None}
SMALL = "mount -t tmpfs -o size=8M tmpfs /dev/shm"
IN_A_COMMAND = "echo mpi-runtime doctor > d.txt; mpi-runtime batch d.txt >log 2>&1; cat batch-d/line-1.out"
LAUNCHES = {
    "mpich": {
        "corrected": f"env {assignments(SEES_FOUR)} mpirun -ppn 1 -n 2 mpi-runtime doctor",
        "handed on": f"env CUDA_VISIBLE_DEVICES=1 {assignments(SEES_FOUR)} mpirun -ppn 1 -n 2 mpi-runtime doctor",
        "right": f"srun --mpi=pmi2 env {assignments(SEES_FOUR)} mpi-runtime doctor",
        "wrong mpi": "srun --mpi=pmix python -c 'import mpi_runtime as ray; ray.init()'",
    },
    "openmpi": {
        "alone": "mpi-runtime doctor",
        "one task": f"srun -N 1 -n 1 env {assignments(SEES_FOUR)} mpi-runtime doctor",
        "in a command": f"bash -c '{IN_A_COMMAND}'",
        "right": f"env {assignments(SEES_FOUR)} mpi-runtime run -n 2 -m mpi_runtime.cli.main doctor",
        "not found": "mpi-runtime run -n 2 doctor",
        "crowded": "mpirun --bind-to none --map-by ppr:4:node:OVERSUBSCRIBE -n 8 mpi-runtime doctor",
        "tight": "bash -c 'ulimit -n 40; mpi-runtime doctor'",
        "too tight": "srun -n 4 --mpi=pmix bash -c 'ulimit -n 20; exec mpi-runtime doctor'",
        "small": f"unshare -m bash -c '{SMALL}; exec mpi-runtime run -n 2 --hosts $(hostname):2 doctor'",
        "one gpu each": f"srun -n 4 --mpi=pmix --gpu-bind=single:1 env {assignments(SEES_FOUR)} mpi-runtime doctor",
        "bound": "mpirun --bind-to core --map-by ppr:1:node -n 2 mpi-runtime doctor",
        "not bound": f"srun --mpi=pmix --gpu-bind=none env {assignments(SEES_FOUR)} mpi-runtime doctor",
        "without mpi": "srun --mpi=none mpi-runtime doctor",
        "wrong mpi": "srun --mpi=pmi2 mpi-runtime doctor",
    },
}


def ask(slurm: Cluster) -> dict[tuple[str, str], str]:
    """What each launch says, ending with its exit code."""
    share = ("--gpus-per-node=2", "--cpus-per-task=1")
    other = slurm.sbatch(OTHER, "-N1", "--nodelist=n2", *share)
    slurm.wait_until_running(other)
    jobs = {}
    for mpi, launches in LAUNCHES.items():
        lines = [f"echo '== {name}'; {line} 2>&1; echo exit $?" for name, line in launches.items()]
        script = "\n".join(["#!/bin/bash", *lines, "echo '== end'", ""])
        nodes = "--nodelist=n[1-2]" if mpi == "mpich" else "--nodelist=n[1,3]"
        jobs[mpi] = slurm.sbatch(script, "-N2", "--ntasks-per-node=2", nodes, *share, mpi=mpi)
        slurm.wait_until_running(jobs[mpi])
    found: dict[tuple[str, str], str] = {}
    for mpi, job in jobs.items():
        text = slurm.wait(job).expect().stdout
        marks = list(re.finditer("^== (.*)\n", text, re.MULTILINE))
        found |= {(mpi, one[1]): text[one.end() : after.start()] for one, after in pairwise(marks)}
    slurm.run("scancel", other)
    return found


def nothing_is_wrong_with_right_launches(said: dict[tuple[str, str], str]) -> None:
    text = said["openmpi", "right"]
    assert text.endswith("nothing wrong was found\nexit 0\n"), text
    assert re.search(r"job \d+ \(slurm\) on n1, n3, (9|10) min \d\d s left; launcher: openmpi; Open MPI", text)
    rows = re.findall(r"^ +(\d)  (n\d) +\S+ +1\.0 GiB  (\S+) \((\d)\)$", text, re.MULTILINE)
    assert rows == [("0", "n1", "2,3", "2"), ("1", "n3", "0,1", "2")], "the GPUs of each node"
    assert re.search(r"^n1 to n3: \d+ us for a small message, \d+\.\d\d GB/s$", text, re.MULTILINE)
    text = said["openmpi", "in a command"]
    assert re.search(
        r"job \d+ \(slurm\) in a command or call, which has CPUs and GPUs of its own, \d+ [minh]+ \d\d [mins]+ left",
        text,
    )
    assert text.endswith("nothing wrong was found\nexit 0\n"), "it has no GPU, and shall have none"
    assert said["openmpi", "one task"].endswith("nothing wrong was found\nexit 0\n"), "the user has chosen its node"
    assert said["mpich", "right"].endswith("nothing wrong was found\nexit 0\n")
    text = said["mpich", "corrected"]
    assert text.endswith("nothing wrong was found\nexit 0\n"), "mpirun hands 0,1 on, and n2 has others"
    assert re.search(r"^ +1  n2 .* 2,3 \(2\)$", text, re.MULTILINE), text


def wrong_launches_are_told_with_what_mends_them(said: dict[tuple[str, str], str]) -> None:
    for launch, what, cure in (
        (("openmpi", "alone"), "no rank runs on n3, though the job has them", "mpi-runtime run -n 2 app.py"),
        (("openmpi", "without mpi"), "srun started 4 tasks but offered them no MPI", "srun --mpi=pmix"),
        (("openmpi", "wrong mpi"), "The launcher started 4 ranks, but MPI made a world of 1", "srun --mpi=pmix"),
        (("openmpi", "not found"), "on n3 the job has 2 GPUs, and none was found", "mpi-runtime gpus, started by"),
        (("openmpi", "crowded"), "on n3 4 ranks share 2 CPUs", "mpi-runtime run -n 2 app.py"),
        (("openmpi", "tight"), "a process may have 40 files open (ulimit -Hn)", "ulimit -n "),
        (("openmpi", "too tight"), "on n1 a process may have 20 files open (ulimit -Hn)", "ulimit -n "),
        (("openmpi", "small"), "on n1 /dev/shm has 8 MiB", "one rank for each node"),
        (("openmpi", "one gpu each"), "on n1 no rank that runs calls is shown GPUs 2, though", "and --gpu-bind"),
        (("mpich", "handed on"), "on n2 ranks are shown GPUs 1, but the job has 2, 3 there", "-genvnone"),
    ):
        text = said[launch]
        assert what in text, text
        assert cure in text, text
        assert text.endswith("exit 1\n")
    for name in ("too tight", "small"):
        assert "MPI_INIT" not in said["openmpi", name], "MPI is not started: it would fail, or wait for ever"
    for name in ("without mpi", "wrong mpi", "small"):
        assert said["openmpi", name].count("wrong: ") == 1, "one rank says it"
    text = said["mpich", "wrong mpi"]
    assert "The launcher started 4 ranks, but MPI cannot make a world of them" in text, text
    assert "With MPICH use: srun --mpi=pmi2" in text
    assert "PMI" not in text.split("mpi_runtime.errors.LaunchError")[0], "nothing of MPI_Init"


def gpus_that_nobody_tells_apart_are_told(said: dict[tuple[str, str], str]) -> None:
    text = said["openmpi", "not bound"]
    for host in ("n1", "n3"):
        assert f"wrong: on {host} no GPU is used: Slurm has given the job 2 of the 4 GPUs to be seen" in text, text
    assert text.count("fix: srun --mpi=pmix --gpus-per-node=2 ..., without --gpu-bind=none\n") == 2
    assert text.endswith("exit 1\n")


def a_part_of_the_cpus_is_told(said: dict[tuple[str, str], str]) -> None:
    text = said["openmpi", "bound"]
    assert re.search(
        r"wrong: on n1 the rank that runs calls is bound to 1 of 2 CPUs, and so are all calls there\n", text
    )
    assert "fix: mpirun --bind-to none ..." in text


def test_what_it_says_of_right_and_wrong_launches(slurm: Cluster) -> None:
    said = ask(slurm)
    nothing_is_wrong_with_right_launches(said)
    wrong_launches_are_told_with_what_mends_them(said)
    if not slurm.is_new:  # which tells them apart
        gpus_that_nobody_tells_apart_are_told(said)
    if (os.cpu_count() or 1) > 1:  # else there is no part
        a_part_of_the_cpus_is_told(said)
