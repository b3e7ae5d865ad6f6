"""Actors that save their state in the journal come back with it, whatever ended the job, and each call counts once."""

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.core.journal import upkeep
from mpi_runtime.scheduler.protocol.effects import Checkpoint
from tests.e2e.api.test_journal import WAYS, run

ADDER = """
import numpy as np

@ray.remote(**eval(os.environ.get("OPTIONS", "{}")))
class Adder:
    def __init__(self, start):
        ran("made")
        self.total, self.large = start, np.zeros(20_000)

    def add(self, x):
        ran(f"add{x}")
        self.total += x
        self.large += x
        return self.total

    def all(self):
        ran("all")
        return self.large

    def fail(self):
        ran("fail")
        self.total += 1000
        raise ValueError("no")

    @ray.method(journal=False)
    def look(self):
        ran("look")
        return self.total

    def save_state(self):
        ran("save")
        at_moment()
        return self.total, self.large

    def load_state(self, state):
        ran("load")
        self.total, self.large = state

def at_moment():
    "End the job before the state is written, in the middle, or after."
    moment = os.environ.get("MOMENT")
    if not moment or not os.path.exists(os.path.join(sys.argv[2], "add4")):
        return
    replace = os.replace

    def end(*names):
        if moment == "after":
            replace(*names)
        with open(os.path.join(sys.argv[1], "driver")) as file:
            os.kill(int(file.read()), 9)
        os.kill(os.getpid(), 9)

    if moment == "before":
        end()
    os.replace = end

def here(moment):
    if os.environ.get("END") == moment:
        os.kill(os.getpid(), 9)

"""
STORY = """
with open(os.path.join(sys.argv[1], "driver"), "w") as file:
    file.write(str(os.getpid()))
adder = Adder.remote(100)
out = []
for x in range(10):
    out.append(ray.get(adder.add.remote(x)))
    if x == 4:
        out.append(float(ray.get(adder.all.remote()).sum()))
        try:
            ray.get(adder.fail.remote())
        except ValueError as error:
            out.append(str(error.cause))
    here(f"call {x}")
print(*out, ray.get(adder.look.remote()))
"""
TOLD = "100 101 103 106 110 200000.0 no 1115 1121 1128 1136 1145 1145\n"


def again(source: str, folder: Path, options: str = "{'checkpoint_calls': 3}", **how: Any) -> Any:
    """Run a program whose actor is saved: as `run`."""
    env = {"OPTIONS": options, **how.pop("env", {})}
    return run(ADDER + source, folder, env=env, **how)


def wait_for_end(folder: Path) -> None:
    """A killed program's head ends by itself, and others may use the journal then."""
    time.sleep(0.2)
    assert folder.exists()


@pytest.mark.dies("journal")
@pytest.mark.parametrize("how", [WAYS[0], WAYS[2]])
def test_a_run_that_was_killed_goes_on_from_the_last_state(how: Any, tmp_path: Path) -> None:
    _, ran, first = again(STORY, tmp_path, env={"END": "call 6"}, **how)
    assert first.returncode != 0
    assert ran["made"] == 1
    assert "load" not in ran
    wait_for_end(tmp_path)
    second, ran, done = again(STORY, tmp_path, **how)
    assert second == TOLD
    # 9 calls were ended: 7 of `add`, `all`, `fail`, and saved was after every third.
    assert {name: ran[name] for name in ran if name not in ("save", "made", "load")} == {
        **dict.fromkeys(("add7", "add8", "add9"), 1),
        "look": 1,
    }
    assert (ran["made"], ran["load"]) == (1, 1)
    assert "states of actors" in done.stderr
    third, ran, _ = again(STORY, tmp_path, **how)
    assert third == TOLD
    assert set(ran) <= {"made", "load", "look", "add9", "add8"}


def test_without_states_the_calls_run_again_in_order(tmp_path: Path) -> None:
    again(STORY, tmp_path, "{'journal': False}", env={"END": "call 6"})
    wait_for_end(tmp_path)
    told, ran, _ = again(STORY, tmp_path, "{'journal': False}")
    assert told == TOLD
    assert "load" not in ran
    assert "save" not in ran
    assert ran["add0"] == 1


@pytest.mark.parametrize("moment", ["before", "in", "after"])
def test_killed_around_the_write_of_a_state(moment: str, tmp_path: Path) -> None:
    """The job ends before its second state is written, when the file is there under another name, or just after."""
    _, ran, first = again(STORY, tmp_path, env={"MOMENT": moment})
    assert first.returncode == -signal.SIGKILL
    assert ran["save"] == 2
    wait_for_end(tmp_path)
    told, ran, _ = again(STORY, tmp_path)
    assert told == TOLD
    assert ran["load"] == 1
    assert "add2" not in ran  # the first state has had it
    assert ran["add3"] == 1
    assert os.system(f"{sys.executable} -m mpi_runtime journal verify {tmp_path / 'journal'} >/dev/null") == 0


