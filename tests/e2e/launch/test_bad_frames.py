"""User code that writes where only frames of ours belong: the executor is ended, and the job goes on and is right."""

import re
from pathlib import Path

import pytest

from tests.helpers import run_program

PROGRAM = r"""
import os, random, socket, struct, sys
import mpi_runtime as ray
from mpi_runtime.scheduler.protocol.events import Done, Put, Released, Returned, Stored, Value, Yielded
from mpi_runtime.core.transport import channel, codec
from mpi_runtime.core.transport.channel import LOCAL, Splitter, packed
from mpi_runtime.core.transport.messages import Abandon, Drained, Shutdown

ray.init(num_cpus=2)
NONE = b"\x80\x05N."


def line():
    "The descriptor over which this process speaks: the stream socket among all that it has."
    for name in os.listdir("/proc/self/fd"):
        if not os.path.exists(f"/proc/self/fd/{name}"):
            continue
        if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM:
                    return int(name)


def own_id():
    return bytes.fromhex(ray.get_runtime_context().get_task_id())


@ray.remote(max_retries=0)
def says(make):
    os.write(line(), make(own_id()))
    return "said"


@ray.remote(max_retries=-1)
def square(number):
    return number * number


def outcome(ref):
    try:
        return ray.get(ref, timeout=60)
    except ray.exceptions.WorkerCrashedError as error:
        assert "sent a frame that cannot be read: " in str(error), error
        return "crashed"


def all_is_well():
    assert ray.get([square.remote(n) for n in range(100)], timeout=60) == [n * n for n in range(100)]
"""

FRAMES = {
    "three bytes": "lambda id: b'abc'",
    "a text": "lambda id: b'debugging: x = 3\\n' * 100",
    "zeros": "lambda id: bytes(64)",
    "a huge length": "lambda id: struct.pack('<IH', 0xFFFFFFF0, 1)",
    "a huge length that is right": "lambda id: channel.HEADER.pack(0xFFFFFFF0, 0xF, 0)",
    "no messages": "lambda id: packed(b'abc', 0)",
    "no messages, and an end": "lambda id: packed(b'abc', 1)",
    "too many ends": "lambda id: packed(codec.encode([]), 7)",
    "an end that is none": "lambda id: packed(codec.encode([]), 1)",
    "an end that is not counted": "lambda id: packed(codec.encode([Done(id, NONE, 1)]), 0)",
    "an end twice": "lambda id: packed(codec.encode([Done(id, NONE, 1)] * 2), 2)",
    "memory of others": "lambda id: packed(codec.encode([Put(b'p' * 16, Value(b'', Stored(9, 0, 9)))]), 0)",
    "the end of the job": "lambda id: packed(codec.encode([Shutdown()]), LOCAL)",
    "calls dropped": "lambda id: packed(codec.encode([Drained(1 << 40)]), LOCAL)",
    "memory given back": "lambda id: packed(codec.encode([Abandon(0)]), LOCAL)",
    "nothing for an agent": "lambda id: packed(codec.encode([Done(id, b'', 1)]), LOCAL)",
    "an item": "lambda id: packed(codec.encode([Yielded(id, 0, b'i' * 16, Value(b''))]), 0)",
}


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.mpi)])
def test_its_executor_is_ended_and_nothing_else(ranks: int) -> None:
    frames = "{" + ", ".join(f"{name!r}: {make}" for name, make in FRAMES.items()) + "}"
    source = (
        PROGRAM
        + f"frames = {frames}\n"
        + r"""
for name, make in frames.items():
    said = says.remote(make)
    all_is_well()
    assert outcome(said) in ("crashed", None), name  # None is what a call has said in its own name
print("right")
"""
    )
    completed = run_program(source, ranks=ranks).expect(0)
    assert completed.stdout == "right\n"
    assert "Traceback" not in completed.stderr
    lines = [line for line in completed.stderr.splitlines() if "sent a frame that cannot be read" in line]
    assert 1 <= len(lines) <= len(FRAMES)
    assert "mpi_runtime: executor " in lines[0]
    assert "It is ended, and what it ran is treated as after a crash" in lines[0]


