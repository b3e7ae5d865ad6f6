"""What pages are made of: numbers, colours, lanes, estimates, and data that cannot break out of its place."""

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from mpi_runtime.cli.running_job import in_lines
from mpi_runtime.gpu.device import Measures as Gpu
from mpi_runtime.scheduler.protocol.entries import HostUse
from mpi_runtime.scheduler.protocol.past import RAISED, RETURNED, Run
from mpi_runtime.scheduler.protocol.window_questions import (
    BusyProcess,
    ErrorEntry,
    FunctionEntry,
    JobCounts,
    JobState,
    NodeLoad,
    Piece,
)
from mpi_runtime.show import metrics
from mpi_runtime.show.charts import BARS_MAX, DONE, FAILED, Ran, colours, lanes, use
from mpi_runtime.show.estimates import Estimate, estimate, rest_s, whole
from mpi_runtime.show.facts import Facts, Waiting, waits
from mpi_runtime.show.job import document
from mpi_runtime.show.measures import Measured
from mpi_runtime.show.node_sections import nodes
from mpi_runtime.show.numbers import GAP, clock, clock_on, count, moment, plural, seconds, short_ids, size, three
from mpi_runtime.show.page import in_script, page
from mpi_runtime.show.sections import calls, lines_of, made_by
from tests.helpers import ROOT


def test_ids_are_as_short_as_it_takes_to_tell_them_apart() -> None:
    assert short_ids([]) == {}
    first, third = "69bb30d461efde260ce0000000000001", "69bb30d461efde260ce0000000000003"
    assert [*map(short_ids([first, third]).get, (first, third))] == ["000001", "000003"]
    of_another_driver = "69bb30d461efde2677aa000000000001"
    found = short_ids([first, third, of_another_driver])
    assert {len(one) for one in found.values()} == {20}
    assert len({*found.values()}) == 3, "the last twelve digits are the same"


def test_one_of_a_kind_is_not_called_several() -> None:
    assert [plural(number, "process") for number in (0, 1, 2)] == ["0 processes", "1 process", "2 processes"]
    assert [plural(number, "actor") for number in (1, 2)] == ["1 actor", "2 actors"]


def test_numbers_have_three_digits_and_units() -> None:
    assert [three(one) for one in (0, 12.345, 1234.5, 0.04567, 1e7)] == ["0", "12.3", f"1{GAP}230", "0.0457", "1.00e7"]
    assert [three(one) for one in (4.12e-5, -3.9e10)] == ["4.12e\u22125", "\u22123.90e10"]
    assert [seconds(one) for one in (-5, 0, 5.5e-5, 0.01234, 0.9999, 12.34, 99.97, 185, 7260)] == [
        "0 s",
        "0 s",
        "55 µs",
        "12.3 ms",
        "1 s",
        "12.3 s",
        "1 min 40 s",
        "3 min 05 s",
        "2 h 01 min",
    ]
    assert [size(one) for one in (0, 999, 1000, 2**30)] == ["0 B", "999 B", "0.977 KiB", "1 GiB"]
    assert count(24000) == f"24{GAP}000"


def test_a_colour_belongs_to_a_name_and_none_is_given_twice() -> None:
    names = [f"f{number}" for number in range(12)]
    found = colours(names)
    assert sorted(found.values()) == list(range(8))
    assert list(found) == names[:8], "the ninth is grey"
    assert colours(["f3"])["f3"] in range(8)
    assert colours(names) == found


def test_lanes_hold_what_ran_at_a_time() -> None:
    ran = [Ran("a", 0, 10, "f"), Ran("a", 0, 5, "g", FAILED), Ran("a", 5, 10, "f"), Ran("b", 0, 10, "f", gpu_ids=(1,))]
    found = lanes(ran, 0, 10)
    assert [(lane["node"], lane["label"], len(lane["bars"])) for lane in found["lanes"]] == [
        ("a", "1", 1),
        ("a", "2", 2),
        ("b", "1", 1),
        ("b", "GPU 1", 1),
    ]
    assert found["lanes"][1]["bars"][0] == [0, 5, found["names"].index("g"), FAILED, 1]


