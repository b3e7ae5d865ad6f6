"""A job whose time ends: what cannot finish before is not started, and says why; the rest runs."""

import os
import time
from pathlib import Path

import pytest

from tests.helpers import run_program, start_program

APP = """
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote(time_limit=3600)
def long():
    return "long"

@ray.remote
def short(i):
    return i

late = [long.remote() for _ in range(3)]
in_time = long.options(time_limit=60).remote()
print(ray.get([short.remote(i) for i in range(3)]), ray.get(in_time), flush=True)
print(len(ray.wait(late, num_returns=3, timeout=0.2)[0]), ray.explain(late[-1]), flush=True)
"""


def known(in_s: float) -> dict[str, str | None]:
    """A job of Slurm as its processes see it; there is no Slurm to ask."""
    own = str(os.getpid())  # programs of one batch job would report each other
    return {"SLURM_JOB_ID": own, "SLURM_JOB_END_TIME": str(int(time.time() + in_s)), "PATH": "/nowhere"}


def test_what_takes_too_long_waits_and_the_rest_runs() -> None:
    completed = run_program(APP, env=known(600)).expect(0)
    lines = completed.stdout.splitlines()
    assert lines[0] == "[0, 1, 2] long"
    assert lines[1].startswith("0 ")
    assert "It is not started: it may take 3600 s (its time_limit), and the job's time ends in " in lines[1]
    (note,) = completed.stderr.splitlines()
    said = (
        "calls of long, each of which may take 3600 s (its time_limit), are not started any more: the job's time ends"
    )
    assert note.partition(" ")[2].startswith(f"mpi_runtime: {said}")


EXPECTED = """
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote(time_limit=3600, expect=60)
def fit(i):
    return i

print(ray.get([fit.remote(i) for i in range(3)]), sum(fit.map(range(1000)).get()), flush=True)
print(ray.explain(fit.options(expect=1800).remote(0)), flush=True)
"""


def test_what_a_task_is_expected_to_take_counts_and_not_its_limit() -> None:
    lines = run_program(EXPECTED, env=known(600)).expect(0).stdout.splitlines()
    assert lines[0] == "[0, 1, 2] 499500"
    assert "It is not started: it may take 1800 s (as expected), and the job's time ends in " in lines[1]


def test_an_end_far_off_is_none() -> None:
    lines = run_program(APP + "print(ray.get(late))", env=known(7200)).expect(0).stdout.splitlines()
    assert lines[-1] == "['long', 'long', 'long']"


LATER = (
    """
from mpi_runtime.core.driver import end_of_time
end_of_time.ASK_S = end_of_time.ASK_MAX_S = 0.5
"""
    + APP
    + """
assert ray.get(late, timeout=60) == ["long"] * 3
print("extended", flush=True)
"""
)


def test_an_end_that_is_moved_meanwhile_counts(tmp_path: Path) -> None:
    """An extended limit lets calls start that could not have finished before."""
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho JobId=5 EndTime=$(cat {tmp_path}/end)\n")
    (tmp_path / "scontrol").chmod(0o755)

    def set_end(in_s: float) -> None:
        (tmp_path / "new").write_text(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + in_s)))
        (tmp_path / "new").replace(tmp_path / "end")

    set_end(600)
    with start_program(LATER, env={**known(600), "PATH": f"{tmp_path}:{os.environ['PATH']}"}) as program:
        program.wait_for_line("It is not started")
        set_end(7200)
        completed = program.finish().expect(0)
    assert completed.stdout.endswith("extended\n")
    assert " s later than was known" in completed.stderr.splitlines()[-1]


def test_what_pbs_answers_counts_too(tmp_path: Path) -> None:
    (tmp_path / "qstat").write_text(
        "#!/bin/sh\necho 'Job Id: 5.head'\n"
        "echo '    Resource_List.walltime = 00:30:00'\necho '    resources_used.walltime = 00:20:00'\n"
    )
    (tmp_path / "qstat").chmod(0o755)
    own = {"SLURM_JOB_ID": None, "PBS_JOBID": "5.head", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert "It is not started: it may take 3600 s" in run_program(APP, env=own).expect(0).stdout


def test_the_end_of_a_job_of_oar_counts_too(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("h1\n")
    own = {"SLURM_JOB_ID": None, "OAR_JOB_ID": "5", "OAR_NODEFILE": str(tmp_path / "nodes")}
    own |= {"OAR_JOB_WALLTIME_SECONDS": "600", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert "It is not started: it may take 3600 s" in run_program(APP, env=own).expect(0).stdout


def test_the_end_of_a_job_of_flux_counts_too(tmp_path: Path) -> None:
    (tmp_path / "flux").write_text("#!/bin/sh\necho 600\n")
    (tmp_path / "flux").chmod(0o755)
    own = {"SLURM_JOB_ID": None, "FLUX_JOB_ID": "f2ocEvDUtBb", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert "It is not started: it may take 3600 s" in run_program(APP, env=own).expect(0).stdout


ACTORS = """
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote
class Model:
    @ray.method(time_limit=3600)
    def train(self):
        return "trained"

    def look(self):
        return "looked"

@ray.remote
def look(model):
    return ray.get(model.look.remote())

model = Model.remote()
late = [model.train.remote() for _ in range(3)]
behind = model.look.remote()
print(ray.get(look.remote(model)), len(ray.wait([*late, behind], num_returns=4, timeout=0.2)[0]), flush=True)
print(ray.explain(late[0]), ray.explain(behind), sep="\\n", flush=True)
for ref in late:
    ray.cancel(ref)
print(ray.get(behind), ray.get(model.train.options(time_limit=60).remote()), flush=True)
late = model.train.remote()
del model
"""


def test_calls_of_actors_wait_with_those_behind_them() -> None:
    """And an actor that waits with one that nobody can call any more does not keep the job alive."""
    completed = run_program(ACTORS, env=known(600)).expect(0)
    lines = completed.stdout.splitlines()
    assert lines[0] == "looked 0"
    assert "It is not started: it may take 3600 s (its time_limit), and the job's time ends in " in lines[1]
    assert "It comes after a call of Model.train by the same caller. Of that: It is not started: " in lines[2]
    assert lines[3] == "looked trained"
    assert completed.stderr.count("are not started any more") == len(completed.stderr.splitlines()) == 1


CHUNKS = """
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote(time_limit=100)
def fit(i):
    return i

print(sum(fit.map(range(1000)).get()), fit.map(range(10), chunk=2).get(), flush=True)
results = fit.map(range(10), chunk=8)
print(results[8:], flush=True)
try:
    print(results.get(timeout=0.3))
except ray.errors.GetTimeoutError:
    print("the others wait")
"""


def test_the_calls_of_a_chunk_take_so_many_times_the_limit() -> None:
    """With a number of one's own. Else a chunk hands the rest on, and takes no longer than a call."""
    lines = run_program(CHUNKS, env=known(600)).expect(0).stdout.splitlines()
    assert lines == ["499500 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "[8, 9]", "the others wait"]


@pytest.mark.mpi
def test_rank_0_knows_it_for_all() -> None:
    environment = {name: text for name, text in known(600).items() if name != "SLURM_JOB_ID" and name != "PATH"}
    source = "import os\nos.environ['SLURM_JOB_ID'] = '5'\n" + APP  # mpirun itself would take itself for Slurm's
    completed = run_program(source, ranks=3, env=environment).expect(0)
    assert "It is not started" in completed.stdout
