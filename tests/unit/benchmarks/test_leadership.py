"""The virtual machine of `benchmarks.leadership` runs each task once. If its head costs nothing, it is full."""

from __future__ import annotations

import pytest

from benchmarks.leadership import DUMMY, WAVES, WORKLOADS, measure, used


def test_a_head_that_costs_nothing_keeps_all_cpus_busy() -> None:
    made = measure(DUMMY, 2, charge=0)
    assert made.last_us == pytest.approx(WAVES * 180e6, rel=1e-3)
    assert used(made, 2) > 0.999
    slow = measure(DUMMY, 2, charge=1e6 / made.head_s)  # so that all turns take a million seconds in all
    assert used(slow, 2) < 0.01


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_task_ends(name: str) -> None:
    made = measure(WORKLOADS[name], 2, charge=0)
    assert made.ended == len(made.duration)
