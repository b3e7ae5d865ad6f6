"""A journal: whatever ends a job, the next run of the program has the right answer and makes no recorded call again."""

import contextlib
import os
import pickle
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.files import segments
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import Record
from mpi_runtime.scheduler.recording import Recording, replay
from tests.helpers import Completed, Program, run_program, start_program, wait_until

WAYS: Any = [
    pytest.param({}, id="plain"),
    pytest.param({"ranks": 3, "mpi": "openmpi"}, marks=pytest.mark.mpi, id="openmpi"),
    pytest.param({"ranks": 3, "mpi": "mpich"}, marks=pytest.mark.mpi, id="mpich"),
]
START = """
import os, sys, time
import mpi_runtime as ray

ray.init(num_cpus=4, journal=sys.argv[1], journal_sync_s=0)


def ran(name):
    with open(os.path.join(sys.argv[2], str(name)), "a") as file:
        file.write("x")

"""


def run(source: str, folder: Path, **how: Any) -> tuple[str, dict[str, int], Completed]:
    """Run a program with a journal: what it printed, how often it ran what, and all else."""
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    for mark in marks.iterdir():
        mark.unlink()
    env = {"MPI_RUNTIME_QUIET": None, **how.pop("env", {})}
    done = run_program(START + source, str(folder / "journal"), str(marks), env=env, **how)
    return done.stdout, {mark.name: mark.stat().st_size for mark in sorted(marks.iterdir())}, done


Earlier = Callable[[str, Path], str]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """Give a directory the journal of a first run of a program, and return what that printed: it runs once for all."""
    runs: dict[str, tuple[Path, str]] = {}

    def copied(source: str, folder: Path) -> str:
        if source not in runs:
            place = tmp_path_factory.mktemp("earlier")
            runs[source] = place / "journal", run(source, place)[0]
        journal, printed = runs[source]
        shutil.copytree(journal, folder / "journal")
        return printed

    return copied


def taken(done: Completed) -> int:
    """How many calls a run has taken from the journal, by its last line."""
    return int(re.findall(r"journal: (\d+) calls taken", done.stderr)[-1])


def records(folder: Path) -> list[Record]:
    """What is in a journal."""
    found = []
    for path in segments.paths(folder):
        with path.open("rb") as file:
            found += [body for _, body in segments.read(file, segments.Damage()) if isinstance(body, Record)]
    return found


OF_MAIN = """
import enum
from dataclasses import dataclass, field

class Status(enum.Enum):
    OK = 1

@dataclass
class Config:
    size: int
    names: list = field(default_factory=list)

DEFAULT = Config(7)

@ray.remote
def make(config):
    ran("make")
    return Config(config.size + DEFAULT.size), Status.OK

@ray.remote
def check(found, where):
    ran("check")
    return found == (Config(9), Status.OK), found[1] is Status.OK

shared = ray.put([Config(2)])
found = make.remote(Config(2))
print(ray.get(found) == (Config(9), Status.OK), ray.get(found)[1] is Status.OK)
print(ray.get(check.remote(found, Config(1))), ray.get(check.remote(ray.get(found), shared)))
"""


def test_instances_of_classes_of_the_program(tmp_path: Path) -> None:
    """They are equal to those of the run before, and calls with them are found."""
    right = "True True\n(True, True) (True, True)\n"
    assert run(OF_MAIN, tmp_path)[:2] == (right, {"check": 2, "make": 1})
    assert run(OF_MAIN, tmp_path)[:2] == (right, {})


