"""Whole programs, started in each way: the API where tasks and actors live on other ranks, and what programs print."""

import os
import re
import signal
import socket
import textwrap

import pytest

from tests.helpers import run_program, start_program, wait_until

WAYS = [
    pytest.param({}, id="plain"),
    pytest.param({"ranks": 1}, id="one-rank", marks=pytest.mark.mpi),
    pytest.param({"ranks": 4, "mpi": "openmpi"}, id="openmpi", marks=pytest.mark.mpi),
    pytest.param({"ranks": 4, "mpi": "mpich"}, id="mpich", marks=pytest.mark.mpi),
]

EVERYTHING = r"""
import gc, os, sys, time
import numpy as np
import mpi_runtime as ray
from mpi_runtime.core.client import current
from mpi_runtime.scheduler.protocol.questions import Statistics

ray.init(num_cpus=4, num_gpus=2, resources={"camera": 1})


def section(name):
    print("ok", name, flush=True)


@ray.remote
def add(a, b=1):
    return a + b


@ray.remote(num_returns=2)
def both(x):
    return x, [ray.put(x)]


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        self.value += n
        return self.value

    def pid(self):
        return os.getpid()


class OwnError(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


@ray.remote(max_retries=0)
def fail(how):
    if how == "raise":
        raise OwnError("mine", code=5)
    if how == "exit":
        sys.exit(3)
    os.kill(os.getpid(), 11)


assert ray.get([add.remote(n) for n in range(300)]) == list(range(1, 301))
chain = 0
for _ in range(200):
    chain = add.remote(chain)
assert ray.get(chain) == 200
section("tasks")

big = np.arange(1_000_000)
ref = ray.put(big)
assert ray.get(ref) is not big and np.array_equal(ray.get(ref), big)
assert not ray.get(ref).flags.writeable


@ray.remote
def total(array, refs):
    assert not array.flags.writeable and array.ctypes.data % 64 == 0
    assert np.shares_memory(array, ray.get(refs[0]))
    return array * 2


assert ray.get(total.remote(ref, [ref]))[10] == 20
parts = [total.remote(ref, [ref]) for _ in range(8)]
assert all(part[-1] == 1_999_998 for part in ray.get(parts))
assert ray.get(add.remote(parts[0], parts[1]))[1] == 4
del parts, ref, chain
section("arrays")

x, refs = both.remote(3)
assert ray.get(x) == 3 and ray.get(ray.get(refs)[0]) == 3
inner = ray.get(both.options(num_returns=1).remote([1] * 50_000))
assert len(inner[0]) == len(ray.get(inner[1][0])) == 50_000


@ray.remote
def nested(depth):
    return 0 if not depth else 1 + ray.get(nested.remote(depth - 1))


assert ray.get([nested.remote(6) for _ in range(4)]) == [6] * 4
ready, rest = ray.wait([add.remote(n) for n in range(20)], num_returns=20, timeout=30)
assert len(ready) == 20 and not rest
del x, refs, inner, ready, rest
section("references")

counter = Counter.remote(10)
assert ray.get([counter.add.remote() for _ in range(100)]) == list(range(11, 111))


@ray.remote
def use(handle, n):
    return ray.get([handle.add.remote() for _ in range(n)])[-1]


ray.get([use.remote(counter, 10) for _ in range(5)])
assert ray.get(counter.add.remote(0)) == 160
many = [Counter.remote(n) for n in range(8)]
assert ray.get([one.add.remote() for one in many]) == list(range(1, 9))
ray.kill(many[0])
try:
    ray.get(many[0].add.remote())
    raise AssertionError("the dead answered")
except ray.exceptions.RayActorError as error:
    assert "killed" in str(error)
pid = ray.get(counter.pid.remote())
del counter, many
gc.collect()
section("actors")

crashed = ray.exceptions.WorkerCrashedError
for how, kind in (("raise", OwnError), ("exit", crashed), ("kill", crashed)):
    try:
        ray.get(fail.remote(how))
        raise AssertionError("nothing raised")
    except kind as error:
        text = str(error)
        if how == "raise":
            assert error.code == 5 and isinstance(error, ray.exceptions.RayTaskError), error
            assert "fail() failed: pid=" in text and "rank=" in text
        else:
            assert ("code 3" if how == "exit" else "SIGSEGV") in text, text
section("errors")


@ray.remote(num_cpus=0, num_gpus=1)
class Device:
    def which(self):
        return ray.get_gpu_ids(), ray.get_runtime_context().get_rank()


devices = [Device.remote() for _ in range(2)]  # both at a time
found = ray.get([device.which.remote() for device in devices])
del devices
assert sorted(ids for ids, _ in found) == [[0], [1]], found
try:
    ray.get(add.options(num_cpus=5).remote(1), timeout=20)
    raise AssertionError("five of four")
except ray.exceptions.InfeasibleResourceError as error:
    assert "4 CPU" in str(error)
resources = ray.cluster_resources()
assert resources["CPU"] == 4 and resources["GPU"] == 2 and resources["camera"] == 1
(node,) = ray.nodes()
ranks = {rank for _, rank in found}
assert ranks <= set(node["ranks"])
assert len(node["ranks"]) == 1 or 0 not in ranks
section("resources")

deadline = time.monotonic() + 20
while True:
    left = current.client().questions.ask(Statistics())
    if not (left.objects or left.actors or left.stored_extents) and ray.available_resources()["CPU"] == 4:
        break
    assert time.monotonic() < deadline, left
    time.sleep(0.02)
section("nothing left")

old = ray.put(np.full(200_000, 7))
view = ray.get(old)
ray.shutdown()
ray.init(num_cpus=2)
others = [ray.put(np.zeros(200_000)) for _ in range(4)]
assert ray.get(add.remote(1)) == 2
assert (view == 7).all()
try:
    ray.get(old, timeout=20)
    raise AssertionError("a ref of an earlier job")
except ray.exceptions.ObjectLostError:
    pass
assert ray.get(Counter.remote().add.remote()) == 1
del old
section("again")
"""

