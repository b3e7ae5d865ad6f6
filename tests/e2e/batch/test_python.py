"""Commands as tasks, from Python: results, references, retries, time limits, what is left of them."""

import os
from pathlib import Path

import pytest

from mpi_runtime.core.host.claimed_processors import claimed_processors
from tests.helpers import run_program

BEGIN = """
import os, sys, time
import mpi_runtime as ray
from mpi_runtime import batch
"""


def output_of(source: str, **options: object) -> list[str]:
    return run_program(BEGIN + source, **options).expect(0).stdout.splitlines()  # type: ignore[arg-type]


def test_a_command_has_a_result() -> None:
    assert (
        output_of("""
ray.init(num_cpus=2)
begin = time.time()
result = ray.get(batch.command("echo {word} $0 >&2; echo out; exit 3", word="two words", name="one", success_codes=[3]))
print(result.name, result.exit_code, result.signal, result.is_success, result.attempts, repr(result.problem))
print(result.command)
print(begin <= result.start <= result.end <= time.time(), result.host == os.uname().nodename)
print(result.peak_memory > 100_000, 0 <= result.cpu_time < 10, result.cpus, result.gpu_ids)
print(os.path.relpath(result.stdout), result.stderr == result.stdout, repr(open(result.stdout).read()))
""")
        == r"""one 3 None True 1 ''
echo 'two words' $0 >&2; echo out; exit 3
True True
True True () ()
batch-output/one.out True 'two words /bin/sh\nout\n'
""".splitlines()
    )


def test_references_are_values_and_results_are_arguments() -> None:
    assert output_of("""
ray.init(num_cpus=2)

@ray.remote
def number():
    time.sleep(0.3)
    return 20

@ray.remote
def read(result, other):
    return int(open(result.stdout).read()) + 2

first = batch.command("echo {n} > made; echo {n}", n=number.remote())
second = batch.command("cat made; rm made", after=[first])
print(ray.get(read.remote(second, first)))
print([open(one.stdout).read() for one in ray.get(batch.array("echo {i}{x} {y}", i=range(2), x="a b".split(),
    rows=batch.zipped(y=["x y"]), name="all"))])
print(sorted(os.listdir("batch-output"))[:4])
""") == [
        "22",
        "['0a x y\\n', '0b x y\\n', '1a x y\\n', '1b x y\\n']",
        "['all.0.out', 'all.1.out', 'all.2.out', 'all.3.out']",
    ]


def test_a_command_that_fails_raises_and_what_depends_on_it_too() -> None:
    assert output_of("""
ray.init(num_cpus=2)
failed = batch.command("exit 4", name="bad")
for ref in (failed, batch.command("echo no > made", after=[failed])):
    try:
        ray.get(ref)
    except batch.CommandError as error:
        print(error.result.name, error.result.ending())
print(os.path.exists("made"))
print(ray.get(batch.command("exit 4", on_failure="continue")).ending())
print(ray.get(batch.command("kill -9 $$", on_failure="continue")).ending())
print(ray.get(batch.command("true", cwd="/nowhere", on_failure="continue")).ending().split(":")[0])
print(ray.get(batch.command("no_such_program_at_all", on_failure="continue")).ending())
for wrong in (dict(num_cpu=1), dict(ranks=0), dict(on_failure="stop")):
    try:
        batch.command("true", **wrong)
    except ValueError as error:
        print(str(error)[:40])
""") == [
        "bad exit code 4",
        "bad exit code 4",
        "False",
        "exit code 4",
        "ended by SIGKILL",
        "it could not be started",
        "exit code 127 (a program was not found)",
        "parameter 'num_cpu' is not used: no {num",
        "ranks must be 1 or more, not 0",
        'on_failure="stop" is for batches in file',
    ]


def test_retries_on_listed_codes_only() -> None:
    assert output_of("""
ray.init(num_cpus=1)
def run(text, **options):
    result = ray.get(batch.command(text, on_failure="continue", **options))
    print(result.attempts, result.exit_code, repr(open(result.stdout).read()))
run("echo {attempt}; exit $((3 - {attempt}))", retries=5, retry_delay=0.05)
run("echo {attempt}; exit $((5 - {attempt}))", retries=5, retry_codes=[4])
run("exit 1", retries=2, retry_codes=[2])
run("exit 1", retries=2)
""") == ["3 0 '3\\n'", "2 3 '2\\n'", "1 1 ''", "3 1 ''"]


