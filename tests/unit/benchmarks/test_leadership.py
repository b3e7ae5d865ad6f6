"""The virtual machine of `benchmarks.leadership` runs each task once. If its head costs nothing, it is full."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from benchmarks import leadership
from benchmarks.leadership import DUMMY, GPUS, TITLE, WAVES, WORKLOADS, Kind, bound_s, measure, put, rows, used
from benchmarks.metg import TITLE as SHORT


def test_a_head_that_costs_nothing_keeps_all_cpus_busy() -> None:
    made = measure(DUMMY, 2, charge=0)
    assert made.last_us == pytest.approx(WAVES * 180e6, rel=1e-3)
    assert used(made, 2) > 0.999
    slow = measure(DUMMY, 2, charge=1e6 / made.head_s)  # so that all turns take a million seconds in all
    assert used(slow, 2) < 0.01


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_task_ends_and_not_before_the_bound(name: str) -> None:
    made = measure(WORKLOADS[name], 2, charge=0)
    assert made.ended == len(made.duration)
    assert bound_s(made, 2) <= made.last_us / 1e6


def test_the_bound_is_the_scarcest_resource_or_the_longest_task() -> None:
    nodes = 2
    assert bound_s(measure(DUMMY, nodes, charge=0), nodes) == WAVES * 180
    for kind, least_s in [
        (Kind("gpu", GPUS, 10, 10, gpus=1), 10),
        (Kind("gang", 1, 10, 10, cpus=7, gpus=1, ranks=16, on_node=8), 20),
        (Kind("long", 1, 50, 50), 50),
    ]:
        assert bound_s(measure([kind], nodes, charge=0), nodes) == pytest.approx(least_s)


def test_a_task_costs_no_more_on_a_machine_with_more_nodes() -> None:
    few, many = (steps(nodes) for nodes in (16, 32))
    assert many < 1.15 * few


def steps(nodes: int) -> float:
    """The calls and returns of functions for one task of a campaign: about what it costs, on any machine."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        made = measure(WORKLOADS["campaign"], nodes, charge=0)
    finally:
        sys.setprofile(None)
    return count / len(made.duration)


def test_a_line_that_may_take_too_long_is_left_out() -> None:
    *_, first, second = rows((1, 2), 0, "null", limit_s=0)
    assert first.startswith("| null | 1 | 224 |")
    assert second.startswith("| null | 2 | - | not measured")


def test_a_section_of_the_page_is_replaced_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nold\n")
    monkeypatch.setattr(leadership, "PAGE", page)
    for text in ("first", "second"):
        put(f"{TITLE}\n\n{text}\n")
    assert page.read_text() == f"# Performance\n\nold\n\n{TITLE}\n\nsecond\n"
    for text in (f"{SHORT}\n\nfirst", f"{TITLE}\n\nthird", f"{SHORT}\n\nlast\n"):
        put(text)
    assert page.read_text() == f"# Performance\n\nold\n\n{TITLE}\n\nthird\n\n{SHORT}\n\nlast\n"
