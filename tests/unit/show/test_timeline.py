"""The events of a timeline, from what the scheduler remembers."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from mpi_runtime.core.api.timeline import events as events_of
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.protocol.past import MoveTimes, Past, PastMove, PastRun, RunNode, RunProcess, RunTimes


def run(number: int, start_us: int, duration_us: int, executor: int = 1, error: str = "", name: str = "") -> PastRun:
    process, node = RunProcess(executor, 400 + executor, name, 0), RunNode(executor % 2, "host")
    times = RunTimes(0, start_us, duration_us)
    return PastRun(f"{number:032x}", "f", "NORMAL_TASK", 0, None, process, node, times, error)


def found(*runs: PastRun, dropped: int = 0, moves: Sequence[PastMove] = ()) -> Past:
    return Past(1_000_000, dropped, list(runs), 0, list(moves))


def shown(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (one["args"]["task_id"].lstrip("0"), one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"
    ]


def test_nothing_has_run() -> None:
    assert events_of(found()) == []


def test_events_are_in_order_and_their_processes_have_names() -> None:
    events = events_of(found(run(2, 30, 5, executor=2, name="Actor(1)"), run(1, 10, 10)))
    assert [(one["name"], one["pid"], one["tid"], one["args"]["name"]) for one in events if one["ph"] == "M"] == [
        ("process_name", 1, 0, "Node host"),
        ("thread_name", 1, 1, "Worker pid=401"),
        ("process_name", 0, 0, "Node host"),
        ("thread_name", 0, 2, "Actor(1) pid=402"),
    ]
    assert shown(events) == [("1", 1, 1_000_010, 10), ("2", 2, 1_000_030, 5)]
    assert json.loads(json.dumps(events)) == events


def test_calls_that_overlap_are_on_tracks_of_their_own() -> None:
    events = events_of(found(run(1, 0, 10), run(2, 5, 10), run(3, 7, 2), run(4, 10, 5), run(5, 10, 1, executor=2)))
    tracks = {id: tid for id, tid, _, _ in shown(events)}
    assert tracks == {"1": 1, "2": 1_000_001, "3": 2_000_001, "4": 1, "5": 2}
    assert sum(one["name"] == "thread_name" for one in events) == 4


def test_errors_are_seen_and_what_is_left_out_is_said() -> None:
    events = events_of(found(run(1, 0, 1, error="raised"), run(2, 1, 1), dropped=7))
    failed, fine = (one for one in events if one["ph"] == "X")
    assert (failed["args"]["state"], failed["args"]["error"], failed["cname"]) == ("FAILED", "raised", "terrible")
    assert (fine["args"]["state"], fine["args"]["error"], "cname" in fine) == ("FINISHED", "", False)
    (label,) = (one for one in events if one["name"] == "process_labels")
    assert label["args"]["labels"] == "the first 7 calls are left out: only 2 are kept"


def nested(parent: int, attempt: int, child: int, submitted_us: int, start_us: int) -> PastRun:
    id = (prefix_of(parent.to_bytes(16, "big"), attempt) + child.to_bytes(6, "big")).hex()
    times = RunTimes(submitted_us, start_us, 10)
    return PastRun(id, "g", "NORMAL_TASK", 0, None, RunProcess(2, 402, "", 0), RunNode(0, "host"), times, "")


def check_as_perfetto(events: list[dict[str, Any]]) -> None:
    """Rules of the trace format: slices of a track nest, arrows begin and end in slices, counters have numbers."""
    slices = [one for one in events if one["ph"] == "X"]
    assert all(one["dur"] >= 0 and one["ts"] >= 0 for one in slices)
    for one in slices:
        track = [
            other for other in slices if other is not one and (other["pid"], other["tid"]) == (one["pid"], one["tid"])
        ]
        assert 0 <= one["tid"] < 1 << 32
        assert all(other["ts"] + other["dur"] <= one["ts"] or other["ts"] >= one["ts"] + one["dur"] for other in track)
    begins = {one["id"]: one for one in events if one["ph"] == "s"}
    ends = {one["id"]: one for one in events if one["ph"] == "f"}
    assert begins.keys() == ends.keys()
    for number, begin in begins.items():
        end = ends[number]
        assert begin["ts"] <= end["ts"]
        assert end["bp"] == "e", "it binds to the slice around it"
        for point in (begin, end):
            assert any(
                (one["pid"], one["tid"]) == (point["pid"], point["tid"])
                and one["ts"] <= point["ts"] <= one["ts"] + one["dur"]
                for one in slices
            )
    counts = [one for one in events if one["ph"] == "C"]
    for counter in {(one["pid"], one["name"]) for one in counts}:
        times = [one["ts"] for one in counts if (one["pid"], one["name"]) == counter]
        assert times == sorted(times)
    assert all(value >= 0 for one in counts for value in one["args"].values())


def test_arrows_lead_from_a_call_to_those_that_it_has_submitted() -> None:
    events = events_of(found(run(1, 0, 100), nested(1, 0, 1, 20, 50), nested(1, 0, 2, 30, 70), nested(9, 0, 1, 5, 200)))
    check_as_perfetto(events)
    assert [one["ts"] - 1_000_000 for one in events if one["ph"] == "s"] == [20, 30]
    assert [one["ts"] - 1_000_000 for one in events if one["ph"] == "f"] == [50, 70]
    counts = [
        (one["ts"] - 1_000_000, one["args"]["waiting"], one["args"]["running"]) for one in events if one["ph"] == "C"
    ]
    assert counts[-1] == (210, 0, 0)
    assert max(waiting for _, waiting, _ in counts) == 3


def test_submissions_of_the_driver_are_a_track() -> None:
    prefix = prefix_of(b"driver", 0)
    calls = [
        replace(
            run(1, 9000, 1),
            id=(prefix + number.to_bytes(6, "big")).hex(),
            times=RunTimes(submitted_us, 9000 + number, 1),
        )
        for number, submitted_us in enumerate((10, 500, 1400, 5000))
    ]
    events = events_of(found(*calls, run(9, 9900, 5)))
    check_as_perfetto(events)
    submissions = [one for one in events if one.get("cat") == "submission" and one["ph"] == "X"]
    assert [(one["ts"] - 1_000_000, one["dur"], one["args"]["calls"]) for one in submissions] == [
        (10, 1390, 3),
        (5000, 0, 1),
    ]
    assert "Driver: submissions" in [one["args"].get("name") for one in events if one["ph"] == "M"]


def test_copies_spills_and_levels() -> None:
    a, b = RunNode(0, "a"), RunNode(1, "b")
    moves = [
        PastMove("level", "", "", 800, a, "", MoveTimes(10, 0)),
        PastMove("copy", "01", "f (call 1)", 800, b, "a", MoveTimes(20, 100)),
        PastMove("copy", "02", "", 50, b, "a", MoveTimes(30, 10)),
        PastMove("spill", "03", "", 9, a, "", MoveTimes(130, 7)),
        PastMove("read", "03", "", 9, a, "", MoveTimes(150, 7)),
        PastMove("level", "", "", 0, a, "", MoveTimes(200, 0)),
    ]
    events = events_of(found(moves=moves))
    check_as_perfetto(events)
    slices = [one for one in events if one["ph"] == "X"]
    assert [(one["name"], one["pid"], one["ts"] - 1_000_000, one["dur"]) for one in slices] == [
        ("copy", 1, 20, 100),
        ("copy", 1, 30, 10),
        ("spill", 0, 130, 7),
        ("read", 0, 150, 7),
    ]
    assert slices[0]["args"] == {"object_id": "01", "bytes": 800, "made_by": "f (call 1)", "source": "a"}
    assert slices[0]["tid"] != slices[1]["tid"], "on one track nothing overlaps"
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["ph"] == "M"}
    assert [names[one["pid"], one["tid"]] for one in slices] == [
        "Copies from other nodes",
        "Copies from other nodes",
        "Spills to disk",
        "Reads from disk",
    ]
    assert (names[0, 0], names[1, 0]) == ("Node a", "Node b")
    assert [(one["ts"] - 1_000_000, one["args"]) for one in events if one["ph"] == "C"] == [
        (10, {"bytes": 800}),
        (200, {"bytes": 0}),
    ]
