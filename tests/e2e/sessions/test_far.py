"""Programs on another host than their session: what they can do, lines that break, and what is left of them.

The host is this one under another name. Programs see a copy of the session file, with another secret, so that they do
not find the door of the session. `ssh` is a script that runs its command here, behind two processes that copy
its streams, as a real one does. `tests/e2e/hosts/test_sessions.py` and `tests/slurm/test_far_sessions.py` have real
hosts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.core.head import inspecting
from mpi_runtime.core.host.process_tree import children
from mpi_runtime.show.live import LiveJob
from tests.e2e.sessions.started import CONNECT, content, drivers_left, log, said, session
from tests.helpers import Program, start_command, start_program, wait_until

SSH = """#!/bin/bash
set -o pipefail  # it ends with the exit code of the command
while :; do
    case "$1" in
        -o) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
shift
[ ! -e {place}/unreachable ] || {{ echo "ssh: connect to host: No route to host" >&2; exit 255; }}
echo $$ >> {place}/lines
echo "Welcome to this host!"
sh -c "$(echo "$*" | sed s,/seen/,/real/,)" < <(cat) | cat  # ends with the command, though there may be input
"""


NO_SSH = """#!/bin/bash
echo "ssh: connect to host: Connection refused" >&2
exit 255
"""
_AFTER_OPTIONS = SSH.index("[ ! -e")
SRUN = "#!/bin/bash\nset -o pipefail\nwhile [ ${{1::1}} != / ]; do shift; done\n" + SSH[_AFTER_OPTIONS:]


class Far:
    """A session that seems to be on another host."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.real, self.seen = place / "real", place / "seen"
        (place / "bin").mkdir()
        ssh = place / "bin" / "ssh"
        ssh.write_text(SSH.format(place=place))
        ssh.chmod(0o755)

    def show(self, **fields: str) -> None:
        """Show programs the session file with these fields."""
        (found,) = self.real.glob("mpi_runtime/sessions/*/*.json")
        path = self.seen / found.relative_to(self.real)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text(json.dumps({**json.loads(found.read_text()), "host": "elsewhere", "secret": "none", **fields}))

    def use_srun(self) -> None:
        """Have programs reach it by srun."""
        for name, script in (("ssh", NO_SSH), ("srun", SRUN.format(place=self.place))):
            (self.place / "bin" / name).write_text(script)
            (self.place / "bin" / name).chmod(0o755)
        self.show(step_of="1")

    def passed(self) -> list[Path]:
        """The directories of files that pass values."""
        return list(self.seen.glob("mpi_runtime/sessions/*/s.values.*"))

    def driver(self, source: str, connects: str = CONNECT) -> Program:
        """Start a program that connects."""
        env = {"XDG_STATE_HOME": str(self.seen), "PATH": f"{self.place}/bin:{os.environ['PATH']}"}
        return start_program(connects + source, env=env)

    def lines(self) -> list[int]:
        """The processes of ssh that were started, each the leader of its group."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.place / "lines").read_text().split()]
        return []

    def signal(self, number: int) -> None:
        """Send a signal to the processes of the last line."""
        with suppress(ProcessLookupError):
            os.killpg(self.lines()[-1], number)

    def is_reachable(self, yes: bool) -> None:
        """Whether ssh reaches the host."""
        if yes:
            (self.place / "unreachable").unlink()
        else:
            (self.place / "unreachable").touch()


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    monkeypatch.setenv("MPI_RUNTIME_QUIET", "0")
    made = Far(tmp_path)
    with session(made.real, "--num-cpus", "2", "--object-store-memory", "400000000"):
        made.show()
        yield made


ALL = """
import numpy, time
@ray.remote
def double(x):
    print("printed by a call")
    return 2 * x
@ray.remote
class Counter:
    def __init__(self): self.n = 0
    def add(self): self.n += 1; return self.n
