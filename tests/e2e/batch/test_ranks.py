"""Commands with several ranks: MPI programs in a batch, with both libraries, how they end, and on three hosts."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_runtime.core.gangs.command_channel import NAME
from tests.e2e.batch.test_python import output_of
from tests.e2e.cli.test_batch import run_batch
from tests.helpers import Completed, mpi_python, start_command, wait_until
from tests.hosts.lab import Lab, lab, missing

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]
BOTH = pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
ON_RANKS = "import sys; from mpi_runtime.cli.main import main; sys.exit(main(['batch', *sys.argv[1:]]))"
DEFAULTS = """
[defaults]
ranks = 3
num_cpus = 0.5
"""
HELLO = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
print("rank", comm.rank, comm.size, comm.allreduce(comm.rank), flush=True)
"""
IN_C = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
    int rank, sum;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("C %d %d\\n", rank, sum);
    MPI_Finalize();
    return 0;
}
"""
ENDS = {
    "aborted": ("comm.Abort(5)", "MPI_Abort with code 5"),
    "left": ("os._exit(0)", "rank 2 of 3 has called MPI_Init, and ended without MPI_Finalize (rank 2)"),
    "raised": ("print('last words', flush=True); os._exit(7)", "exit code 7 (rank 2)"),
}
"""What rank 2 does while the others wait for it, and how the command ends."""
SHARING = """
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
found = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if " /dev/shm/" in line}
with open(f"files.{time.time_ns()}.{comm.rank}", "w") as file:
    print(*(path for path in found if not path.endswith(" (deleted)")), sep="\\n", file=file)