def test_the_environment_of_a_command() -> None:
    assert output_of("""
os.environ.update(MPI_RUNTIME_JOURNAL="calls", MPI_RUNTIME_RECORD="job.rec", MPI_RUNTIME_RESOURCES="licence=1")
ray.init(num_cpus=4, num_gpus=2)
def run(text, **options):
    return open(ray.get(batch.command(text, **options)).stdout).read().split()
print(run("echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS {cpus}", num_cpus=3))
print(run("echo $OMP_NUM_THREADS $A", num_cpus=3, env={"OMP_NUM_THREADS": 7, "A": "{b}"}, b="x y"))
gpus, shown = run("echo {gpu} $CUDA_VISIBLE_DEVICES", num_gpus=2)
print(gpus, gpus == shown)
print(len(run("echo {gpu}", num_gpus=0.5)))
print(len(set(run("ps -o pgid= -o sid= -p $$; echo $$"))))
print(run("cat"))
print(run("env | grep -E '^MPI_RUNTIME_(JO|NU|REC|RES).*=' | sort", num_cpus=2.5, resources={"licence": 1}))
os.mkdir("there"); open("there/input", "w").write("read this")
print(run("pwd | sed s,.*/,,; cat", cwd="there", stdin="there/input", stdout="there/{i}.out", i=3), os.listdir("there"))
""") == [
        "['3', '3', '3']",
        "['7', 'x', 'y']",
        "0,1 True",
        "1",
        "1",
        "[]",
        "['MPI_RUNTIME_NUM_CPUS=2', 'MPI_RUNTIME_RESOURCES=']",
        "['there', 'read', 'this'] ['input', '3.out']",
    ]


def test_a_processor_is_claimed_by_one_command_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000_000_000 + os.getpid())  # nobody else claims as this user
    own = tuple(sorted(os.sched_getaffinity(0)))
    with claimed_processors(1) as first:
        assert first == own[:1]
        with claimed_processors(len(own)) as second:
            assert second == ()
        with claimed_processors(len(own) - 1) as others:
            assert others == own[1:]
    with claimed_processors(len(own)) as now:
        assert now == own


def test_a_command_is_bound_to_its_processors_and_nothing_else_is() -> None:
    assert output_of("""
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.run.program import run_program
own = os.sched_getaffinity(0)
text = "grep Cpus_allowed_list /proc/self/status | cut -f 2"
ending = run_program(Command(text=text, stdout="out", stderr="out"), os.environ, [min(own)], False)
print(ending.exit_code, open("out").read().strip() == str(min(own)), os.sched_getaffinity(0) == own)
result = ray.get(batch.command(text, pin=True))
print(len(result.cpus) < 2, not result.cpus or open(result.stdout).read().strip() == str(result.cpus[0]))
""") == ["0 True True", "True True"]


def test_a_time_limit_ends_all_of_it() -> None:
    """The command, its group, and what has left the group; none of them is there when the result is."""
    assert output_of("""
ray.init(num_cpus=1)

def late(text, **options):
    for limit in (1, 5, 25):  # until it has come to where it waits, however busy the machine is
        result = ray.get(batch.command(text, time_limit=limit, on_failure="continue", **options))
        if os.path.exists("complete"):
            os.remove("complete")
            problem = f"it ran longer than its time limit of {limit} s"
            print(result.problem == problem, result.is_success, result.attempts)
            return result

result = late('''echo $$ > pids; rm -f ready ignores; sleep 1000 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; touch ready; exec sleep 1000' &
(trap "" TERM; touch ignores; while :; do sleep 1; done) & echo $! >> pids
while [ ! -e ready -o ! -e ignores ]; do sleep 0.02; done
touch complete; wait''', grace=0.2, retries=3)
print(result.exit_code, result.signal)
pids = [int(line) for line in open("pids")]
print(len(pids), [pid for pid in pids if os.path.exists(f"/proc/{pid}")])
result = late("trap 'echo told; exit 5' TERM; touch complete; sleep 1000 & wait", grace=60)
print(result.exit_code, open(result.stdout).read().strip())
result = late("trap '' TERM; touch complete; while :; do sleep 0.05; done", grace=0.2)
print(result.signal)
""") == ["True False 1", "None 15", "4 []", "True False 1", "5 told", "True False 1", "9"]