def test_a_timeline_of_very_many_calls_stays_small_and_shows_each_failure() -> None:
    ran = [Ran("a", at / 1000, (at + 1) / 1000, "f", FAILED if at == 5000 else DONE) for at in range(100_000)]
    (lane,) = lanes(ran, 0, 100)["lanes"]
    assert len(lane["bars"]) <= 1.1 * BARS_MAX
    assert sum(bar[4] for bar in lane["bars"]) == 100_000
    assert sum(bar[3] == FAILED for bar in lane["bars"]) == 1


def test_the_area_below_the_curve_of_use_is_the_time_of_calls() -> None:
    ran = [Ran("a", 0, 10, "f", cpus=2), Ran("a", 3, 4, "f", cpus=1)]
    (block,) = use(ran, 0, 10, (4, 0), "")
    (cpus,) = block["series"]
    assert sum(cpus["values"]) * 10 / len(cpus["values"]) == pytest.approx(21, rel=1e-3)


def test_an_estimate_needs_ends_and_has_a_range() -> None:
    assert estimate([(0, 0), (10, 19)], 100) is None
    assert estimate([(0, 0), (10, 1000)], 0) is None
    found = estimate([(float(at), 10.0 * at) for at in range(61)], 600)
    assert found is not None
    assert found.end_s == pytest.approx(120)
    assert found.low_s < 120 < found.high_s
    assert found.open_at(90, 60) == 300
    slower = estimate([(float(at), min(300.0, 10.0 * at) + max(0, at - 30)) for at in range(61)], 600)
    assert slower is not None
    assert slower.high_s - slower.low_s > 3 * (found.high_s - found.low_s), "the rate has changed"


def test_a_job_is_not_done_before_its_functions() -> None:
    together, part = Estimate(100.0, 90.0, 120.0, 5.0, 10), Estimate(150.0, 80.0, 190.0, 1.0, 9)
    assert whole(together, [part]) == Estimate(150.0, 90.0, 190.0, 5.0, 10)
    late = facts(estimates={"": together, "f": part, "g": part}, now_s=100.0)
    late.glance.end_us = 101_000_000
    assert late.open_at_end() == {"": 16, "f": 8, "g": 8}, "no fewer than those of its functions"


def test_calls_wait_for_what_the_oldest_waits_for_at_least() -> None:
    many, one = Waiting("for room", 20, "f"), Waiting("for an argument", 1, "g")
    assert waits(facts(waits=[many, one])) == "20 of f, the oldest for room; 1 of g for an argument"
    (card,) = (
        card for card in document(facts(waits=[many]))["blocks"][0]["cards"] if card["q"].startswith("What waits")
    )
    assert card["rows"] == [["f: the oldest for room", "20", "f"]]


CANCELLED_COUNTS = {"submitted": 4, "finished": 1, "failed": 1, "cancelled": 2, "ran": 2}


def cancelled() -> Facts:
    glance = glance_of()
    glance.functions = [replace(glance.functions[0], running=0, waiting=0, cancelled=2)]
    glance.counts = replace(glance.counts, running=0, waiting=0, **CANCELLED_COUNTS)
    return facts(glance=glance)


def test_cancelled_calls_are_counted_apart_from_those_that_failed() -> None:
    blocks = {one.get("id"): one for one in document(cancelled())["blocks"]}
    cards = {one["q"]: one for one in document(cancelled())["blocks"][0]["cards"]}
    assert cards["What failed?"]["big"] == "1"
    assert cards["What failed?"]["small"].startswith("of 4 ended calls")
    assert ["calls that were cancelled", "2"] in cards["What failed?"]["rows"]
    assert cards["When is it done?"]["said"] == "4 of 4 ended"
    names = [one["t"] for one in blocks["functions"]["columns"]]
    row = dict(zip(["id", *names], blocks["functions"]["rows"][0], strict=False))
    assert (row["done"], row["failed"], row["cancelled"]) == (1, 1, 2)
    assert "calls: 4 ended, 1 of them failed, 2 cancelled;" in in_lines(cancelled())[1]
    line = next(one for one in in_lines(cancelled()) if one.startswith("  ["))
    assert line.endswith(": 1 done, 1 failed, 2 cancelled, 5 µs each")
    plain = {one.get("id"): one for one in document(facts())["blocks"]}
    assert "cancelled" not in [one["t"] for one in plain["functions"]["columns"]], "most jobs have none"


