"""The checks that every test relies on see what they are there to see."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import conftest, helpers
from tests.helpers import run_program, start_command, start_program

ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.close(1); os.close(2)
    time.sleep(60)
"""


MAPS = """
import mmap, sys
with open(sys.argv[1], "w+b") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
print("made", flush=True)
input()
"""


def inner_mark() -> str:
    return f"{os.environ[helpers.MARK]}/inner"


def descriptor() -> Callable[[], object]:
    number = os.open("/dev/null", os.O_RDONLY)
    return lambda: os.close(number)


def thread() -> Callable[[], object]:
    end = threading.Event()
    threading.Thread(target=end.wait, name="left over", daemon=True).start()
    return end.set


def child() -> Callable[[], object]:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})

    def end() -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    return end


def zombie() -> Callable[[], object]:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    return lambda: os.waitpid(pid, 0)


def orphan() -> Callable[[], object]:
    subprocess.run([sys.executable, "-c", ORPHAN], check=True)
    return lambda: None


def memory_file() -> Callable[[], object]:
    return held_open(f"/dev/shm/psm_left-{os.getpid()}")


def temporary_file() -> Callable[[], object]:
    return held_open(f"{tempfile.gettempdir()}/mpi_runtime-left-{os.getpid()}")


def held_open(path: str) -> Callable[[], object]:
    """A file that is open here: other runs of the tests see that it is not theirs."""
    file = open(path, "w")  # noqa: SIM115

    def end() -> None:
        os.unlink(path)
        file.close()

    return end


def abstract_socket() -> Callable[[], object]:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    end.bind(f"\0mpi_runtime-left-{os.getpid()}")
    return end.close


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (descriptor, "descriptor [0-9]+ -> /dev/null"),
        (thread, "thread left over"),
        (child, "process [0-9]+ .S."),
        (zombie, "process [0-9]+ .Z."),
        (orphan, "process [0-9]+ .S."),
        (memory_file, "file /dev/shm/psm_left-"),
        (temporary_file, "file .*/mpi_runtime-left-"),
        (abstract_socket, "abstract socket @mpi_runtime-left-"),
    ],
)
def test_what_is_left_behind_is_found(
    leave: Callable[[], Callable[[], object]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "GRACE_S", 0.5)
    with pytest.raises(pytest.fail.Exception, match=words), conftest.nothing_left(inner_mark()):
        clean = leave()
    clean()


def test_what_ends_within_the_grace_time_is_not_left_behind() -> None:
    with conftest.nothing_left(inner_mark()):
        threading.Timer(0.2, lambda: None).start()


def test_what_others_make_meanwhile_is_not_ours() -> None:
    source = """if True:
        import os, socket
        input()
        path = f"/dev/shm/psm_other-{os.getpid()}"
        file = open(path, "w")
        end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        end.bind(f"\\0mpi_runtime-other-{os.getpid()}")
        print("made", flush=True)
        input()
        os.unlink(path)
    """
    with start_program(source) as other:
        with conftest.nothing_left(inner_mark()):
            other.write("\n")
            other.wait_for_line("made")
        other.write("\n")
        other.finish().expect()


def test_a_program_that_hangs_fails_with_its_output_and_stacks_and_is_killed() -> None:
    source = "import time\nprint('so far', flush=True)\ndef stuck_here(): time.sleep(60)\nstuck_here()"
    with pytest.raises(pytest.fail.Exception, match="hangs") as failure:
        run_program(source, timeout=2)
    assert "so far" in str(failure.value)
    assert "stuck_here" in str(failure.value)


def test_a_program_whose_processes_outlive_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "AFTERLIFE_S", 0.5)
    with pytest.raises(pytest.fail.Exception, match="processes of it live"):
        run_program(ORPHAN)


def test_a_program_that_leaves_files_of_the_runtime_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"left files behind: .*mpi_runtime-x"):
        run_program("import tempfile, pathlib; pathlib.Path(tempfile.gettempdir(), 'mpi_runtime-x').touch()")