def test_it_is_run_again_where_it_may_be(tmp_path: Path) -> None:
    source = (
        PROGRAM
        + r"""
@ray.remote(max_retries=2)
def says_twice(path):
    with open(path, "a") as file:
        file.write("x")
    if os.path.getsize(path) < 3:
        os.write(line(), b"abc")
    return os.path.getsize(path)

@ray.remote(max_restarts=1, max_task_retries=1)
class Actor:
    def __init__(self):
        self.calls = 0
    def count(self):
        self.calls += 1
        return self.calls
    def say(self, path):
        if not os.path.exists(path):
            open(path, "w").close()
            os.write(line(), b"abc")
        return "said"

path = sys.argv[1]
print(ray.get(says_twice.remote(path + "/task")))
actor = Actor.remote()
print(ray.get(actor.count.remote()))
print(ray.get(actor.say.remote(path + "/actor")))
print(ray.get(actor.count.remote()))
all_is_well()
"""
    )
    completed = run_program(source, str(tmp_path)).expect(0)
    assert completed.stdout == "3\n1\nsaid\n1\n"


def test_two_hundred_wrong_frames_in_one_job() -> None:
    source = (
        PROGRAM
        + r"""
from tests.simulation import mutated_frames

@ray.remote(max_retries=0)
def says_wrong(seed):
    rng, id = random.Random(seed), own_id()
    right = [
        [Done(id, b"\x80\x05N.", 5)], [Returned(id, [Value(b"x")], 5)], [Released([id])], [Put(id, Value(b"x"))],
        [Shutdown()], [Drained(3)], [Abandon(64)],
    ]
    frames = [codec.encode(one) for one in right]
    while True:
        at = rng.randrange(len(frames))
        data = mutated_frames.mutated(rng, frames[at], LOCAL if at > 3 else at < 2, frames)
        splitter = Splitter()
        splitter.feed(data)
        if not splitter._parts:  # a frame that breaks off, made on purpose, would be waited for
            break
    os.write(line(), data)
    return seed

outcomes = []
for first in range(0, 200, 20):
    said = [says_wrong.remote(seed) for seed in range(first, first + 20)]
    all_is_well()
    for ref in said:
        try:
            outcomes.append(type(ray.get(ref, timeout=60)).__name__)
        except ray.exceptions.GetTimeoutError:
            raise
        except Exception as error:
            outcomes.append(type(error).__name__)
all_is_well()
print(len(outcomes), outcomes.count("WorkerCrashedError") > 60)
"""
    )
    completed = run_program(source, timeout=110).expect(0)
    assert completed.stdout == "200 True\n"
    assert "Traceback" not in completed.stderr
    said = completed.stderr.count("sent a frame that cannot be read")
    assert 1 <= said < 60, "once in a second at most"


def test_the_drivers_own_bad_frame_ends_the_job_with_a_reason() -> None:
    source = (
        PROGRAM
        + r"""
all_is_well()
os.write(line(), b"abc")
try:
    ray.get(square.remote(3), timeout=60)
except ray.exceptions.HeadDiedError:
    print("the head is gone")
"""
    )
    completed = run_program(source)
    quote = "['\"]"  # Python chooses it by the bytes that follow
    said = rf"rank 0: the program sent a frame that cannot be read: no frame starts with b{quote}abc"
    assert re.search(said, completed.stderr)
    assert "so the job cannot continue" in completed.stderr
    assert "BadFrameError" not in completed.stderr, "a traceback of the head's"


def test_descriptors_of_ours_are_not_in_the_way() -> None:
    source = (
        PROGRAM
        + r"""
import errno, resource, subprocess

@ray.remote(max_retries=0)
def first_file():
    with open("/dev/null") as file:
        own = file.fileno()
    for descriptor in range(3, own):  # libffi 3.5 keeps its own file open
        assert "libffi" in os.readlink(f"/proc/self/fd/{descriptor}")
    return own < 5

@ray.remote(max_retries=0)
def writes_to_all_low_ones():
    written = 0
    for descriptor in range(3, min(900, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 64)):
        try:
            written += os.write(descriptor, b"abc")
        except OSError as error:
            assert error.errno == errno.EBADF
    os.closerange(3, 100)
    return written

@ray.remote(max_retries=0)
def inherited():
    listing = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    return subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, close_fds=False).stdout

@ray.remote(max_retries=0)
def sockets():
    "Nothing leads to the forkserver, nor to another executor."
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(name) and os.readlink(name).startswith("socket:") for name in names)

print(ray.get([first_file.remote(), writes_to_all_low_ones.remote(), sockets.remote()]))
print(ray.get(inherited.remote()))

@ray.remote(max_retries=0)
def closes_all():
    os.closerange(3, 1 << 16)

try:
    ray.get(closes_all.remote(), timeout=60)
except ray.exceptions.WorkerCrashedError:
    print("crashed")
all_is_well()
"""
    )
    completed = run_program(source).expect(0)
    assert completed.stdout == "[True, 0, 1]\n[0, 1, 2, 3]\n\ncrashed\n"