comm.Barrier()
if comm.rank == 2: exec(sys.argv[1])
comm.Barrier()
print("rank", comm.rank, comm.size, comm.allreduce(comm.rank), flush=True)
"""
"""Writes down the files in shared memory that MPI has made; then rank 2 does what is asked of it."""


def run(mpi: str, place: Path, tasks: str, code: int) -> Completed:
    """Run a batch in a directory with `hello.py`. `PYTHON` stands for the interpreter with this MPI."""
    python = mpi_python(mpi)
    (place / "hello.py").write_text(HELLO)
    (place / "jobs.toml").write_text((DEFAULTS + tasks).replace("PYTHON", str(python)))
    command = [str(python), "-m", "mpi_runtime", "batch", "jobs.toml", "--directory", "out"]
    with start_command(command, cwd=place, env={"MPI_RUNTIME_NUM_CPUS": "2"}) as program:
        return program.finish().expect(code)


def lines(place: Path, name: str) -> list[str]:
    return sorted((place / "out" / name).read_text().splitlines())


@BOTH
def test_each_rank_runs_the_line(mpi: str, tmp_path: Path) -> None:
    """Programs after each other, standard input to rank 0, whole lines in one file, amounts for each rank, retries."""
    tasks = '''
    [[task]]
    name = "twice"
    command = "PYTHON hello.py && PYTHON hello.py"

    [[task]]
    name = "long"
    command = "for i in $(seq 300); do printf '%04000d\\\\n' {rank}; done; echo last {rank} >&2; cat"
    stdin = "jobs.toml"
    stderr = "out/long.err"
    mpi = false

    [[task]]
    name = "retried"
    command = "echo {attempt} of {rank} {ranks} $OMP_NUM_THREADS {cpus}; test {attempt} = 2 || test {rank} != 1"
    retries = 1
    num_cpus = 0.25
    mpi = false

    [[task]]
    name = "aborted"
    command = """PYTHON -c "from mpi4py import MPI; {attempt} == 2 or MPI.COMM_WORLD.Abort(5); print({attempt})" """
    retries = 1

    [[task]]
    name = "after"
    command = "cat out/twice.out"
    after = ["twice", "retried"]
    ranks = 1
    '''
    done = run(mpi, tmp_path, tasks, 0)
    assert "5 of 5 done; " in done.stderr
    assert lines(tmp_path, "aborted.out") == ["2"] * 3
    expected = sorted([f"rank {rank} 3 3" for rank in range(3)] * 2)
    assert lines(tmp_path, "twice.out") == lines(tmp_path, "after.out") == expected
    written = (tmp_path / "out" / "long.out").read_text().splitlines()
    assert [written.count(f"{rank:04000d}") for rank in range(3)] == [300] * 3
    assert len(written) == 900 + len((tmp_path / "jobs.toml").read_text().splitlines())
    assert lines(tmp_path, "long.err") == ["last 0", "last 1", "last 2"]
    assert lines(tmp_path, "retried.out") == [f"2 of {rank} 3 1 0.25" for rank in range(3)]


@BOTH
def test_commands_run_on_the_gang_of_the_last_one(mpi: str, tmp_path: Path) -> None:
    """Each has an MPI world of its own, of which no file stays in shared memory while the gang lives on.

    A gang ends with a command that fails, or leaves MPI without its end.
    """
    (tmp_path / "sharing.py").write_text(SHARING)
    commands = {
        "first": "PYTHON sharing.py pass",
        "second": "PYTHON sharing.py pass && PYTHON sharing.py pass",
        "fails": "PYTHON sharing.py pass && exit 3",
        "third": "PYTHON sharing.py pass",
        "left": "PYTHON -c 'from mpi4py import MPI; import os; os._exit(0)'",
        "fourth": "PYTHON sharing.py pass",
        "fifth": "PYTHON sharing.py pass",
    }
    tasks = "".join(
        f"""
    [[task]]
    name = "{name}"
    command = "echo $PPID; {command}"
    mpi = {str(name != "left").lower()}
    """
        for name, command in commands.items()
    )
    done = run(mpi, tmp_path, tasks, 1)
    assert "6 of 7 done, 1 failed; " in done.stderr
    worlds = [f"rank {rank} 3 3" for rank in range(3)]
    members = {}
    for name, command in commands.items():
        written = lines(tmp_path, f"{name}.out")
        assert [line for line in written if "rank" in line] == sorted(worlds * command.count("sharing.py"))
        members[name] = {line for line in written if "rank" not in line}
    assert members["first"] == members["second"] == members["fails"]
    assert members["third"] == members["left"]
    assert members["fourth"] == members["fifth"]
    assert len(members["first"] | members["third"] | members["fourth"]) == 9
    files_in_shared_memory(mpi, tmp_path, 7)


@BOTH
def test_a_program_in_c(mpi: str, tmp_path: Path) -> None:
    python = mpi_python(mpi)
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    (tmp_path / "sum.c").write_text(IN_C)
    compiler = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    subprocess.run([python.with_name("mpicc"), "sum.c", "-o", "sum"], cwd=tmp_path, env=compiler, check=True)
    libraries = python.parent.parent / "lib"
    run(mpi, tmp_path, f'[[task]]\nname = "sum"\ncommand = "LD_LIBRARY_PATH={libraries} ./sum"\n', 0)
    assert lines(tmp_path, "sum.out") == ["C 0 3", "C 1 3", "C 2 3"]


def files_in_shared_memory(mpi: str, place: Path, programs: int) -> None:
    """So many programs of three ranks have written down theirs: none is left.

    As a launcher does, the server of members removes what their library has asked it to.
    """
    noted = [*place.glob("files.*.?")]
    assert len(noted) == 3 * programs
    files = {path for file in noted for path in file.read_text().split()}
    assert len(files) >= 6 or mpi == "mpich"  # whose files lose their names as soon as all have opened them
    assert [path for path in files if os.path.exists(path)] == []


@BOTH
def test_a_rank_that_fails_ends_the_command(mpi: str, tmp_path: Path) -> None:
    """Neither it nor the others leave files in shared memory."""
    (tmp_path / "sharing.py").write_text(SHARING)
    codes = {name: code for name, (code, _) in ENDS.items()}
    tasks = "".join(
        f"""
    [[task]]
    name = "{name}"
    command = "PYTHON sharing.py \\"{code}\\""
    time_limit = {5 if name == "late" else 60}
    """
        for name, code in {**codes, "late": "time.sleep(60)", "well": "pass"}.items()
    )
    done = run(mpi, tmp_path, tasks, 1)
    assert "1 of 5 done, 4 failed" in done.stderr
    for name, (_, end) in ENDS.items():
        assert f"failed: {name}: {end}" in done.stderr
    assert "last words" in (tmp_path / "out" / "raised.out").read_text()
    said = {"openmpi": "MPI_ABORT was invoked on rank 2", "mpich": "application called MPI_Abort("}[mpi]
    assert (tmp_path / "out" / "aborted.out").read_text().count(said) == 1
    assert lines(tmp_path, "well.out") == [f"rank {rank} 3 3" for rank in range(3)]
    files_in_shared_memory(mpi, tmp_path, 5)


@BOTH
def test_ranks_that_do_not_start_mpi_are_a_failure(mpi: str, tmp_path: Path) -> None:
    """A program of another MPI would run as three worlds of one rank, and succeed three times."""
    other = mpi_python({"openmpi": "mpich", "mpich": "openmpi"}[mpi])
    tasks = f'[[task]]\nname = "other"\ncommand = "{other} hello.py"\n[[task]]\nname = "none"\ncommand = "true"\n'
    done = run(mpi, tmp_path, tasks, 1)
    assert "0 of 2 done, 2 failed; " in done.stderr
    protocols = ["PMI-1, which MPICH speaks", "PMIx, which Open MPI speaks"]
    shown = [line for line in done.stderr.splitlines() if line.startswith("failed: none: rank")]
    assert len(shown) == 1
    assert all(protocol in shown[0] for protocol in protocols)
    assert "set mpi to false" in shown[0]
    if mpi == "mpich":  # MPICH ends by itself under PMIx, and Open MPI does not under PMI-1
        assert "failed: other: rank" in done.stderr


def test_the_ranks_of_a_batch_are_not_taken_for_those_of_its_commands(tmp_path: Path) -> None:
    """Else two worlds of one rank would overwrite each other's files without a line."""
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    (tmp_path / "jobs.txt").write_text(f"{sys.executable} -c {shlex.quote(program)}\n")
    said = run_batch("jobs.txt", "-n", "2", cwd=tmp_path).expect(0).stderr
    assert said.count("-n 2 is the number of ranks of the batch itself, and each of its commands is one process") == 1
    assert "write --command-ranks 2\n" in said
    said = run_batch("jobs.txt", "--command-ranks", "2", "--fresh", cwd=tmp_path).expect(0).stderr
    assert (tmp_path / "batch-jobs/line-1.out").read_text() == "2\n2\n"
    assert "note:" not in said