def test_times_of_another_day_have_its_date() -> None:
    day_s = 1_700_000_000.0
    assert clock_on(day_s + 1, day_s) == clock(day_s + 1)
    assert clock_on(day_s + 86400, day_s, False) == f"{moment(day_s + 86400)[:10]} {clock(day_s, False)}"
    assert document(facts(begin_s=day_s, now_s=day_s + 3))["meta"][2] == f"started {moment(day_s)}"


def test_the_rest_of_equal_parts_runs_in_rounds() -> None:
    assert rest_s(60, [60, 20], 0) == 40
    assert rest_s(60, [90], 0) == 30, "it takes longer than the others: nobody knows how much"
    assert [rest_s(1.25, [ran_s], 1) for ran_s in (10, 20)] == [10, 20], "an estimate that was wrong does not stay"
    assert rest_s(60, [50, 20], 1) == 70
    assert rest_s(60, [50, 20], 2) == 100
    assert rest_s(60, [0] * 8, 16) == 180
    assert rest_s(60, [0] * 8, 17) == 240


HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


def glance_of() -> JobState:
    function = FunctionEntry(
        name=HOSTILE, kind="NORMAL_TASK", needs="1 CPU", submitted=4, done=1, failed=1, running=1, mean_us=5, waiting=1
    )
    error = ErrorEntry(HOSTILE, HOSTILE, failed=1, retried=0, last_us=10, rank=0, host="a", trace=HOSTILE)
    node = NodeLoad(
        name="a",
        cpus=2.0,
        cpus_used=1.0,
        gpus=0.0,
        gpus_used=0.0,
        memory=1 << 30,
        memory_used=0,
        arena=1 << 30,
        executors=2,
        is_closed=False,
        problems=[],
    )
    counts = dict.fromkeys(JobCounts.__struct_fields__, 0)
    counts |= {"submitted": 4, "finished": 1, "failed": 1, "running": 1, "waiting": 1, "executors": 2, "ran": 1}
    return JobState(
        job_us=0,
        end_us=0,
        counts=JobCounts(**counts),
        total={"CPU": 2.0, "object_store_memory": 1e9},
        free={"CPU": 1.0, "object_store_memory": 1e9},
        functions=[function],
        functions_in_all=1,
        running=[BusyProcess(HOSTILE, "NORMAL_TASK", False, "a", 0, 7, 100, "00ff", "")],
        errors=[error],
        nodes=[node],
        nodes_in_all=1,
    )


def facts(**more: Any) -> Facts:
    glance = glance_of()
    run = Run(HOSTILE, 0, "a", 0, 7, "", 10, 20, 30, RAISED, 0, 1.0, 0.0, [])
    output = [Piece(1, 1.0, 1, f"({HOSTILE} pid=7) ", HOSTILE)]
    given = {
        "name": HOSTILE,
        "pid": 5,
        "host": "a",
        "begin_s": 0.0,
        "now_s": 10.0,
        "glance": glance,
        "runs": [run],
        "ran": 1,
        "output": output,
        "errors": {HOSTILE: glance.errors},
    }
    return Facts(**{**given, **more})


@pytest.mark.parametrize("state", ["running", "ended", "killed", "lost"])
def test_user_data_cannot_end_the_script_or_the_title(state: str) -> None:
    text = page(document(facts(state=state)))
    assert "</script><script>alert" not in text
    assert "<img" not in text
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert data["name"] == HOSTILE
    assert in_script({"a": "\u2028</"}) == '{"a":"\\u2028\\u003c/"}'
    assert in_script([float("nan"), float("inf")]) == "[null,null]"
    assert in_script({"\udcff": ("\ud800", float("nan"))}) == '{"?":["?",null]}', "bytes that are no text"