def test_the_same_run_goes_on_from_the_last_state_too(tmp_path: Path) -> None:
    """An actor whose process dies is created again with it. Calls that had ended after it are lost, as without."""
    source = """
adder = Adder.options(max_restarts=1, max_task_retries=1).remote(0)
print([ray.get(adder.add.remote(x)) for x in (1, 2, 3, 4)])
ray.kill(adder, no_restart=False)
print(ray.get(adder.look.remote()), ray.get(adder.add.remote(10)))
"""
    told, ran, _ = again(source, tmp_path)
    assert told == "[1, 3, 6, 10]\n6 16\n"
    assert (ran["made"], ran["load"]) == (2, 1)


def test_the_next_run_counts_calls_of_all_lives_once(tmp_path: Path) -> None:
    source = """
adder = Adder.options(max_restarts=1, max_task_retries=1).remote(0)
print([ray.get(adder.add.remote(x)) for x in (1, 2, 3, 4)])
ray.kill(adder, no_restart=False)
print([ray.get(adder.add.remote(x)) for x in (10, 20, 30, 40)])
here("call 40")
print(ray.get(adder.look.remote()))
"""
    again(source, tmp_path, env={"END": "call 40"})
    wait_for_end(tmp_path)
    told, ran, _ = again(source.replace("ray.kill(adder, no_restart=False)", ""), tmp_path)
    assert told.splitlines()[-1] == "110"  # with the 4 that the first run had lost
    assert {name for name in ran if name.startswith("add")} == {"add4", "add40"}


@pytest.mark.dies("journal")
@pytest.mark.parametrize("how", [WAYS[0], WAYS[2]])
def test_equal_actors_keep_their_own_states(how: Any, tmp_path: Path) -> None:
    """The first of three was called last, and has no state when the job is killed."""
    source = """
with open(os.path.join(sys.argv[1], "driver"), "w") as file:
    file.write(str(os.getpid()))
adders = [Adder.remote(0) for _ in range(3)]
out = [ray.get(adders[2].add.remote(100)), ray.get(adders[1].add.remote(10))]
here("called")
print(out, [ray.get(adder.add.remote(1)) for adder in adders], [ray.get(adder.look.remote()) for adder in adders])
"""
    again(source, tmp_path, "{'checkpoint_calls': 1}", env={"END": "called"}, **how)
    wait_for_end(tmp_path)
    for _ in range(2):
        told, ran, _ = again(source, tmp_path, "{'checkpoint_calls': 1}", **how)
        assert told == "[100, 10] [1, 11, 101] [1, 11, 101]\n"
        assert not {"add10", "add100"} & ran.keys(), "those were known"


def test_concurrent_actors_are_saved_when_no_call_runs(tmp_path: Path) -> None:
    source = """
import asyncio

@ray.remote(checkpoint_calls=1)
class Sums:
    def __init__(self):
        self.total = self.under_way = 0
    async def add(self, x):
        ran(f"add{x}")
        self.under_way += 1
        await asyncio.sleep(0.01 * x)
        self.total += x
        self.under_way -= 1
        return x
    @ray.method(journal=False)
    async def look(self):
        return self.total
    def save_state(self):
        ran("save")
        assert not self.under_way
        return self.total
    def load_state(self, state):
        self.total = state

@ray.remote(checkpoint_calls=1, max_concurrency=4)
class Threads(Sums._class):
    def add(self, x):
        ran(f"threads{x}")
        time.sleep(0.01 * x)
        self.total += x
        return x
    def look(self):
        return self.total

actors = [Sums.remote(), Threads.remote()]
print([sum(ray.get([actor.add.remote(x) for x in range(8)])) for actor in actors])
time.sleep(0.5)  # the state of such an actor may come after the last result
here("call")
print([ray.get(actor.look.remote()) for actor in actors])
"""
    again(source, tmp_path, env={"END": "call"})
    wait_for_end(tmp_path)
    told, ran, _ = again(source, tmp_path)
    assert told == "[28, 28]\n[28, 28]\n"
    assert not [name for name in ran if name.startswith(("add", "threads"))]


def test_a_damaged_state_is_said_and_the_one_before_it_or_none_counts(tmp_path: Path) -> None:
    again(STORY, tmp_path, env={"END": "call 8"})
    wait_for_end(tmp_path)
    states = sorted((tmp_path / "journal" / "values").rglob("state-*"), key=lambda path: path.stat().st_mtime)
    assert len(states) == 2  # older ones are removed
    states[-1].unlink()
    told, ran, _ = again(STORY, tmp_path, env={"END": "call 6"})
    assert ran["load"] == 1
    wait_for_end(tmp_path)
    for path in (tmp_path / "journal" / "values").rglob("state-*"):
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
    told, ran, done = again(STORY, tmp_path)
    assert told == TOLD
    assert "load" not in ran
    assert ran["add0"] == 1
    assert re.search("the saved state of Adder cannot be read: the file .* is not there, or damaged", done.stderr)


