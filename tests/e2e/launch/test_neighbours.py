"""Two programs in one batch job: the later one warns that both count on the same CPUs."""

import os
from collections.abc import Mapping
from unittest.mock import ANY

from tests.helpers import run_program, start_program

HOLDS = """
import mpi_runtime as ray
ray.init()
print("up", flush=True)
input()
"""
NESTED = """
import subprocess, sys
import mpi_runtime as ray
from mpi_runtime import batch

ray.init()
program = "import mpi_runtime as ray; ray.init(); print(ray.cluster_resources()['CPU'])"
ran = ray.remote(lambda: subprocess.run([sys.executable, "-c", program], capture_output=True, text=True))
done = ray.get(ran.remote())
print(done.returncode, done.stderr)
result = ray.get(batch.command("{python} -c {program}", python=sys.executable, program=program))
print(open(result.stdout).read())
"""


def in_job(number: int, cpus: str = "2") -> Mapping[str, str | None]:
    """The environment of a program in a batch job of its own test. The time of its end is known: nobody is asked."""
    return {
        "SLURM_JOB_ID": f"{os.getpid()}{number}",
        "SLURM_JOB_END_TIME": "9999999999",
        "SLURM_JOB_NODELIST": os.uname().nodename,
        "SLURM_JOB_CPUS_PER_NODE": "2",
        "MPI_RUNTIME_NUM_CPUS": cpus,
    }


def said_beside(first: Mapping[str, str | None], second: Mapping[str, str | None]) -> tuple[str, int]:
    """What a program reports while another one runs, and the process id of that one."""
    with start_program(HOLDS, env=first) as one:
        one.wait_for_line("up")
        with start_program(HOLDS, env=second) as other:
            other.wait_for_line("up")
            other.write("\n")
            said = other.finish().expect(0).stderr
        one.write("\n")
        one.finish().expect(0)
        return said, one.pid


def test_the_later_of_two_programs_names_the_other_its_cpus_and_cures() -> None:
    said, other = said_beside(in_job(1), in_job(1))
    assert "this job shares processors with `python" in said
    assert f"app.py` (pid {other}, with 2 CPUs): this one counts on 2 CPUs, and the batch job has " in said
    assert (
        "start each with MPI_RUNTIME_NUM_CPUS=1, or give each a part of the node: srun --exact -N 1 -n 1 -c 1" in said
    )


def test_programs_that_have_what_they_need_report_nothing() -> None:
    """Nor does one of another batch job, or one inside a call or a command, which has a part of what its job has."""
    assert said_beside(in_job(1), in_job(2)) == ("", ANY)
    if len(os.sched_getaffinity(0)) > 1:
        assert said_beside(in_job(1, "1"), in_job(1, "1")) == ("", ANY)
    done = run_program(NESTED, env=in_job(1)).expect(0)
    assert done.output().count("shares processors") == 0, done.output()
    assert done.stdout == "0 \n1.0\n\n", "both have run"