def test_lines_of_output_have_their_writers() -> None:
    pieces = [
        Piece(1, 5.0, 1, "(work pid=7, rank 3, host2) ", b"one\ntwo\n".decode()),
        Piece(2, 6.0, 30, "mpi_runtime, rank 0, a", "!"),
    ]
    assert lines_of(pieces) == [
        (2, 6.0, 30, "mpi_runtime, rank 0, a", "!", None),
        (1, 5.0, 1, "work, rank 3", "two", "work"),
        (1, 5.0, 1, "work, rank 3", "one", "work"),
    ]
    assert made_by("simulate (/home/u/app.py:3)") == "simulate"
    assert made_by("/home/u/app.py:34 in <module>") == "put at app.py:34"


def test_a_task_does_not_get_the_name_of_the_actor_that_its_process_became() -> None:
    run = Run("f", 0, "a", 0, 7, "Later", 10, 20, 30, RETURNED, 0, 1.0, 0.0, [])
    method = Run("A.go", 2, "a", 0, 7, "Later", 60, 70, 30, RETURNED, 0, 1.0, 0.0, [])
    assert [row[1] for row in calls(facts(runs=[run, method], ran=2))["rows"]] == ["f", "Later: A.go"]


def test_metrics_are_read_by_the_parser_of_prometheus() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = metrics.text(facts(measured={"a": measured(Gpu("GPU-1", 90, 1, 2, 70))}))
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    (done,) = families["mpi_runtime_calls_done"].samples
    assert (done.name, done.labels, done.value) == ("mpi_runtime_calls_done_total", {"function": HOSTILE}, 1)
    assert families["mpi_runtime_up"].samples[0].value == 1
    assert families["mpi_runtime_memory_bytes"].unit == "bytes"
    (hot,) = families["mpi_runtime_gpu_temperature_celsius"].samples
    assert (hot.labels, hot.value) == ({"node": "a", "gpu": "GPU-1"}, 70)
    assert metrics.text(facts(state="ended")).count("mpi_runtime_up 0") == 1


def measured(*gpus: Gpu) -> Measured:
    found = Measured()
    for busy in (0.25, 0.5):
        found.take(HostUse(busy, 1 << 29, 1 << 30, [*gpus]), 0.125, 3.0)
    return found


def test_few_nodes_are_a_table_with_curves_and_many_a_heat_map() -> None:
    glance = glance_of()
    (node,) = glance.nodes
    broken = Gpu("GPU-1", 90, 1 << 30, 2 << 30, 70, "does not answer")
    few = nodes(facts(measured={"a": measured(broken)}))
    (row,) = few["rows"]
    row = dict(zip([one["t"] for one in few["columns"]], row[1:], strict=True))
    assert row["CPU use"] == [0.5, 1, "50%", [0.25, 0.5]]
    assert (row["GPU use"][2], row["hottest GPU"], row["state"]) == ("90%", "70 °C", "problem")
    glance.nodes = [replace(node, name=f"n{number}") for number in range(64)]
    glance.nodes_in_all = 64
    heat = nodes(facts(glance=glance, measured={"n5": measured(broken)}))
    assert [one["name"] for one in heat["metrics"]] == ["CPUs given", "CPU use", "Memory in use", "Store"]
    assert heat["nodes"][5]["values"]["CPU use"] == 0.5
    assert heat["nodes"][5]["flag"] == "GPU 0: does not answer"
    assert heat["nodes"][6]["flag"] == ""
    assert heat["said"] == "64, 1 to look at"


def test_the_board_of_grafana_asks_for_numbers_that_exist() -> None:
    board = json.loads((ROOT / "examples" / "grafana.json").read_text())
    names = {
        name
        for panel in board["panels"]
        for one in panel["targets"]
        for name in re.findall(r"mpi_runtime_\w+", one["expr"])
    }
    text = metrics.text(facts(measured={"a": measured(Gpu("GPU-1", 90, 1, 2, 70))}))
    there = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert {name.removesuffix("_total") for name in names} <= there
    assert len(names) >= 12