counter = Counter.options(name="shared", lifetime="detached", get_if_exists=True).remote()
print(ray.get([double.remote(x) for x in range(3)]), ray.get(counter.add.remote()))
ray.get([counter.add.remote() for _ in range(1000)])
for size in (1, 8191, 8192, 32768, 1 << 20, 12_500_000):  # the last has 100 MB
    sent = numpy.random.default_rng(size).random(size)
    ref = ray.put(sent)
    assert numpy.array_equal(ray.get(ref), sent), size
    if size < 1 << 21:
        found = ray.get(double.remote(ref))
        assert numpy.array_equal(found, 2 * sent), size
    del ref
print(found.flags.writeable)
ray.shutdown()
print("after", float(found.sum() == 2 * numpy.random.default_rng(1 << 20).random(1 << 20).sum()))
"""


WAYS = pytest.mark.parametrize("way", ["ssh", "srun"])
"""By srun, large values are files."""


@WAYS
def test_a_program_elsewhere_has_tasks_actors_and_values_of_any_size(far: Far, way: str) -> None:
    if way == "srun":
        far.use_srun()
    with far.driver(ALL) as program:
        done = program.finish().expect(0)
    assert "[0, 2, 4] 1\n" in done.stdout
    assert "False" in done.stdout
    assert done.stdout.endswith("after 1.0\n")
    # What the calls printed was there before `shutdown()` returned.
    assert done.stdout.count("printed by a call") == 8
    assert done.stdout.rindex("printed by a call") < done.stdout.index("after")
    drivers_left(far.real, 1)
    with far.driver("print(ray.get(ray.get_actor('shared').add.remote()))") as program:
        assert program.finish().expect(0).stdout == "1002\n"
    assert not far.passed()


FILES = """
import glob, numpy, os, sys
data = numpy.random.default_rng(0).random(4_000_000)
ref = ray.put([data, data[:100], data[::2].copy()])
assert all(map(numpy.array_equal, ray.get(ref), [data, data[:100], data[::2]]))
print("moved", flush=True); input()
for _ in range(2):
    assert all(map(numpy.array_equal, ray.get(ref), [data, data[:100], data[::2]]))
assert numpy.array_equal(ray.get(ray.put(data)), data)
print("again", flush=True); input()
"""


def moved_mb(pid: int) -> int:
    """What a dialler has read from its line, and written to it."""
    found = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return (int(found["rchar"]) + int(found["wchar"])) // 1_000_000


def test_large_values_are_files_where_the_line_is_slow_and_take_the_line_where_files_fail(far: Far) -> None:
    far.use_srun()
    with far.driver(FILES) as program:
        program.wait_for_line("moved")
        dialler = parent(far.lines()[-1])
        assert moved_mb(dialler) < 10
        (directory,) = far.passed()
        assert not list(directory.iterdir())
        directory.rename(directory.with_name("elsewhere"))
        program.write("\n")
        program.wait_for_line("again")
        assert moved_mb(dialler) > 150
        directory.with_name("elsewhere").rename(directory)
        (directory / "1").write_text("left")
        program.write("\n")
        program.finish().expect(0)
        wait_until(lambda: not far.passed(), what="its files to be removed")


STREAM = """
import numpy
@ray.remote
class Counter:
    def __init__(self): self.n = 0
    def add(self, data): self.n += 1; return self.n, len(data), numpy.full(20_000, self.n)
counter = Counter.remote()
print("begun", flush=True)
wanted = 0
for turn in range(TURNS):
    refs = [counter.add.remote(bytes(i * 300)) for i in range(100)]
    big = ray.put(numpy.full(500_000, turn))
    for i, (number, length, array) in enumerate(ray.get(refs)):
        wanted += 1
        assert (number, length) == (wanted, i * 300), (number, length, wanted, i)
        assert len(array) == 20_000 and (array == wanted).all()
    assert (ray.get(big) == turn).all()