def test_a_program_that_leaves_shared_memory_fails() -> None:
    path = Path(f"/dev/shm/mpich_shm_{os.getpid()}")
    program = start_program(MAPS, str(path))
    program.wait_for_line("made")
    assert program.processes() == [program.pid]
    with path.open("r+"):  # else a job of another test might remove it: no process uses it
        with pytest.raises(pytest.fail.Exception, match=f"left files behind: .*{path}"):
            program.finish()
        path.unlink()


def test_shared_memory_of_a_program_that_is_killed_goes_with_it() -> None:
    path = Path(f"/dev/shm/sm_segment.{os.getpid()}")
    program = start_program(MAPS, str(path))
    program.wait_for_line("made")
    assert path.exists()
    program.kill()
    assert not path.exists()


@pytest.mark.parametrize("prefix", [*helpers.MPI_SEGMENTS, "of-another-program-"])
def test_what_others_have_left_in_shared_memory_is_not_ours(prefix: str) -> None:
    path = Path(f"/dev/shm/{prefix}left-{os.getpid()}")
    with conftest.nothing_left(inner_mark()):
        path.touch()
    path.unlink()


def test_a_program_that_nobody_finishes_is_killed_and_named() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"never finished: .*sleep 60"), conftest.nothing_left(inner_mark()):
        start_command(["sleep", "60"])


def test_a_program_can_be_watched_written_to_and_signalled() -> None:
    source = (
        "import sys\nsys.stderr.write('no newline')\nsys.stderr.flush()\nprint('got', input(), flush=True)\ninput()"
    )
    with start_program(source) as program:
        program.write("hello\n")
        assert program.wait_for_line("hello") == "got hello"
        assert program.processes() == [program.pid]
        program.signal(signal.SIGTERM)
        completed = program.finish()
    assert completed.returncode == -signal.SIGTERM
    assert completed.stderr == "no newline"


def test_waiting_for_a_line_of_a_program_that_has_ended_fails_at_once() -> None:
    program = start_program("print('other')")
    with pytest.raises(pytest.fail.Exception, match="ended with 0 and never wrote"):
        program.wait_for_line("this")


def test_an_unexpected_exit_code_fails_with_the_output() -> None:
    completed = run_program("import sys; print('reason'); sys.exit(3)", "argument", env={"PYTHONUNBUFFERED": None})
    assert completed.expect(3) is completed
    with pytest.raises(pytest.fail.Exception, match="ended with 3, not 0") as failure:
        completed.expect()
    assert "reason" in str(failure.value)


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_program_runs_on_more_ranks_than_cores(mpi: str) -> None:
    source = "from mpi4py import MPI\nprint(f'{MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}\\n', end='', flush=True)"
    completed = run_program(source, ranks=3, mpi=mpi).expect()
    assert sorted(completed.stdout.split("\n")) == ["", "0 of 3", "1 of 3", "2 of 3"]


UNITS = """
import multiprocessing, os, subprocess, time
import pytest

WAYS = {
    "fork": os.fork,
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "command": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "multiprocessing": lambda: multiprocessing.get_context("spawn").Process(target=time.time).start(),
}

@pytest.mark.parametrize("way", WAYS)
def test_start(way):
    WAYS[way]()

def test_start_and_hide_it():
    try:
        os.fork()
    except RuntimeError:
        pass

def test_nothing():
    pass
"""


def test_a_unit_test_that_starts_a_process_fails(tmp_path: Path) -> None:
    """Each other failure is the teardown, which sees the start too."""
    (tmp_path / "conftest.py").write_text((helpers.ROOT / "tests" / "unit" / "conftest.py").read_text())
    (tmp_path / "test_units.py").write_text(UNITS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(tmp_path)]
    done = start_command([sys.executable, *words, str(tmp_path)], cwd=tmp_path).finish()
    assert "5 failed, 2 passed, 6 errors" in done.stdout
    assert done.stdout.count("RuntimeError: ") >= 5
    assert "belongs into tests/component" in done.stdout
