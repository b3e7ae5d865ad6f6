"""Every way to start a program: with and without a launcher, as a file, a string, a stream, a session of a person."""

import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import MARK, ROOT, Completed, mpi_python, run_program, start_command, start_program

MPIS = ["openmpi", "mpich"]

PROGRAM = """
import os, sys
import mpi_runtime as ray

ray.init()

@ray.remote
def square(number):
    return number * number, os.getpid()

@ray.remote
class Counter:
    def __init__(self):
        self.count = 0
    def add(self, number):
        self.count += number
        return self.count

results = ray.get([square.remote(i) for i in range(20)])
assert [value for value, _ in results] == [i * i for i in range(20)]
assert os.getpid() not in [pid for _, pid in results]
counter = Counter.remote()
print(f"counted {ray.get([counter.add.remote(i) for i in range(5)])} with {sys.argv}", flush=True)
"""
# What a task finds around itself; but for where the program lies, which differs from run to run.
SURROUNDINGS = """
import json, os, resource, signal, sys, threading
import mpi_runtime as ray

ray.init()

@ray.remote
def surroundings():
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return {
        "stdin": os.readlink("/proc/self/fd/0"),
        "descriptors": sorted(os.readlink(link).split(":")[0] for link in links if os.path.lexists(link)),
        "main": hasattr(sys.modules["__main__"], "__file__"),
        "launcher": [name for name in os.environ if name.endswith("_RANK") or name == "PMI_FD"],
        "signals": [str(signal.getsignal(number)).partition(" at ")[0] for number in signal.valid_signals()],
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": threading.active_count(),
        "path": sys.path[1:],
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
    }

print(json.dumps(ray.get(surroundings.remote())))
"""
COUNTED = "counted [0, 1, 3, 6, 10] with "


def expect_counted(completed: Completed, arguments: list[str]) -> None:
    """Rank 0 said it once, and nobody anything else."""
    completed.expect()
    assert completed.stdout == f"{COUNTED}{arguments}\n", completed.output()
    assert completed.stderr == ""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(PROGRAM)
    return path


# Without a launcher.


def test_a_file(app: Path) -> None:
    expect_counted(run_program(app, "-n", "x"), [str(app), "-n", "x"])


def test_a_string() -> None:
    with start_command([sys.executable, "-c", PROGRAM, "x"]) as program:
        expect_counted(program.finish(), ["-c", "x"])


def test_a_stream() -> None:
    with start_command([sys.executable, "-", "x"]) as program:
        program.write(PROGRAM)
        expect_counted(program.finish(), ["-", "x"])


def test_no_mpi_library_is_needed(app: Path, tmp_path: Path) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')")
    for name in ("numpy", "cloudpickle", "msgspec"):
        assert not (tmp_path / name).exists()
    expect_counted(run_program(app, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}), [str(app)])


def test_an_interactive_session() -> None:
    """`python -i` on a terminal: functions typed in run remotely, Ctrl-C interrupts a get, and the session goes on."""
    main, other = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
    pid = os.fork()
    if not pid:
        try:
            os.login_tty(other) if hasattr(os, "login_tty") else become_terminal(other)
            os.close(main)
            os.execve(sys.executable, [sys.executable, "-i", "-q"], environment)
        finally:
            os._exit(127)
    os.close(other)
    try:
        talk(main, b"import mpi_runtime as ray, time, os\n", b">>> ")
        talk(main, b"context = ray.init(num_cpus=2)\n", b">>> ")
        talk(main, b"@ray.remote\ndef double(x): return 2 * x\n\n", b">>> ")
        assert b"42" in talk(main, b"ray.get(double.remote(21))\n", b"42")
        talk(main, b"@ray.remote\ndef rest(): print('rests'); time.sleep(1000)\n\n", b">>> ")
        assert b"rests" in talk(main, b"ray.get(rest.remote())\n", b") rests")
        assert b"KeyboardInterrupt" in talk(main, b"\x03", b"KeyboardInterrupt")
        assert b"84" in talk(main, b"ray.get(double.remote(42))\n", b"84")
        os.write(main, b"exit()\n")
        status = wait(pid, main)
        assert status in (0, -signal.SIGINT)  # Python 3.14 ends as if by Ctrl-C whenever there was one
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(main)


def become_terminal(terminal: int) -> None:
    """What `os.login_tty` does from Python 3.11 on."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)


def talk(terminal: int, typed: bytes, wanted: bytes) -> bytes:
    """Type something and wait for an answer."""
    os.write(terminal, typed)
    said = b""
    end = time.monotonic() + 30
    while wanted not in said.replace(typed, b""):
        assert time.monotonic() < end, f"{wanted!r} was not said in answer to {typed!r} but {said!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 4096)
    return said


def wait(pid: int, terminal: int) -> int:
    end = time.monotonic() + 30
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        assert time.monotonic() < end, "the session does not end"
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                os.read(terminal, 4096)
            except OSError:
                time.sleep(0.01)


def test_inside_a_notebook() -> None:
    """As in a kernel: cells run in a thread that is not the main one, and standard output is replaced."""
    source = """
import code, io, sys, threading