def test_nothing_of_a_command_outlives_its_executor() -> None:
    """Neither if it is cancelled by force, nor if that is killed: then it runs again, and never beside itself."""
    assert output_of("""
ray.init(num_cpus=1)
text = "echo $$ >> own; setsid sh -c 'echo $$ >> other; exec sleep 1000' & env -i sleep 1000"
def pids(count):
    while not all(os.path.exists(name) and open(name).read().count("\\n") == count for name in ("own", "other")):
        time.sleep(0.02)
    return [int(line) for name in ("own", "other") for line in open(name)]
def end(ref):
    try:
        ray.get(ref)
    except (ray.errors.TaskCancelledError, ray.errors.WorkerCrashedError) as error:
        return type(error).__name__
def left(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
def executor(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
ref = batch.command(text)
first = pids(1)
ray.cancel(ref, force=True)
print(end(ref), left(first))
os.unlink("own"); os.unlink("other")
ref = batch.command(text)
for run in range(1, 5):
    before = pids(run)
    print(len(left(before)))
    os.kill(executor(before[run - 1]), 9)
print(end(ref), left(before))
text = "echo {attempt} >> times; case {attempt} in 1|2) kill -9 $PPID;; 3) exit 7;; esac"
print(ray.get(batch.command(text, retries=1)).attempts, open("times").read().split())
""") == ["TaskCancelledError []", "2", "2", "2", "2", "WorkerCrashedError []", "4 ['1', '2', '3', '4']"]


def test_nothing_of_a_command_outlives_it_and_a_cancel_ends_it() -> None:
    assert output_of("""
ray.init(num_cpus=1)
ray.get(batch.command("setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.02; done"))
print(os.path.exists(f"/proc/{open('pid').read().strip()}"))
ref = batch.command("echo $$ > own; setsid sh -c 'echo $$ > other; exec sleep 1000' & sleep 1000")
while not (os.path.exists("other") and open("other").read().endswith("\\n")):
    time.sleep(0.02)
ray.cancel(ref)
try:
    ray.get(ref)
except ray.errors.TaskCancelledError:
    print("cancelled")
while any(os.path.exists(f"/proc/{open(name).read().strip()}") for name in ("own", "other")):
    time.sleep(0.02)
print(ray.get(batch.command("true")).exit_code)
""") == ["False", "cancelled", "0"]


def test_a_scratch_directory_is_removed_unless_it_is_kept() -> None:
    assert output_of("""
ray.init(num_cpus=1)
result = ray.get(batch.command("cd {workdir}; touch x; pwd; ls"))
path, name = open(result.stdout).read().split()
print(name, os.path.exists(path), repr(result.workdir))
result = ray.get(batch.command("touch {workdir}/x; exit 1", name="bad", keep_workdir=True, on_failure="continue"))
print(os.path.relpath(result.workdir), os.listdir(result.workdir))
print([name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("mpi_runtime-")])
""") == ["x False ''", "batch-output/bad.workdir ['x']", "[]"]


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_commands_on_ranks_have_nothing_of_the_launcher(mpi: str) -> None:
    assert output_of(
        """
ray.init(num_cpus=1)
text = "env | grep -c -E '^(OMPI_COMM|PMIX_|PMI_|HYDI_)'"
results = ray.get(batch.array(text + "; sleep 0.{i}", i=range(3), on_failure="continue"))
print([open(one.stdout).read().strip() for one in results], [one.exit_code for one in results])
""",
        ranks=2,
        mpi=mpi,
    ) == ["['0', '0', '0'] [0, 0, 0]"]


def test_the_output_is_where_the_program_says(tmp_path: Path) -> None:
    assert output_of(f"""
result = ray.get(batch.command("echo {{n}}", n=1, name="a", directory={str(tmp_path / "deep" / "er")!r}))
print(result.stdout)
""") == [str(tmp_path / "deep" / "er" / "a.out")]