SECTIONS = ["tasks", "arrays", "references", "actors", "errors", "resources", "nothing left", "again"]


@pytest.mark.parametrize("way", WAYS)
def test_everything_in_one_program(way: dict[str, object]) -> None:
    completed = run_program(EVERYTHING, **way, timeout=120).expect(0)  # type: ignore[arg-type]
    assert completed.stdout.splitlines() == [f"ok {name}" for name in SECTIONS]
    assert completed.stderr == ""


PRINTING = """
import sys
import mpi_runtime as ray

ray.init(num_cpus=2)


@ray.remote
def speak(n):
    print(f"first of {n}")
    print("no end of line", end="")
    print(f" until here {n}")
    print(f"an error of {n}", file=sys.stderr)


@ray.remote
class Speaker:
    def __init__(self):
        print("made")

    def speak(self):
        print("ü speaks")


@ray.remote
def flood():
    for n in range(20_000):
        print(f"line {n} of the flood")


@ray.remote(max_retries=0)
def last_words():
    print("these are my last words", flush=True)
    import os
    os._exit(1)


ray.get(speak.remote(1))
speaker = Speaker.remote()
ray.get(speaker.speak.remote())
ray.get(flood.remote())
ray.wait([last_words.remote()])
print("the driver speaks\\n", end="")  # one write, also if PYTHONUNBUFFERED is set: lines of tasks may come between two
"""


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]])
def test_what_tasks_print_comes_line_by_line_with_its_origin(way: dict[str, object]) -> None:
    completed = run_program(PRINTING, **way).expect(0)  # type: ignore[arg-type]
    host = re.escape(socket.gethostname())
    rank = rf", rank [123], {host}" if way else ""
    lines = completed.stdout.splitlines()
    origin = rf"\((?P<name>\w+) pid=\d+{rank}\) "

    def said(name: str) -> list[str]:
        found = [re.fullmatch(origin + "(?P<text>.*)", line) for line in lines]
        return [one["text"] for one in found if one is not None and one["name"] == name]

    assert said("speak") == ["first of 1", "no end of line until here 1"]
    assert said("Speaker") == ["made", "ü speaks"]
    flood = [f"line {n} of the flood" for n in range(20_000)]
    assert sorted(set(flood) ^ set(said("flood"))) == []  # says what differs: the whole list is too long to read
    assert said("flood") == flood
    assert said("last_words") == ["these are my last words"]
    assert "the driver speaks" in lines
    assert re.search(rf"\(speak pid=\d+{rank}\) an error of 1$", completed.stderr, re.MULTILINE), completed.stderr
    assert "an error of" not in completed.stdout


def test_output_can_be_left_out() -> None:
    program = PRINTING.replace("ray.init(num_cpus=2)", "ray.init(num_cpus=2, log_to_driver=False)")
    ignoring = {"MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS": "1"}  # of the call that speaks last, and dies
    completed = run_program(program, env=ignoring).expect(0)
    assert completed.stdout == "the driver speaks\n"
    assert completed.stderr == ""


