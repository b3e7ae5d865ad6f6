"""What has run, as events: complete, in time, on the tracks of the processes in which it ran."""

from pathlib import Path

import pytest

from tests.helpers import run_program

PROGRAM = """
import json, os, time
import mpi_runtime as ray

began = time.time() * 1e6
ray.init(num_cpus=2)
assert ray.timeline() == []

@ray.remote
def work(seconds):
    time.sleep(seconds)
    return os.getpid()

@ray.remote(max_retries=0)
def fail(how):
    raise ValueError("on purpose") if how == "raise" else SystemExit(os.kill(os.getpid(), 9))

@ray.remote
def outer():
    return ray.get(work.remote(0.01))

@ray.remote(max_concurrency=3)
class Actor:
    def __repr__(self):
        return "Actor(of three)"

    def work(self):
        time.sleep(0.3)

refs = [work.remote(0.002) for _ in range(200)]
pids = ray.get(refs)
for how in ("raise", "die"):
    try:
        ray.get(fail.remote(how))
    except (ValueError, ray.errors.WorkerCrashedError):
        pass
nested = outer.remote()
ray.get(nested)
actor = Actor.remote()
ray.get([actor.work.remote() for _ in range(3)])
ended = time.time() * 1e6
assert ray.timeline("timeline.json") is None
with open("timeline.json") as file:
    events = json.load(file)
assert events == ray.timeline()

submissions = [event for event in events if event.get("cat") == "submission" and event["ph"] == "X"]
assert sum(event["args"]["calls"] for event in submissions) == len(refs) + 7, submissions
spans = [event for event in events if event.get("cat", "").startswith("task::")]
names = {(event["name"], event["pid"], event["tid"]): event["args"]["name"] for event in events if event["ph"] == "M"}
assert [event["ts"] for event in spans] == sorted(event["ts"] for event in spans)
by_id = {event["args"]["task_id"]: event for event in spans}
assert [by_id[ref.hex()]["args"]["worker_pid"] for ref in refs] == pids
assert all(by_id[ref.hex()]["dur"] >= 2000 for ref in refs)
assert [event["name"] for event in spans].count("work") == 201
for event in spans:
    args = event["args"]
    assert began <= args["submitted"] <= ended and event["cat"] == "task::" + event["name"], event
    assert args["submitted"] <= event["ts"] + 100_000 and event["ts"] + event["dur"] <= ended, event
    assert names["process_name", event["pid"], 0] == "Node " + os.uname().nodename
    assert str(args["worker_pid"]) in names["thread_name", event["pid"], event["tid"]]
tracks = {}
for event in spans:  # on one track nothing overlaps
    assert event["ts"] >= tracks.get((event["pid"], event["tid"]), 0), event
    tracks[event["pid"], event["tid"]] = event["ts"] + event["dur"]
failed = [event["args"] for event in spans if event["name"] == "fail"]
assert [(one["state"], one["error"]) for one in failed] == [("FAILED", "raised"), ("FAILED", "its process died")]
assert all(event["args"]["state"] == "FINISHED" for event in spans if event["name"] != "fail")

parent = by_id[nested.hex()]  # a call that waits is around the call that it waits for
(child,) = [event for event in spans if event["name"] == "work" and event["args"]["submitted"] > parent["ts"]]
assert child["tid"] != parent["tid"] and child["ts"] + child["dur"] <= parent["ts"] + parent["dur"] + 1
beside = [event for event in spans if event["name"] == "Actor.work"]
assert len({event["tid"] for event in beside}) == 3 and len({event["args"]["worker_pid"] for event in beside}) == 1
assert {event["args"]["type"] for event in beside} == {"ACTOR_TASK"}
assert names["thread_name", beside[0]["pid"], beside[0]["tid"]].startswith("Actor(of three) pid=")

@ray.remote
def ask():
    return len(ray.timeline())
assert ray.get(ask.remote()) == len(events)
print("good")
"""


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_a_timeline(ranks: int | None) -> None:
    assert run_program(PROGRAM, ranks=ranks).expect().stdout == "good\n"


def test_spills_and_the_level_of_the_store(tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
import mpi_runtime as ray

MIB = 1 << 20
ray.init(num_cpus=1, object_store_memory=32 * MIB, object_spilling_directory=sys.argv[1])
refs = [ray.put(np.full(4 * MIB, number, np.uint8)) for number in range(24)]
assert [int(ray.get(ref)[0]) for ref in refs] == list(range(24))
events = ray.timeline()
spills = [event for event in events if event["name"] == "spill"]
assert len(spills) >= 16 and all(event["args"]["bytes"] > 4 * MIB and event["dur"] > 0 for event in spills)
reads = [event for event in events if event["name"] == "read"]
assert {event["args"]["object_id"] for event in reads} <= {event["args"]["object_id"] for event in spills}
levels = [event["args"]["bytes"] for event in events if event["name"] == "object store"]
assert 24 * MIB < max(levels) <= 32 * MIB
names = [event["args"]["name"] for event in events if event["ph"] == "M"]
assert "Spills to disk" in names and "Node " + __import__("os").uname().nodename in names
print(len(reads))
"""
    assert int(run_program(program, str(tmp_path)).expect().stdout) > 0


def test_a_number_is_no_file() -> None:
    """It would be a descriptor: perhaps the one with which the program speaks to the head."""
    program = """
import numpy as np
import mpi_runtime as ray

ray.init(num_cpus=1)
for number in (1, np.int64(1), True):
    try:
        ray.timeline(number)
    except TypeError as error:
        print(error)
"""
    lines = run_program(program).expect().stdout.splitlines()
    assert len(lines) == 3
    assert all("it must be the name of a file, or None" in line for line in lines)