def test_from_python() -> None:
    assert output_of(f"""
open("hello.py", "w").write({HELLO!r})
ray.init(num_cpus=2)
options = dict(ranks=2, num_cpus=1, ranks_per_node=2)
result = ray.get(batch.command(sys.executable + " hello.py", name="hello", **options))
print(result.is_success, result.exit_code, result.rank, sorted(open(result.stdout).read().splitlines()))
failed = ray.get(batch.command("exit 1{{rank}}", mpi=False, on_failure="continue", **options))
print(failed.is_success, failed.ending() in ("exit code 10 (rank 0)", "exit code 11 (rank 1)"))
try:
    ray.get(batch.command("exit 1{{rank}}", mpi=False, **options))
except batch.CommandError as error:
    print(error.result.exit_code in (10, 11))
lost = ray.get(batch.command("echo lost", mpi=False, stdout="/dev/full", on_failure="continue", **options))
print(lost.is_success, lost.ending())
slow = batch.command("echo begun; sleep 100", name="slow", mpi=False, **options)
while not os.path.exists("batch-output/slow.out") or open("batch-output/slow.out").read() != "begun\\n" * 2:
    time.sleep(0.01)
ray.cancel(slow)
try:
    ray.get(slow)
except ray.exceptions.TaskCancelledError:
    print("cancelled")
""") == [
        "True 0 None ['rank 0 2 1', 'rank 1 2 1']",
        "False True",
        "True",
        "False its output could not be written: No space left on device (/dev/full is incomplete) (rank 0)",
        "cancelled",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("ranks = 9", "can never run: the nodes have room for 4 of its 9 ranks, each with CPU 0.5"),
        ("ranks = 3\nranks_per_node = 2", "can never run: the nodes have room for 2 of its 3 ranks, each with CPU 0.5"),
        ("ranks = 0", "ranks must be 1 or more, not 0"),
    ],
)
def test_what_can_never_run_is_refused(options: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(f'[[task]]\ncommand = "true"\nnum_cpus = 0.5\n{options}\n')
    command = [str(mpi_python("openmpi")), "-m", "mpi_runtime", "batch", "jobs.toml"]
    with start_command(command, cwd=tmp_path, env={"MPI_RUNTIME_NUM_CPUS": "2"}) as program:
        assert message in program.finish().expect(2).stderr


def test_on_the_command_line_and_in_views(tmp_path: Path) -> None:
    """`-n` is the number of ranks of the batch itself."""
    (tmp_path / "jobs.txt").write_text("echo {rank} {ranks} #batch mpi=false name=one\n")
    command = [str(mpi_python("openmpi")), "-m", "mpi_runtime", "batch", "jobs.txt", "--command-ranks", "2"]
    for words, shown in (["--check"], "one: 2 ranks, each 0.5 CPU: echo"), ([], "1 of 1 done; "):
        with start_command([*command, "--num-cpus", "0.5", *words], cwd=tmp_path) as program:
            assert shown in program.finish().expect(0).output()
    assert sorted((tmp_path / "batch-jobs" / "one.out").read_text().splitlines()) == ["0 2", "1 2"]


def launcher_of(mpi: str, hosts: Lab | None = None) -> str:
    """A launcher of this MPI; with hosts one that reaches them."""
    python = mpi_python(mpi)
    words = {"openmpi": "mpirun --prtemca plm_ssh_agent {0}", "mpich": "mpiexec -launcher ssh -launcher-exec {0}"}
    ssh = words[mpi].format(hosts.place / "ssh").partition(" ")[2] if hosts else ""
    return f"{python.with_name(words[mpi].partition(' ')[0])} {ssh}".strip()


def written_by_each(place: Path, name: str) -> list[str]:
    """The lines of all ranks: launchers mix what ranks print."""
    return sorted(line for path in place.glob(f"{name}.[0-9]*") for line in path.read_text().splitlines())


@BOTH
def test_another_launcher(mpi: str, tmp_path: Path) -> None:
    """The launcher of the other MPI starts its ranks; a command starts its ranks itself; each failure is explained."""
    other, option = {"openmpi": ("mpich", "-f"), "mpich": ("openmpi", "--hostfile")}[mpi]
    launcher, program = launcher_of(other), mpi_python(other)
    tasks = f"""
    [[task]]
    name = "other"
    command = "{program} hello.py > other.$$; echo $MODE $OMP_NUM_THREADS $LOCAL_RANK {{ranks}} >> other.$$"
    launcher = "{launcher}"
    env = {{ MODE = "a b" }}

    [[task]]
    name = "itself"
    command = "cat {{hostfile}}; {launcher} -n {{ranks}} {option} {{hostfile}} sh -c '{program} hello.py > itself.$$'"
    launcher = "self"

    [[task]]
    name = "fails"
    command = "exit 3"
    launcher = "{launcher}"

    [[task]]
    name = "wrong"
    command = "true"
    launcher = "/bin/nowhere/srun -n 3"
    """
    done = run(mpi, tmp_path, tasks, 1)
    worlds = [f"rank {rank} 3 3" for rank in range(3)]
    assert written_by_each(tmp_path, "other") == sorted([*worlds, *["a b 1 3"] * 3])
    assert written_by_each(tmp_path, "itself") == worlds
    assert lines(tmp_path, "itself.out") == [os.uname().nodename] * 3
    assert "failed: fails: exit code 3\n" in done.stderr
    tried = f"has failed: {launcher} -n 3 "
    assert tried in (tmp_path / "out" / "fails.out").read_text()
    assert "failed: wrong: it could not be started: its launcher '/bin/nowhere/srun'" in done.stderr


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(reason)
    with lab(3) as found:
        yield found


@pytest.mark.hosts
@BOTH
def test_ranks_on_three_hosts(mpi: str, three_hosts: Lab) -> None:
    """They form one world, and the output of all hosts is in one file, in whole lines."""
    place = three_hosts.place / f"ranks-{mpi}"
    place.mkdir()
    (place / "hello.py").write_text(HELLO)
    (place / "jobs.toml").write_text(
        f"""
    [defaults]
    cwd = "{place}"
    [[task]]
    name = "first"
    command = "{mpi_python(mpi)} hello.py && echo $(uname -n) $PPID"
    ranks = 6
    ranks_per_node = 2
    [[task]]
    name = "spread"
    command = "{mpi_python(mpi)} hello.py && echo $(uname -n) $PPID {{hosts}}"
    ranks = 6
    ranks_per_node = 2
    after = ["first"]
    [[task]]
    name = "much"
    command = "for i in $(seq 200); do printf '%04000d\\\\n' {{rank}}; done; test {{rank}} != 4 || exit 9"
    ranks = 6
    mpi = false
    """
    )
    hosts = [f"host{number}" for number in (1, 2, 3)]
    words = (str(place / "jobs.toml"), "--directory", str(place / "out"))
    env = {"MPI_RUNTIME_NUM_CPUS": "2"}
    with three_hosts.mpirun(ON_RANKS, *words, ranks=dict.fromkeys(hosts, 1), mpi=mpi, env=env) as program:
        done = program.finish().expect(1)
    assert "failed: much: exit code 9 (rank 4)" in done.stderr
    written = lines(place, "spread.out")
    assert [line for line in written if "rank" in line] == [f"rank {rank} 6 15" for rank in range(6)]
    assert [line.split()[0] for line in written if "rank" not in line] == sorted(hosts * 2)
    assert {line.split()[2].count(":2") for line in written if "rank" not in line} == {3}
    assert lines(place, "first.out") == sorted(line if "rank" in line else line[: line.rindex(" ")] for line in written)
    assert set(lines(place, "much.out")) <= {f"{rank:04000d}" for rank in range(6)}
    assert (place / "out" / "much.out").read_text().count(f"{4:04000d}\n") == 200


def sleepers(seconds: int) -> set[int]:
    """The processes `sleep SECONDS`, on all hosts."""
    return {pid for pid, words in command_lines().items() if words[:2] == ["sleep", str(seconds)]}


def command_lines() -> dict[int, list[str]]:
    """The words of all processes."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return found


@pytest.mark.hosts
@pytest.mark.dies("member")
@BOTH
def test_a_launcher_on_three_hosts_and_its_end(mpi: str, three_hosts: Lab) -> None:
    """Its ranks run where their CPUs are; after a time limit and the death of a member nothing is left on any host."""
    place = three_hosts.place / f"launcher-{mpi}"
    place.mkdir()
    (place / "hello.py").write_text(HELLO)
    first = 71_001 + 10 * (mpi == "mpich")
    (place / "jobs.toml").write_text(
        f"""
    [defaults]
    launcher = "{launcher_of(mpi, three_hosts)}"
    ranks = 6
    ranks_per_node = 2
    cwd = "{place}"
    [[task]]
    name = "spread"
    command = "{mpi_python(mpi)} hello.py > spread.$$; uname -n >> spread.$$"
    [[task]]
    name = "limited"
    command = "trap '' TERM; sleep {first}"
    time_limit = 2
    grace = 0.2
    [[task]]
    name = "killed"
    command = "test -e again || exec sleep {first + 1}"
    """
    )
    hosts = [f"host{number}" for number in (1, 2, 3)]
    words = (str(place / "jobs.toml"), "--directory", str(place / "out"))
    env = {"MPI_RUNTIME_NUM_CPUS": "2"}
    with three_hosts.mpirun(ON_RANKS, *words, ranks=dict.fromkeys(hosts, 1), mpi=mpi, env=env) as program:
        wait_until(lambda: len(sleepers(first + 1)) == 6, 60, "all ranks of the third command")
        assert not sleepers(first)
        (place / "again").touch()
        (launcher,) = (
            pid
            for pid, words in command_lines().items()
            if any(word.startswith(f"{NAME}=") for word in words) and words[-2].endswith(f"sleep {first + 1}")
        )
        os.kill(int(Path(f"/proc/{launcher}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        wait_until(lambda: not sleepers(first + 1), 10, "the end of all ranks")
        done = program.finish().expect(1)
    assert written_by_each(place, "spread") == sorted([*hosts * 2, *[f"rank {rank} 6 15" for rank in range(6)]])
    assert "failed: limited: it ran longer than its time limit of 2 s" in done.stderr
    assert "2 of 3 done" in done.stderr