print("all", wanted)
"""


@pytest.mark.timeout(240)
@WAYS
def test_every_call_arrives_once_on_a_line_that_breaks_again_and_again(far: Far, way: str) -> None:
    """The ways differ in how a line is made, so one of them has fewer calls."""
    turns, least = (60, 5) if way == "ssh" else (20, 1)
    if way == "srun":
        far.use_srun()
    dice = random.Random(1)

    def has_dialled(count: int) -> bool:
        return len(far.lines()) > count or program.process.poll() is not None

    with far.driver(STREAM.replace("TURNS", str(turns))) as program:
        program.wait_for_line("begun")
        for count in range(1, 13):
            time.sleep(dice.random())
            far.signal(signal.SIGKILL)
            wait_until(partial(has_dialled, count))
        done = program.finish(timeout=150).expect(0)
    assert done.stdout.endswith(f"all {100 * turns}\n")
    assert len(far.lines()) > least
    assert "the line to elsewhere is lost" in done.stderr  # a warning, in spite of quiet=True


WAITS = """
import time
@ray.remote
class Actor:
    def stay(self): return 1
actor = Actor.options(name="mine").remote()
ref = ray.put(bytes(1 << 20))
print(ray.get(actor.stay.remote()), flush=True)
"""


def test_what_belongs_to_a_program_that_is_killed_is_freed_at_once(far: Far) -> None:
    with far.driver(WAITS + "time.sleep(1000)") as program:
        program.wait_for_line("1")
        os.kill(program.pid, signal.SIGKILL)
        began = time.monotonic()
        drivers_left(far.real, 1)
        assert time.monotonic() - began < 5
        program.process.wait()
        wait_until(lambda: not program.processes(), what="the dialler and ssh to end")


def test_the_end_of_a_program_is_seen_though_its_children_have_its_socket(far: Far) -> None:
    forks = """
import os
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(3)
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    with far.driver(WAITS + forks) as program:
        program.process.wait()
        drivers_left(far.real, 1)
        program.kill()


def test_a_silent_line_is_dialled_again(far: Far) -> None:
    with far.driver(WAITS + "input()\nprint(ray.get(actor.stay.remote()) + 1)") as program:
        program.wait_for_line("1")
        far.signal(signal.SIGSTOP)
        stopped = far.lines()[-1]
        began = time.monotonic()
        program.write("\n")
        try:
            program.wait_for_line("2")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(stopped, signal.SIGCONT)
        assert 10 < time.monotonic() - began < 40
        assert "silent for 20 s" in program.finish().expect(0).stderr


def test_a_program_that_is_away_too_long_is_freed_and_has_an_error(far: Far) -> None:
    connects = CONNECT.replace("quiet=True", "quiet=True, reconnect_s=1.5")
    source = """
try:
    while True:
        ray.get(actor.stay.remote())
        time.sleep(0.1)
except ray.exceptions.HeadDiedError as error:
    print("lost:", error)
"""
    with far.driver(WAITS + source, connects) as program:
        program.wait_for_line("1")
        far.is_reachable(False)
        far.signal(signal.SIGKILL)
        drivers_left(far.real, 1)
        done = program.finish().expect(0)
    assert "lost: The line to the session 's' on elsewhere is lost: it could not be reached for 1.5 s" in done.stdout
    assert "could not be reached for 1.5 s: `ssh elsewhere`: ssh: connect to host: No route to host" in done.stderr
    assert "is away for 1.5 s, and counts as gone" in log(far.real)


