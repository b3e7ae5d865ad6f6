"""Metrics of a program in the head: what adds up, what is refused, what stays of an ended process."""

from typing import Any

from mpi_runtime.core.head import metrics
from mpi_runtime.core.head.metrics import Metrics
from mpi_runtime.scheduler.protocol.series import Family, Row, Series
from mpi_runtime.scheduler.protocol.window_questions import RecordedFrom
from mpi_runtime.show.metrics import rows_of

REQUESTS = Family("requests", "counter", "how many", ("kind",))
LOAD = Family("load", "gauge", "", ())
SIZES = Family("sizes", "histogram", "", (), (1.0, 10.0))


def values(found: Metrics) -> dict[tuple[Any, ...], tuple[float, ...]]:
    return {(row.family.name, *(value for _, value in row.labels)): row.numbers for row in found.answer(0)}


def test_counters_and_histograms_add_up_and_each_process_has_its_gauge() -> None:
    found = Metrics(print)
    for client in (1, 2):
        found.take(client, "a", 10 + client, [Series(REQUESTS, [(("read",), (float(client),))])])
        found.take(
            client, "a", 10 + client, [Series(LOAD, [((), (0.5,))]), Series(SIZES, [((), (3.0, 1.0, 0.0, 2.0))])]
        )
    found.take(2, "a", 12, [Series(REQUESTS, [(("read",), (5.0,)), (("write",), (1.0,))])])
    assert values(found) == {
        ("load", "a", "11"): (0.5,),
        ("load", "a", "12"): (0.5,),
        ("requests", "read"): (6.0,),
        ("requests", "write"): (1.0,),
        ("sizes",): (6.0, 2.0, 0.0, 4.0),
    }


def test_what_an_ended_process_has_counted_stays_and_its_gauges_go() -> None:
    found = Metrics(print)
    for client in range(1, 4):
        found.take(client, "a", client, [Series(REQUESTS, [(("read",), (1.0,))]), Series(LOAD, [((), (1.0,))])])
        found.ended(client)
        found.ended(client)
    found.take(4, "a", 4, [Series(REQUESTS, [(("read",), (1.0,))]), Series(LOAD, [((), (1.0,))])])
    assert values(found) == {("requests", "read"): (4.0,), ("load", "a", "4"): (1.0,)}
    found.take(4, "a", 4, [Series(LOAD, [((), ())])])
    assert values(found) == {("requests", "read"): (4.0,)}, "set(None)"


def test_what_a_name_means_already_is_refused_once() -> None:
    said: list[str] = []
    found = Metrics(said.append)
    for family in (SIZES, Family("sizes", "gauge", "", ()), Family("sizes_count", "gauge", "", ())) * 2:
        found.take(1, "a", 1, [Series(family, [((), (1.0, 1.0, 0.0, 0.0))])])
    found.take(1, "a", 1, [Series(Family("sizes", "histogram", "", (), (2.0,)), [((), (1.0, 1.0, 0.0))])])
    known = "the job has a histogram with boundaries [1.0, 10.0] of this name"
    assert [text.removesuffix(". Rename one of them") for text in said] == [
        f"a gauge sizes is not exported: {known}",
        "the gauge sizes_count is not exported: its samples would have names of the metric sizes",
        f"a histogram sizes is not exported: {known}",
    ]
    assert values(found) == {("sizes",): (1.0, 1.0, 0.0, 0.0)}


def test_there_is_a_limit_and_answers_come_in_parts() -> None:
    said: list[str] = []
    found = Metrics(said.append)
    many = [((f"{number:0500d}",), (1.0,)) for number in range(metrics.SERIES_MAX + 5)]
    found.take(1, "a", 1, [Series(REQUESTS, many)])
    found.take(1, "a", 1, [Series(REQUESTS, many[:5])])
    assert said == ["metrics of the program have more than 10000 values: further ones are not exported"]
    parts: list[int] = []

    def ask(question: RecordedFrom) -> list[Row]:
        parts.append(question.first)
        return found.answer(question.first)

    assert len(rows_of(ask)) == metrics.SERIES_MAX
    assert len(parts) > 10
    found.ended(1)
    found.take(2, "a", 2, [Series(REQUESTS, many[:1])])
    assert len(said) == 1
    assert found.answer(0)[0].numbers == (2.0,)