EVERYTHING = """
import numpy as np

@ray.remote
def small(x):
    ran(f"small{x}")
    return x * x

@ray.remote
def large(x):
    ran(f"large{x}")
    return np.full(20_000, x)

@ray.remote
def mean(array, x):
    ran(f"mean{x}")
    return float(array.mean()) + x

@ray.remote(num_returns=3)
def several(x):
    ran("several")
    return x, np.full(20_000, x), None

@ray.remote(num_returns=0)
def nothing():
    ran("nothing")

@ray.remote
def outer(x):
    ran("outer")
    return sum(ray.get([small.remote(x + index) for index in (100, 200)]))

@ray.remote
def total(values):
    ran("total")
    return sum(ray.get(values))

smalls = [small.remote(x) for x in range(3)]
means = [mean.remote(large.remote(x), ref) for x, ref in enumerate(smalls)]
one, two, three = several.remote(7)
nothing.remote()
print(ray.get(smalls), ray.get(means), ray.get(one), ray.get(two).sum(), ray.get(three), ray.get(outer.remote(1)))
data = ray.put(np.arange(20_000))
print(ray.get(mean.remote(data, 5)), ray.get(mean.remote(np.arange(30_000), x=6)), ray.get(total.remote(smalls)))
time.sleep(0.2)
"""


@pytest.mark.parametrize("how", WAYS[:2])
def test_a_second_run_has_the_same_values_and_runs_nothing(how: Any, tmp_path: Path) -> None:
    first, ran, _ = run(EVERYTHING, tmp_path, **how)
    assert first == "[0, 1, 4] [0.0, 2.0, 6.0] 7 140000 None 50602\n10004.5 15005.5 5\n"
    assert len(ran) == 17
    assert set(ran.values()) == {1}
    second, again, done = run(EVERYTHING, tmp_path, **how)
    assert (second, again) == (first, {})
    assert re.search(r"journal .*: \d+ finished calls of earlier runs", done.stderr)
    assert "0 recorded" in done.stderr


def test_lines_move_and_comments_change_nothing(tmp_path: Path) -> None:
    source = "@ray.remote\ndef f(x):\n    ran('f')\n    return x\n\nprint(ray.get(f.remote(1)))\n"
    run(source, tmp_path)
    assert run("# a line more\n\n" + source.replace("    return", "    # a comment\n    return"), tmp_path)[1] == {}


SETS = """
import dataclasses

TEXTS = {"north", "south", "east", "west", "up", "down"}

@dataclasses.dataclass
class Directions:
    names: set
    of: frozenset

    def __hash__(self):
        return hash(frozenset(self.names))

ALL = Directions(TEXTS, frozenset((name, 1) for name in TEXTS))

@ray.remote
def count(x):
    ran("count")
    return len(ALL.names | ALL.of) + x

@ray.remote
def length(named, *others):
    ran("length")
    return len(named)

@ray.remote
def is_one(function, x):
    ran("is_one")
    return function(x)

print(
    ray.get(count.remote(1)),
    ray.get(length.remote({"a": TEXTS, "b": frozenset(TEXTS), "c": {1, "one", None}}, {b"x", b"y", b"zz"}, {3, 8, 1})),
    ray.get(length.remote(Directions(TEXTS, frozenset({ALL})).names)),
    ray.get(length.remote(ray.put([TEXTS, ALL]))),
    ray.get(is_one.remote(lambda x: x in {"north", "south", "east", "west", "up", "down"}, "up")),
)
time.sleep(0.2)
"""


def test_sets_are_the_same_in_each_run(tmp_path: Path) -> None:
    """Though texts have another hash in each, and so another order."""
    first, ran, _ = run(SETS, tmp_path)
    assert first == "13 3 6 2 True\n"
    assert ran == {"count": 1, "length": 3, "is_one": 1}
    for _ in range(2):
        assert run(SETS, tmp_path)[:2] == (first, {})


CHANGING = """
LIMIT = 10

def helper(x):
    return x + 1

@ray.remote
def first(x):
    ran(f"first{x}")
    return helper(x) % LIMIT

@ray.remote
def second(x):
    ran(f"second{x}")
    return x * 2

print(ray.get([second.remote(first.remote(x)) for x in range(3)]))
"""