def test_an_unreadable_result_of_a_method_fails_its_call_and_the_log_line_says_so(tmp_path: Path) -> None:
    again(STORY, tmp_path, env={"END": "call 8"})
    wait_for_end(tmp_path)
    (large,) = (path for path in (tmp_path / "journal" / "values").rglob("*-*") if not path.name.startswith("state-"))
    large.write_bytes(large.read_bytes()[:-1])
    _, ran, done = again(STORY, tmp_path)
    assert "all" not in ran
    assert "JournalError: the result of Adder.all in an earlier run cannot be read" in done.stderr
    assert re.search(
        "a value in the journal cannot be read: .*This call of Adder.all fails: a saved state", done.stderr
    )


def test_errors_of_save_state_and_load_state(tmp_path: Path) -> None:
    source = """
@ray.remote(checkpoint_calls=1)
class Wrong:
    def __init__(self):
        self.count = 0
    def call(self):
        self.count += 1
        return self.count
    def save_state(self):
        if self.count == 2:
            raise ValueError("not now")
        return self.count
    def load_state(self, state):
        raise KeyError("what is this")

actor = Wrong.remote()
try:
    print([ray.get(actor.call.remote()) for _ in range(3)])
except ray.errors.ActorDiedError as error:
    print("KeyError" in str(error), "use another journal" in str(error))
"""
    told, _, done = again(source, tmp_path)
    assert told == "[1, 2, 3]\n"
    assert "ValueError: not now" in done.stderr
    assert "The state of Wrong could not be saved" in done.stderr
    assert again(source, tmp_path)[0] == "True True\n"


def test_what_cannot_be_taken_up_is_not_saved_and_said(tmp_path: Path) -> None:
    source = """
other = Adder.options(checkpoint_calls=1).remote(0)

@ray.remote(checkpoint_calls=1)
class Calls:
    def call(self, which):
        ran(which)
        if which == "other":
            ray.get(OTHER[0].add.remote(1))
        return ray.put(1) if which == "reference" else which
    def take(self, other):
        OTHER.append(other)
    def save_state(self):
        return 0
    def load_state(self, state):
        ran("load calls")

OTHER = []
for which in sys.argv[3].split():
    actor = Calls.remote()
    ray.get(actor.call.remote("first"))
    if which == "handle":
        ray.get(actor.take.remote(other))
    else:
        ray.get(actor.call.remote(which))
    ray.get(actor.call.remote("last"))
    del actor
"""
    _, ran, done = again(source.replace("sys.argv[3]", repr("reference handle")), tmp_path)
    assert done.returncode == 0
    assert "Calls.call has returned references" in done.stderr
    assert "Calls.take was given references, or handles" in done.stderr
    _, ran, _ = again(source.replace("sys.argv[3]", repr("reference handle")), tmp_path)
    assert ran["last"] == 2
    assert "first" not in ran
    assert ran["load calls"] == 2


def test_checkpoint_saves_now(tmp_path: Path) -> None:
    source = """
adder = Adder.remote(0)
print(ray.get(adder.add.remote(5)), ray.get(ray.checkpoint(adder)))
here("call")
print(ray.get(adder.look.remote()))

@ray.remote
class Plain:
    pass

try:
    ray.get(ray.checkpoint(Plain.remote()))
except ray.errors.JournalError as error:
    print("the state of Plain is not saved: it needs" in str(error))
try:
    ray.checkpoint(5)
except ValueError as error:
    print("needs a handle" in str(error))
try:
    ray.remote(checkpoint_s=3)(Plain._class).remote()
except ValueError as error:
    print("may be a coroutine" in str(error))
"""
    again(source, tmp_path, "{'checkpoint_s': 1000}", env={"END": "call"})
    wait_for_end(tmp_path)
    told, ran, _ = again(source, tmp_path, "{'checkpoint_s': 1000}")
    assert told == "5 True\n5\nTrue\nTrue\nTrue\n"
    assert "add5" not in ran


def test_states_are_in_what_the_verbs_say_and_compact_keeps_them(tmp_path: Path) -> None:
    again(STORY, tmp_path, env={"END": "call 6"})
    wait_for_end(tmp_path)
    again(STORY, tmp_path, env={"END": "call 8"})
    wait_for_end(tmp_path)
    journal = tmp_path / "journal"
    (journal / "driver").unlink()
    before = [len(segment.of(Checkpoint)) for segment in upkeep.read(journal)]
    upkeep.compact(journal)
    assert [len(segment.of(Checkpoint)) for segment in upkeep.read(journal)] == [sum(before)]
    assert upkeep.verify(journal).damaged_values == []
    told, ran, _ = again(STORY, tmp_path)
    assert told == TOLD
    assert ran["load"] == 1
    assert "add5" not in ran