def test_a_program_whose_line_is_broken_is_shown_as_away(far: Far) -> None:
    found = content(far.real)
    assert found is not None
    job = LiveJob("s", found.pid, partial(inspecting.reply, found.pid))

    def states() -> set[str]:
        """As `session status`, `list drivers` and the live page have it."""
        (line,) = [one for one in said(far.real, "status", "s").stdout.splitlines() if "  driver " in one]
        listed = [sys.executable, "-m", "mpi_runtime", "list", "drivers", "--json", str(found.pid)]
        with start_command(listed) as command:
            (entry,) = json.loads(command.finish().expect(0).stdout)
        job.sample()
        (block,) = [one for one in job.document()["blocks"] if one.get("id") == "drivers"]
        (row,) = block["rows"]
        named = f"app.py on {os.uname().nodename}"
        assert f"{named} (pid {program.pid})" in line
        assert (entry["program"], row[1]) == (named, named)
        state, _, for_s = line.split("), ")[1].split(":")[0].partition(" for ")
        for said_state, since in ((state.upper(), for_s), (entry["state"], entry["away_ms"]), (row[3], "," in row[5])):
            assert bool(since) == (said_state == "AWAY")
        return {state.upper(), entry["state"], row[3]}

    with far.driver(WAITS + "input()\nprint(ray.get(actor.stay.remote()) + 1); input()") as program:
        program.wait_for_line("1")
        for answer in ("", "2"):  # it is used before it breaks again
            assert states() == {"CONNECTED"}
            far.is_reachable(False)
            far.signal(signal.SIGKILL)
            wait_until(lambda: states() == {"AWAY"}, what="it to be away")
            far.is_reachable(True)
            wait_until(lambda: states() == {"CONNECTED"}, what="it to be back")
            program.write("\n")
            program.wait_for_line(answer)
        assert program.finish().expect(0).stdout == "1\n2\n"


def test_the_end_of_the_process_of_a_line_is_named(far: Far) -> None:
    source = "input()\ntry: ray.get(actor.stay.remote())\nexcept ray.exceptions.HeadDiedError as error: print(error)"
    with far.driver(WAITS + source) as program:
        program.wait_for_line("1")
        os.kill(parent(far.lines()[-1]), signal.SIGKILL)
        program.write("\n")
        assert "`mpi-runtime line` beside this program was killed" in program.finish().expect(0).stdout


FILLS = """
input()
data = bytes(50_000)
refs = [actor.take.remote(data) for _ in range(3000)]  # 150 MB
print(sum(ray.get(refs)))
"""


def test_what_waits_for_a_line_is_bounded_and_arrives_when_there_is_one(far: Far) -> None:
    begins = WAITS.replace("    def stay", "    def take(self, data): return len(data)\n    def stay")
    with far.driver(begins + FILLS) as program:
        program.wait_for_line("1")
        dialler = parent(far.lines()[-1])
        far.is_reachable(False)
        far.signal(signal.SIGKILL)
        program.write("\n")
        program.wait_for_line("64 MiB of this program's messages wait for the line to elsewhere")
        time.sleep(1)  # it would take all
        assert peak_mb(dialler) < 200
        far.is_reachable(True)
        assert program.finish().expect(0).stdout.endswith("150000000\n")