@pytest.mark.parametrize(
    ("old", "new", "printed", "ran"),
    [
        ("x * 2", "x * 3", "[3, 6, 9]", {"second1", "second2", "second3"}),
        ("x + 1", "x + 2", "[4, 6, 8]", {"first0", "first1", "first2", "second4"}),
        ("x + 1", "1 + x", "[2, 4, 6]", {"first0", "first1", "first2"}),
        ("LIMIT = 10", "LIMIT = 100", "[2, 4, 6]", {"first0", "first1", "first2"}),
        ("range(3)", "range(4)", "[2, 4, 6, 8]", {"first3", "second4"}),
        ("range(3)", "(2, 0)", "[6, 2]", set()),
        ("print(", "ray.put(1); first.remote(1); print(", "[2, 4, 6]", {"first1"}),
    ],
)
def test_what_has_changed_runs_again(
    old: str, new: str, printed: str, ran: set[str], tmp_path: Path, earlier: Earlier
) -> None:
    assert earlier(CHANGING, tmp_path) == "[2, 4, 6]\n"
    assert old in CHANGING
    stdout, again, done = run(CHANGING.replace(old, new), tmp_path)
    assert (stdout, set(again)) == (printed + "\n", ran)
    is_code = "range" not in old and "print" not in old
    assert ("runs again although it is in the journal: its code, or what that refers to, is" in done.stderr) is is_code


def test_equal_calls_have_a_value_each(tmp_path: Path) -> None:
    source = """
import random

@ray.remote
def draw():
    ran("draw")
    return random.SystemRandom().random()

found = ray.get([draw.remote() for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 3)])
assert len(set(found)) == len(found)
print(sorted(found))
"""
    first = run(source, tmp_path)
    assert first[1] == {"draw": 3}
    assert run(source, tmp_path)[:2] == (first[0], {})


REFUSED = """
class Counter:
    def __init__(self):
        self.value = 0
    def add(self, x):
        self.value += x
        return self.value

counter = ray.remote(Counter).remote()

@ray.remote
def adds(handle, x):
    ran("adds")
    return ray.get(handle.add.remote(x))

@ray.remote
def adds_inside(handles, x):
    ran("adds_inside")
    return ray.get(adds.remote(handles[0], x))

@ray.remote
def by_name():
    ran("by_name")
    return ray.get(ray.get_actor("named").add.remote(1))

@ray.remote
def child():
    time.sleep(0.3)
    ran("child")

@ray.remote
def leaves():
    ran("leaves")
    child.remote()

@ray.remote
def gives_refs():
    ran("gives_refs")
    return [ray.put(1)]

@ray.remote
def takes_refs(refs):
    ran("takes_refs")
    return ray.get(refs[0])

@ray.remote(journal=False)
def excluded():
    ran("excluded")
    return time.time()

@ray.remote
def after(x):
    ran("after")
    return type(x).__name__

@ray.remote
def fails():
    ran("fails")
    raise ValueError("no")

@ray.remote
def yields():
    ran("yields")
    yield 1

named = ray.remote(Counter).options(name="named").remote()
print(ray.get(adds.remote(counter, 1)), ray.get(adds_inside.remote([counter], 2)), ray.get(counter.add.remote(0)))
print(ray.get(by_name.remote()), ray.get(leaves.remote()), ray.get(takes_refs.remote(gives_refs.remote())))
print(ray.get(after.remote(excluded.remote())), [ray.get(item) for item in yields.remote()])
try:
    ray.get(fails.remote())
except ValueError as error:
    print("failed")
time.sleep(0.5)
"""


def test_what_does_not_stand_for_all_it_did_runs_again(tmp_path: Path) -> None:
    expected = "1 3 3\n1 None 1\nfloat [1]\nfailed\n"
    stdout, ran, _ = run(REFUSED, tmp_path)
    assert (stdout, set(ran.values())) == (expected, {1} if "adds" not in ran else {1, 2})
    stdout, again, _ = run(REFUSED, tmp_path)
    assert stdout == expected
    assert set(again) == set(ran) - {"child"}, "what a call has left behind is found"


@pytest.mark.parametrize("what", ["cut", "flipped", "gone"])
def test_a_damaged_value_runs_again(what: str, tmp_path: Path, earlier: Earlier) -> None:
    first = earlier(EVERYTHING, tmp_path)
    for path in sorted((tmp_path / "journal" / "values").rglob("*-*")):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.unlink()
        if what != "gone":
            path.write_bytes(data if what == "flipped" else data[:-1])
    second, again, done = run(EVERYTHING, tmp_path)
    assert second == first
    assert set(again) == {"large0", "large1", "large2", "several"}
    assert done.stderr.count("a value in the journal cannot be read") == len(again)
    third, none, whole = run(EVERYTHING, tmp_path)
    assert (third, none) == (first, {}), "the new ones are found"
    assert taken(whole) == taken(done) + len(again)
    assert "cannot be read" not in whole.stderr


