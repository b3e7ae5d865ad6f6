"""What tasks write reaches the driver's own streams: whole lines, with their origin, without holding up the job."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import ROOT, run_program, start_program

WAYS = [None, pytest.param(3, marks=pytest.mark.mpi)]
"""Numbers of ranks."""
ORIGIN = re.compile(r"^\((?P<name>.+?) pid=(?P<pid>\d+)(?:, rank (?P<rank>\d+), (?P<host>\S+))?\) (?P<text>.*)$")


def parse(stream: str) -> list[re.Match[str]]:
    matches = [ORIGIN.match(line) for line in stream.splitlines()]
    assert all(matches), stream
    return [match for match in matches if match]


@pytest.mark.parametrize("ranks", WAYS)
def test_lines_come_whole_with_their_origin(ranks: int | None) -> None:
    source = """
import os, sys, time
import mpi_runtime as ray

@ray.remote
def talk(number):
    for step in range(50):
        sys.stdout.write(f"{number} ")  # a line in pieces
        sys.stdout.write("x" * 200)
        print("", step)
        print(number, "error", step, file=sys.stderr)
    return os.getpid()

@ray.remote
class Talker:
    def talk(self):
        print("from an actor")

@ray.remote
class Called(Talker.__wrapped__):
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return f"Called(\\n number={self.number})"

    def fail(self):
        raise KeyError("of its own")

ray.init(num_cpus=2)
pids = ray.get([talk.remote(i) for i in range(8)])
actor = Talker.remote()
ray.get(actor.talk.remote())
called = [Called.remote(number) for number in range(2)]
ray.get([one.talk.remote() for one in called])
try:
    ray.get(called[1].fail.remote())
except KeyError as error:
    assert ", repr=Called( number=1)\\n" in str(error), error
else:
    raise AssertionError
open(sys.argv[1], "w").write(" ".join(map(str, pids)))
"""
    with start_program(source, "pids", ranks=ranks) as program:
        place = program.place
        program.process.wait(60)
        pids = set((place / "pids").read_text().split())
        completed = program.finish().expect()
    out, error = parse(completed.stdout), parse(completed.stderr)
    assert {match["pid"] for match in error} == pids
    assert {match["name"] for match in error} == {"talk"}
    assert {match["name"] for match in out} == {"talk", "Talker", "Called( number=0)", "Called( number=1)"}
    assert all((match["rank"] is None) == (ranks is None) for match in out)
    expected = [f"{number} {'x' * 200} {step}" for number in range(8) for step in range(50)]
    assert sorted(match["text"] for match in out if match["name"] == "talk") == sorted(expected)
    assert len(error) == 400
    for number in range(8):  # those of one task in order
        steps = [int(match["text"].split()[-1]) for match in out if match["text"].startswith(f"{number} x")]
        assert steps == list(range(50))


def test_each_line_has_the_name_of_the_call_that_wrote_it(tmp_path: Path) -> None:
    """Also where calls follow each other faster than lines are read, and where programs write them."""
    source = """
import logging, os, subprocess, sys
import mpi_runtime as ray

@ray.remote
def first(number):
    print("first", number)
    print("first", number, file=sys.stderr)
    sys.stdout.write("first has no end")

@ray.remote
def second(number):
    print("second", number)

@ray.remote
def program(number):
    subprocess.run(["echo", "program", str(number)])

@ray.remote
def elsewhere(path):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    print("elsewhere")

@ray.remote
class Actor:
    def __init__(self):
        print("Actor begins")
    def __repr__(self):
        return "Titled()"
    def talk(self):
        subprocess.run(["echo", "Titled() and its program"])
        print("Titled() and itself")

ray.init(num_cpus=1)
ray.get([function.remote(number) for number in range(100) for function in (first, second, program)])
actor = Actor.remote()
ray.get(actor.talk.remote())
ray.kill(actor)
ray.get([elsewhere.remote(sys.argv[1]), elsewhere.remote(sys.argv[1]), first.remote(0), elsewhere.remote(sys.argv[1])])
"""
    completed = run_program(source, str(tmp_path / "file")).expect()
    for stream, count in ((completed.stdout, 403), (completed.stderr, 101)):
        lines = parse(stream)
        assert {match["name"] for match in lines if not match["text"].startswith(match["name"])} == set()
        assert len(lines) >= count
    assert (tmp_path / "file").read_text() == "elsewhere\n" * 2 + "first 0\nfirst has no endelsewhere\n"


@pytest.mark.parametrize("ranks", WAYS)
def test_what_is_written_last_is_shown(ranks: int | None) -> None:
    """Before a crash, without an end of line, by programs that a task has started, by threads and at exit."""
    source = """
import atexit, os, signal, subprocess, sys
import mpi_runtime as ray

@ray.remote(max_retries=0)
def crash(how):
    print("whole line before", how)
    sys.stdout.write("no end of line before " + how)
    sys.stdout.flush()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(3)
    if how == "fault":
        import ctypes
        ctypes.string_at(0)

@ray.remote
def start():
    subprocess.run(["sh", "-c", "echo by a program; echo by a program with trouble >&2"])
    os.system("printf 'no end of line by a program'")

