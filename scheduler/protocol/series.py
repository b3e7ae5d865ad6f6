"""Values of the metrics that a program counts itself (`mpi_runtime.util.metrics`): of a process, and of a whole job.

A process sends those that have changed to the head, at the end of each call and every half second. The head adds them
up (`core/head/metrics.py`), and `show/metrics.py` writes them as OpenMetrics text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
Tags = tuple[str, ...]
Labels = tuple[tuple[str, str], ...]
"""Names and values."""
Numbers = tuple[float, ...]
"""Of a counter or gauge its value; of a histogram the sum of all, and how many were in each part; empty: removed."""
_SUFFIXES = {
    COUNTER: ("", "_total", "_created"),
    GAUGE: ("",),
    HISTOGRAM: ("", "_bucket", "_count", "_sum", "_created"),
}


class Family(msgspec.Struct, array_like=True, frozen=True):
    """A metric."""

    name: str
    kind: str
    about: str
    keys: tuple[str, ...]
    """Of its tags."""
    boundaries: tuple[float, ...] = ()
    """Of a histogram."""

    def sample_names(self) -> list[str]:
        """The names that its samples may have, which no other family may use."""
        return [self.name + suffix for suffix in _SUFFIXES.get(self.kind, ("",))]


class Series(msgspec.Struct, array_like=True):
    """Values of a metric in a process, by the values of the tags."""

    family: Family
    values: Sequence[tuple[Tags, Numbers]]


class Row(msgspec.Struct, array_like=True):
    """A value of a job."""

    family: Family
    labels: Labels
    numbers: Numbers