SLOW = """
@ray.remote
def slow(x):
    ran(f"slow{x}")
    time.sleep(0.02)
    return x

@ray.remote
def pair(a, b):
    ran(f"pair{a}")
    time.sleep(0.01)
    return a + b

print("up", flush=True)
level = [slow.remote(x) for x in range(64)]
while len(level) > 1:
    level = [pair.remote(a, b) for a, b in zip(level[::2], level[1::2])]
print("the answer is", ray.get(level[0]), flush=True)
"""


def names(found: list[Record]) -> set[str]:
    """The marks of recorded calls of SLOW that cannot be confused with others."""
    values = [(one.name, pickle.loads(one.values[0].data)) for one in found]
    return {f"{name}{value}" for name, value in values if name == "slow"}


@pytest.mark.dies("journal")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [WAYS[0], WAYS[2]])
def test_killed_again_and_again_the_answer_is_right(how: dict[str, Any], tmp_path: Path) -> None:
    rng = random.Random(str(how))
    marks, folder = tmp_path / "marks", tmp_path / "journal"
    marks.mkdir()
    kills = 0
    for _ in range(40):
        known = names(records(folder)) if folder.exists() else set()
        for mark in marks.iterdir():
            mark.unlink()
        program = start_program(START + SLOW, str(folder), str(marks), **how)
        with program:
            program.wait_for_line("up")
            time.sleep(rng.uniform(0.05, 0.4))
            pids = program.processes()
            if kills < 5 and pids:
                kills += 1
                victim = rng.choice(["launcher", "head", "any"])
                heads = [pid for pid in pids if _name(pid) == "mpi-rt-head"]
                pid = program.pid if victim == "launcher" else rng.choice(heads or pids if victim == "head" else pids)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                if victim == "launcher":  # the driver has 5 s then to save what it has
                    wait_until_gone(program)
            done = program.finish(60)
        again = {mark.name for mark in marks.iterdir()}
        assert not known & again, "these were recorded"
        if "the answer is" in done.stdout:
            assert f"the answer is {sum(range(64))}\n" in done.stdout
            if done.returncode == 0:
                break
    else:
        pytest.fail("it never came to its end")
    assert kills >= 1


def wait_until_gone(program: Program) -> None:
    wait_until(lambda: not program.processes(), 30)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_two_jobs_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    args = str(tmp_path / "journal"), str(tmp_path / "marks")
    with start_program(START + "print('up', flush=True); sys.stdin.read()", *args) as first:
        first.wait_for_line("up")
        second = run_program(START, *args)
        assert second.returncode == 1
        assert re.search(
            r"JournalError: the journal \S+ is in use by \S+app\.py \(pid \d+ on \S+\)\. Two jobs", second.stderr
        )
        assert f"(pid {first.pid} on" in second.stderr
        first.finish()
    run_program(START, *args).expect(0)