@ray.remote
def leave():
    atexit.register(print, "at exit")
    os.write(1, b"directly\\n")

ray.init(num_cpus=1)
for how in ("kill", "exit", "fault"):
    try:
        ray.get(crash.remote(how))
    except ray.errors.WorkerCrashedError as error:
        sys.stdout.write(f"crashed {how}\\n")  # in one piece, also where stdout is not buffered
        sys.stdout.flush()
ray.get(start.remote())
ray.get(leave.remote())
"""
    completed = run_program(source, ranks=ranks).expect()
    lines = [match["text"] for line in completed.stdout.splitlines() if (match := ORIGIN.match(line))]
    for how in ("kill", "exit", "fault"):
        assert f"whole line before {how}" in lines, completed.output()
        assert f"no end of line before {how}" in lines, completed.output()
        assert f"crashed {how}" in completed.stdout.splitlines()
    assert "by a program" in lines
    assert any("no end of line by a program" in line for line in lines)
    assert any(line.endswith("directly") for line in lines)
    assert [match["text"] for match in parse(completed.stderr)] == ["by a program with trouble"]


def test_output_can_be_turned_off() -> None:
    source = """
import mpi_runtime as ray
ray.init(num_cpus=1, log_to_driver=False)
ray.get(ray.remote(lambda: print("unseen")).remote())
print("own")
"""
    assert run_program(source).expect().stdout == "own\n"


FLOOD = """
import os, resource, sys, time
import mpi_runtime as ray

MEGABYTES = 60

@ray.remote
def flood():
    line = "f" * 1023 + "\\n"
    for _ in range(MEGABYTES):
        sys.stdout.write(line * 1024)

@ray.remote
def answer(x):
    return x

ray.init(num_cpus=2)
assert ray.get(answer.remote(1)) == 1
flooding = flood.remote()
slowest, count = 0.0, 0
while not ray.wait([flooding], timeout=0)[0]:
    start = time.monotonic()
    assert ray.get(answer.remote(count), timeout=30) == count
    slowest = max(slowest, time.monotonic() - start)
    count += 1
print(f"answered {count} calls, the slowest in {slowest:.3f} s", file=sys.stderr, flush=True)
parts = [f"/proc/{pid}/status" for pid in os.listdir("/proc") if pid.isdigit()]
for path in parts:
    try:
        text = open(path).read()
        name = open(path.replace("status", "comm")).read()
    except OSError:
        continue
    if f"PPid:\\t{os.getpid()}\\n" in text and name == "mpi-rt-head\\n":
        print("head", [line for line in text.splitlines() if line.startswith("VmHWM")][0].split()[1], file=sys.stderr)
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("ranks", WAYS)
def test_a_flood_holds_up_nobody(ranks: int | None) -> None:
    """The reader of the driver's output is slow at first: the writing task waits, calls of others are answered."""
    with start_program(FLOOD, ranks=ranks) as program:
        completed = program.finish(170).expect()
    print(completed.stderr)
    assert completed.stdout.count("\n") == 60 * 1024
    peak_kib = int(next(line.split()[1] for line in completed.stderr.splitlines() if line.startswith("head ")))
    assert peak_kib < 300 * 1024


def test_a_reader_that_takes_its_time(tmp_path: Path) -> None:
    """Nothing is lost, and the program ends, when the output is read more slowly than it is written."""
    app = tmp_path / "app.py"
    app.write_text(FLOOD.replace("MEGABYTES = 60", "MEGABYTES = 12"))
    program = subprocess.Popen(
        [sys.executable, app],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert program.stdout is not None
    assert program.stderr is not None
    size = 0
    while data := program.stdout.read1(1 << 17):
        size += data.count(b"\n")
        time.sleep(0.03)
    assert program.wait(30) == 0
    error = program.stderr.read().decode()
    program.stderr.close()
    program.stdout.close()
    assert "answered" in error
    assert size == 12 * 1024


@pytest.mark.parametrize("ranks", WAYS)
def test_nobody_reads_the_output(ranks: int | None, tmp_path: Path) -> None:
    """As with `| head -1`: the program goes on and ends as it would."""
    app = tmp_path / "app.py"
    app.write_text("""
import sys
import mpi_runtime as ray

@ray.remote
def talk():
    for number in range(2000):
        print("line", number)
    return 5

ray.init(num_cpus=2)
assert ray.get([talk.remote() for _ in range(20)]) == [5] * 20
print("went on", file=sys.stderr, flush=True)
""")
    launcher = f"{Path(sys.executable).with_name('mpirun')} -n {ranks}" if ranks else ""
    with start_program(
        f"""
import subprocess
line = "{launcher} {sys.executable} {app} | head -1"
completed = subprocess.run(["bash", "-c", line + "; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
print(completed.stdout, completed.stderr)
"""
    ) as program:
        completed = program.finish().expect()
    lines = completed.stdout.splitlines()
    assert "line" in lines[0]
    assert lines[1] == "0" or ranks  # the launcher has its own view of a pipe that breaks
    assert "went on" in completed.stdout or ranks, completed.output()