def peak_mb(pid: int) -> int:
    """The most memory that a process has had."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) // 1000


def test_a_line_that_comes_back_too_late_is_refused(far: Far) -> None:
    """The attendant waits for the time that its program states, but a program may be stopped meanwhile."""
    connects = CONNECT.replace("quiet=True", "quiet=True, reconnect_s=1.5")
    with far.driver(WAITS + "input()\nray.get(actor.stay.remote())", connects) as program:
        program.wait_for_line("1")
        dialler = parent(far.lines()[-1])
        os.kill(dialler, signal.SIGSTOP)
        far.signal(signal.SIGKILL)
        drivers_left(far.real, 1)
        os.kill(dialler, signal.SIGCONT)
        program.write("\n")
        done = program.finish()
    assert done.returncode == 1
    assert "away for too long" in done.stderr
    assert "HeadDiedError" in done.stderr


def parent(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_end_of_the_session_reaches_programs_elsewhere(tmp_path: Path, far: Far) -> None:
    with far.driver(
        WAITS + "time.sleep(0.1)\nray.get(Actor.remote().stay.remote())\nray.get(ray.put(1)); input()\n"
        "ray.get(actor.stay.remote())"
    ) as program:
        program.wait_for_line("1")
        assert said(far.real, "stop", "s").returncode == 0
        program.write("\n")
        done = program.finish()
    assert done.returncode == 1
    assert "HeadDiedError" in done.stderr
    assert len(far.lines()) == 1


@pytest.mark.parametrize("who", ["keeper", "head"])
def test_a_program_elsewhere_notices_that_its_session_is_killed(far: Far, who: str) -> None:
    with far.driver(WAITS + "input()\nray.get(actor.stay.remote())") as program:
        program.wait_for_line("1")
        found = content(far.real)
        assert found is not None
        (head,) = [pid for pid in children(found.pid) if "head" in Path(f"/proc/{pid}/comm").read_text()]
        os.kill({"keeper": found.pid, "head": head}[who], signal.SIGKILL)
        program.write("\n")
        done = program.finish()
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("HeadDiedError: ") :].splitlines()[0]
    assert ("the session 's' was killed" if who == "keeper" else "has closed the connection") in error


INTERRUPTED = """
import numpy, os, signal, threading
sent = numpy.arange(8_000_000.0)  # 64 MB
ref = ray.put(sent)
broken = 0
for turn in range(20):
    try:
        threading.Timer(0.01 * turn, os.kill, (os.getpid(), signal.SIGINT)).start()
        if turn % 2: ray.get(ref)
        else: ray.put(sent)
        time.sleep(1)
    except KeyboardInterrupt:
        broken += 1
    assert ray.get(actor.stay.remote()) == 1
assert (ray.get(ref) == sent).all()
del ref
print("broken", broken, flush=True); input()
"""


@WAYS
def test_ctrl_c_ends_a_transfer_and_nothing_else(far: Far, way: str) -> None:
    if way == "srun":
        far.use_srun()
    with far.driver(WAITS + INTERRUPTED) as program:
        program.wait_for_line("broken 20")
        assert [list(one.iterdir()) for one in far.passed()] == ([[]] if way == "srun" else [])
        program.write("\n")
        program.finish().expect(0)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({}, "`ssh elsewhere`: ssh: connect to host: No route to host"),
        ({"python": "/nowhere/bin/python"}, "its Python must have the same path on both hosts"),
    ],
)
def test_what_is_wrong_is_in_the_first_line_of_the_error(far: Far, shown: dict[str, str], expected: str) -> None:
    far.show(**shown)
    if not shown:
        far.is_reachable(False)
    with far.driver("") as program:
        done = program.finish()
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("ConnectionError: ") :].splitlines()[0]
    assert "init('session:s'): the session runs on elsewhere, which cannot be reached from here: " in error
    assert expected in error


def test_a_session_of_another_version_refuses_programs_elsewhere(far: Far) -> None:
    source = """
from mpi_runtime.core.transport import hello
hello.PROTOCOL = 99
import mpi_runtime as ray
ray.init("auto")
"""
    with far.driver(source, "") as program:
        done = program.finish()
    assert done.returncode == 1
    assert "the protocol of connections is 99 in the program and 1 in the session" in done.stderr


def test_the_output_of_a_program_ends_with_it_though_its_line_is_broken(far: Far) -> None:
    with far.driver(WAITS + "input()") as program:
        program.wait_for_line("1")
        far.is_reachable(False)
        far.signal(signal.SIGKILL)
        program.wait_for_line("is lost")
        line = program.processes()
        program.process.kill()
        program.process.wait()
        wait_until(lambda: not has_output(program, line), 10, "its output to end")
        far.is_reachable(True)
        drivers_left(far.real, 1)
        program.finish()


def has_output(program: Program, pids: list[int]) -> bool:
    """Whether any of these processes has a file that the program wrote to as its output."""
    outputs = {os.path.realpath(program.place / name) for name in ("stdout", "stderr")}
    for pid in pids:
        with suppress(OSError):
            if outputs & {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}:
                return True
    return False