@pytest.mark.parametrize("how", WAYS[:2])
def test_a_directory_that_cannot_be_used(how: Any, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    _, _, done = run("", tmp_path, **how)
    assert done.returncode != 0
    assert re.search(r"JournalError: the journal \S+ cannot be used: Not a directory", done.stderr)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    run("", tmp_path)
    path = tmp_path / "journal" / "000001.journal"
    start = segments.MAGIC + (segments.FORMAT + 1).to_bytes(4, "little")
    path.write_bytes(start + segments.digest(start, 8))
    _, _, done = run("", tmp_path)
    assert done.returncode == 1
    assert "JournalError: the journal " in done.stderr
    assert "was written by a newer mpi_runtime: its format is 2" in done.stderr


FULL = """
import resource

@ray.remote
def f(x):
    return bytes([x]) * 1000

print(ray.get(f.remote(1))[0])
[head] = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_head(pid)]
resource.prlimit(int(head), resource.RLIMIT_FSIZE, (3000, 3000))
print([ray.get(f.remote(x))[0] for x in range(20)])
time.sleep(1)
print(ray.get(f.remote(30))[0])
"""
IS_HEAD = """
def is_head(pid):
    try:
        fields = open(f"/proc/{pid}/stat").read()
    except OSError:
        return False
    return "(mpi-rt-head)" in fields and int(fields.rpartition(")")[2].split()[1]) == os.getpid()

"""


@pytest.mark.dies("disk")
def test_a_full_disk_ends_the_journal_and_not_the_job(tmp_path: Path) -> None:
    stdout, _, done = run(IS_HEAD + FULL, tmp_path)
    assert done.returncode == 0, done.output()
    assert stdout == f"1\n{list(range(20))}\n30\n"
    assert done.stderr.count("The job continues without it") == 1
    assert "cannot be written any more: File too large" in done.stderr
    assert 1 <= len(records(tmp_path / "journal")) <= 3


@pytest.mark.dies("disk")
def test_a_full_disk_ends_the_job_if_the_journal_is_required(tmp_path: Path) -> None:
    source = (IS_HEAD + FULL).replace("\nprint([ray", "\nprint([ray")
    start = START.replace("journal_sync_s=0", "journal_required=True")
    (tmp_path / "marks").mkdir()
    done = run_program(start + source, str(tmp_path / "journal"), str(tmp_path / "marks"))
    assert done.returncode != 0
    assert "The job ends, since it was started with journal_required=True" in done.stderr


def test_a_value_that_cannot_be_written_ends_the_journal_and_not_the_job(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "values").write_text("")
    stdout, _, done = run("print(len(ray.get(ray.remote(lambda: bytes(100_000)).remote())))", tmp_path)
    assert (done.returncode, stdout) == (0, "100000\n")
    assert done.stderr.count("The job continues without it") == 1


def test_a_job_with_a_journal_can_be_recorded_and_replayed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _, _, done = run(EVERYTHING, tmp_path, env={"MPI_RUNTIME_RECORD": str(tmp_path / name)})
        done.expect(0)
        outcome = replay(Recording((tmp_path / name).read_bytes()), Scheduler())
        assert str(outcome).endswith("identical")


def test_a_program_may_have_several_jobs_with_a_journal(tmp_path: Path) -> None:
    source = """
ray.shutdown()
for _ in range(3):
    ray.init(num_cpus=2, journal=sys.argv[1])
    f = ray.remote(lambda x: ran(x) or x)
    print(ray.get([f.remote(x) for x in range(3)]))
    ray.shutdown()
"""
    stdout, ran, _ = run(source, tmp_path)
    assert stdout == "[0, 1, 2]\n" * 3
    assert ran == {"0": 1, "1": 1, "2": 1}


def test_calls_of_several_threads(tmp_path: Path) -> None:
    source = """
from concurrent.futures import ThreadPoolExecutor

@ray.remote
def f(x):
    ran(x)
    return x

with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda x: ray.get(f.remote(x)), range(100))))
"""
    assert threading.active_count() >= 1
    first, ran, _ = run(source, tmp_path)
    assert len(ran) == 100
    assert run(source, tmp_path)[:2] == (first, {}), "whatever order they come in"


MAPS = """
@ray.remote
def f(x):
    ran(f"f{x}")
    return x * x

@ray.remote
def g(x):
    ran(f"g{x}")
    if x == 50:
        raise ValueError("not this one")
    return str(x)

print(sum(f.map(range(1000))), sum(f.map(iter(range(2000, 2200)))))
print(sum(isinstance(one, ValueError) for one in g.map(range(100), chunk=10).get(return_exceptions=True)))
"""


def test_chunks_of_a_map_are_found_but_for_those_with_an_error(tmp_path: Path) -> None:
    first, ran, _ = run(MAPS, tmp_path)
    assert len(ran) == 1300
    second, again, _ = run(MAPS, tmp_path)
    assert second == first
    assert sorted(again) == [f"g{x}" for x in range(50, 60)]