def test_functions_of_the_main_module_and_of_others(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "helping.py").write_text(
        textwrap.dedent(
            """
            import mpi_runtime

            class HelpError(Exception):
                pass

            class Thing:
                def __init__(self, value):
                    self.value = value

            @mpi_runtime.remote
            def make(value):
                return Thing(value)

            @mpi_runtime.remote
            def fail():
                raise HelpError("of a module")
            """
        )
    )
    (folder / "app.py").write_text(
        textwrap.dedent(
            """
            import mpi_runtime
            from helping import HelpError, Thing, fail, make

            class Own(Thing):
                pass

            @mpi_runtime.remote
            def grow(thing):
                return Own(thing.value + 1)

            if __name__ == "__main__":
                mpi_runtime.init(num_cpus=2)
                found = mpi_runtime.get(grow.remote(make.remote(1)))
                assert type(found) is Own and found.value == 2
                try:
                    mpi_runtime.get(fail.remote())
                except HelpError as error:
                    print("caught", error.args)
            """
        )
    )
    assert run_program(folder / "app.py").expect(0).stdout == "caught ('of a module',)\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_was_not_forked_has_a_job_with_functions_of_the_program(method: str) -> None:
    """There the program is the module `__mp_main__`, which executors cannot import."""
    program = """
import multiprocessing, sys
import mpi_runtime

class Thing:
    def __init__(self, value): self.value = value

@mpi_runtime.remote
class Actor:
    def grow(self, thing): return Thing(square(thing.value))

def square(x): return x * x

def child():
    mpi_runtime.init(num_cpus=1, log_to_driver=False)
    found = mpi_runtime.get(Actor.remote().grow.remote(Thing(3)))
    assert type(found) is Thing
    print(found.value, mpi_runtime.get(mpi_runtime.remote(square).remote(4)))

if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=child)
    process.start()
    process.join()
"""
    assert run_program(program, method).expect(0).stdout == "9 16\n"


@pytest.mark.parametrize("ranks", [None, pytest.param(2, marks=pytest.mark.mpi)])
def test_a_signal_handler_that_waits_takes_no_value_from_the_wait_that_it_interrupts(ranks: int | None) -> None:
    """The value arrives while the handler reads. In an executor nothing else would ever arrive."""
    program = """
import signal, time
import mpi_runtime as ray

@ray.remote(num_cpus=0)
def sleep(seconds):
    time.sleep(seconds)
    return seconds

def probe():
    ray.get([sleep.remote(0) for _ in range(3)])
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(ray.get(sleep.remote(1.2))))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    begin = time.monotonic()
    value = ray.get(sleep.remote(0.8))
    return value, seen, time.monotonic() - begin < 20

ray.init(num_cpus=2)
print(probe(), ray.get(ray.remote(probe).remote(), timeout=30))
"""
    assert run_program(program, ranks=ranks).expect(0).stdout == "(0.8, [1.2], True) (0.8, [1.2], True)\n"


def test_a_forked_child_does_not_keep_the_job_alive() -> None:
    program = """
        import os, time
        import mpi_runtime as ray
        ray.init(num_cpus=1)

        @ray.remote
        def pid():
            return os.getpid(), os.getppid()

        pids = ray.get(pid.remote())
        child = os.fork()
        if not child:
            time.sleep(100)
        print("child", child, *pids, flush=True)
        time.sleep(100)
    """
    with start_program(textwrap.dedent(program)) as started:
        words = started.wait_for_line("child").split()
        child, others = int(words[1]), [int(word) for word in words[2:]]
        started.signal(signal.SIGKILL)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in others), what="the end of the job")
        assert os.path.exists(f"/proc/{child}")
        os.kill(child, signal.SIGKILL)


INTERRUPTED = """
import os, random, signal, threading, time
import mpi_runtime as ray

ray.init(num_cpus=2)


@ray.remote
def same(value):
    return value


def ignore(*_):
    pass


def interrupt():
    for _ in range(10):
        time.sleep(random.random() * 0.02)
        os.kill(os.getpid(), signal.SIGINT)


def raise_once(*arguments):
    "Never where nothing catches it: what catches it says so before."
    global is_caught, interrupts
    if is_caught:
        is_caught = False
        interrupts += 1
        signal.default_int_handler(*arguments)


interrupts = 0
is_caught = False
for round in range(15):
    refs = []
    thread = threading.Thread(target=interrupt)
    signal.signal(signal.SIGINT, raise_once)
    thread.start()
    while thread.is_alive():
        try:
            is_caught = True
            while len(refs) < 2000:
                refs.append(same.remote(len(refs)))
            ray.get(refs, timeout=20)
            time.sleep(0.001)
            is_caught = False
        except KeyboardInterrupt:
            pass
    signal.signal(signal.SIGINT, ignore)
    found = ray.get(refs, timeout=20)
    assert found == sorted(found) and len(found) == len(refs)
    assert ray.get(same.remote("on"), timeout=20) == "on"
assert interrupts > 50, interrupts
print("went on")
"""


def test_a_program_goes_on_after_ctrl_c() -> None:
    assert run_program(INTERRUPTED).expect(0).stdout == "went on\n"