cells = [
    "import mpi_runtime as ray",
    "context = ray.init(num_cpus=2)",
    '''@ray.remote
def double(x):
    return 2 * x
''',
    "first = ray.get([double.remote(i) for i in range(5)])",
    '''@ray.remote
def double(x):
    return 2.0 * x
''',
    "second = ray.get(double.remote(3))",
    "ray.init(num_cpus=1)",
    "again = ray.init(num_cpus=1, ignore_reinit_error=True)",
    "ray.shutdown()",
    "context = ray.init(num_cpus=1)",
    "third = ray.get(double.remote(4))",
]
console = code.InteractiveInterpreter({"__name__": "__main__"})

def run():
    for cell in cells:
        console.runcode(compile(cell, "<cell>", "exec"))

sys.stdout = io.StringIO()
thread = threading.Thread(target=run)
thread.start()
thread.join()
sys.stdout = sys.__stdout__
print(console.locals["first"], console.locals["second"], console.locals["third"])
"""
    completed = run_program(source).expect()
    assert completed.stdout == "[0, 2, 4, 6, 8] 6.0 8.0\n"
    assert completed.stderr.count("Traceback") == 1
    assert "init() was called, but the job is running already" in completed.stderr


def test_inside_a_real_kernel() -> None:
    """Where IPython's kernel is installed; the test above is the one that always runs."""
    pytest.importorskip("ipykernel")
    source = """
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
cells = [
    "import mpi_runtime as ray",
    "context = ray.init(num_cpus=1)",
    "@ray.remote\\ndef add(x):\\n    print('from a task')\\n    return x + 1",
    "print(ray.get(add.remote(1)))",
]
said = []
for cell in cells:
    reply = client.execute_interactive(
        cell, timeout=30, output_hook=lambda message: said.append(message["content"].get("text", ""))
    )
    assert reply["content"]["status"] == "ok", reply
client.execute("import time; time.sleep(0.5)", reply=True, timeout=30)
print("".join(said))
client.stop_channels()
manager.shutdown_kernel()
"""
    assert "2\n" in run_program(source).expect().stdout


# With a launcher.


@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "mpi"), [(1, "openmpi"), (1, "mpich"), (2, "openmpi"), (8, "mpich")])
def test_ranks(mpi: str, ranks: int, app: Path) -> None:
    expect_counted(run_program(app, "x", ranks=ranks, mpi=mpi), [str(app), "x"])


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_above_0_never_see_the_program(mpi: str, app: Path) -> None:
    app.write_text('print("this is run", flush=True)\n' + PROGRAM)
    completed = run_program(app, "-x", "y", ranks=3, mpi=mpi, options=["-m", "mpi_runtime"]).expect()
    assert completed.stdout == f"this is run\n{COUNTED}{[str(app), '-x', 'y']}\n"
    assert completed.stderr == ""


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_tasks_find_the_same_in_a_fork_of_the_worker(mpi: str) -> None:
    """With `-m mpi_runtime` executors descend from a copy of the worker: nothing of the worker's is left to them."""
    found = [run_program(SURROUNDINGS, ranks=3, mpi=mpi, options=way).expect() for way in ([], ["-m", "mpi_runtime"])]
    first, second = (json.loads(completed.stdout) for completed in found)
    assert first == second
    assert (first["stdin"], first["threads"], first["launcher"]) == ("/dev/null", 1, [])


KERNEL = """
import subprocess, sys
source = "import mpi_runtime as ray; ray.init(); print(len(ray.nodes()), flush=True); input()"
kernel = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print("nodes", kernel.stdout.readline(), flush=True)
kernel.kill()
kernel.wait()
"""


@pytest.mark.mpi
def test_who_starts_a_kernel_does_not_wait_for_the_ranks_that_it_has_had() -> None:
    """As Jupyter does, which kills kernels that do not end soon enough."""
    completed = run_program(KERNEL, ranks=2, options=["-m", "mpi_runtime"], timeout=30)  # it waited for 60 s
    assert completed.expect().stdout == "nodes b'1\\n'\n"


@pytest.mark.mpi
def test_the_verb_run_on_eight_ranks(app: Path) -> None:
    mpi_python("openmpi")
    with start_command([sys.executable, "-m", "mpi_runtime", "run", "-n", "8", app, "-x", "y"]) as program:
        expect_counted(program.finish(), [str(app), "-x", "y"])


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_a_string_on_ranks(mpi: str) -> None:
    python = mpi_python(mpi)
    command: list[str | Path] = [python.with_name("mpirun"), "-n", "3", python, "-c", PROGRAM, "x"]
    with start_command(command) as program:
        expect_counted(program.finish(), ["-c", "x"])


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_ranks(app: Path) -> None:
    """Far more ranks than cores: slow, because MPI's ranks spin while they wait for each other at the start."""
    completed = run_program(app, ranks=40, env={"MPI_RUNTIME_START_TIMEOUT_S": "250"}, timeout=280).expect()
    assert completed.stdout == f"{COUNTED}{[str(app)]}\n", completed.output()
    lines = completed.stderr.splitlines()
    assert all("the job has not begun after" in line for line in lines), "a slow machine: it says what it waits for"


def test_marks_reach_executors() -> None:
    """The tests find what a program leaves by a variable: executors must have it."""
    source = f"""
import os
import mpi_runtime as ray
print(ray.get(ray.remote(lambda: os.environ["{MARK}"]).remote()) == os.environ["{MARK}"])
"""
    with start_program(source) as program:
        assert program.finish().expect().stdout == "True\n"
