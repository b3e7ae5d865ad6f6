"""The events of a timeline, from what the scheduler remembers."""

import json
from typing import Any

from mpi_runtime.api.timeline import _events


def run(number: int, start_us: int, duration_us: int, executor: int = 1, error: str = "", name: str = "") -> Any:
    process, node, times = (executor, 400 + executor, name, 0), (executor % 2, "host"), (0, start_us, duration_us)
    return (f"{number}", "f", "NORMAL_TASK", 0, None, process, node, times, error)


def found(*runs: Any, dropped: int = 0) -> dict[str, Any]:
    return {"wall_us": 1_000_000, "dropped": dropped, "runs": list(runs)}


def shown(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["args"]["task_id"], one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"]


def test_nothing_has_run() -> None:
    assert _events(found()) == []


def test_events_are_in_order_and_their_processes_have_names() -> None:
    events = _events(found(run(2, 30, 5, executor=2, name="Actor(1)"), run(1, 10, 10)))
    assert [(one["name"], one["pid"], one["tid"], one["args"]["name"]) for one in events if one["ph"] == "M"] == [
        ("process_name", 1, 0, "Node host"),
        ("thread_name", 1, 1, "Worker pid=401"),
        ("process_name", 0, 0, "Node host"),
        ("thread_name", 0, 2, "Actor(1) pid=402"),
    ]
    assert shown(events) == [("1", 1, 1_000_010, 10), ("2", 2, 1_000_030, 5)]
    assert json.loads(json.dumps(events)) == events


def test_calls_that_overlap_are_on_tracks_of_their_own() -> None:
    events = _events(found(run(1, 0, 10), run(2, 5, 10), run(3, 7, 2), run(4, 10, 5), run(5, 10, 1, executor=2)))
    tracks = {id: tid for id, tid, _, _ in shown(events)}
    assert tracks == {"1": 1, "2": 1_000_001, "3": 2_000_001, "4": 1, "5": 2}
    assert sum(one["name"] == "thread_name" for one in events) == 4


def test_errors_are_seen_and_what_is_left_out_is_said() -> None:
    events = _events(found(run(1, 0, 1, error="raised"), run(2, 1, 1), dropped=7))
    failed, fine = (one for one in events if one["ph"] == "X")
    assert (failed["args"]["state"], failed["args"]["error"], failed["cname"]) == ("FAILED", "raised", "terrible")
    assert (fine["args"]["state"], fine["args"]["error"], "cname" in fine) == ("FINISHED", "", False)
    (label,) = (one for one in events if one["name"] == "process_labels")
    assert label["args"]["labels"] == "the first 7 calls are left out: only 2 are kept"
