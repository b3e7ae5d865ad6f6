"""Counters, gauges and histograms: their values by tags, and what is refused."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime.core.client import current
from mpi_runtime.util.metrics import Counter, Gauge, Histogram


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of later tests in this process do not send these values."""
    monkeypatch.setattr(current, "report_values", None)


def test_values_by_tags() -> None:
    counter = Counter("values_by_tags", "a text", tag_keys=("kind", "place"))
    counter.set_default_tags({"place": "here"})
    counter.inc(tags={"kind": "a"})
    counter.inc(2, tags={"kind": "a", "place": "there"})
    counter.inc(0.5, {"kind": "a"})
    assert counter.values == {("a", "here"): 1.5, ("a", "there"): 2.0}
    assert counter.info == {
        "name": "values_by_tags",
        "description": "a text",
        "tag_keys": ("kind", "place"),
        "default_tags": {"place": "here"},
    }


def test_a_gauge_has_the_last_value() -> None:
    gauge = Gauge("gauge")
    gauge.set(3)
    gauge.set(2)
    assert gauge.values == {(): 2.0}
    gauge.set(None)
    assert gauge.values == {}


def test_a_histogram_counts_between_boundaries() -> None:
    histogram = Histogram("histogram", boundaries=[1, 10])
    for value in (0.5, 1, 2, 11, 12, 13):
        histogram.observe(value)
    assert histogram.values == {(): ((2, 1, 3), 39.5)}


def test_copies_of_a_process_share_their_values() -> None:
    for made in (Counter("copied", tag_keys=("a",)), Histogram("copied", boundaries=[1], tag_keys=("a",))):
        made.set_default_tags({"a": "x"})
        copy = pickle.loads(pickle.dumps(made))
        (copy.inc if isinstance(copy, Counter) else copy.observe)(1)
        assert copy.values == made.values != {}


@pytest.mark.parametrize(
    ("name", "advice"),
    [("load-1", r"Call it 'load_1'"), ("mpi_runtime_calls", r"Call it 'calls'"), ("é", "names of OpenMetrics")],
)
def test_a_name_that_cannot_be_exported_is_kept_in_the_process_with_a_warning(name: str, advice: str) -> None:
    """As in Ray: a library with such a name runs."""
    with pytest.warns(UserWarning, match=rf"the metric '{name}' is not exported: .*{advice}") as caught:
        made = Gauge(name)
    assert caught[0].filename == __file__
    made.set(3)
    assert made.values == {(): 3.0}


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda: Counter(3), TypeError),  # type: ignore[arg-type]
        (lambda: Counter("a", tag_keys=("b-c",)), ValueError),
        (lambda: Counter("a", tag_keys=("__b",)), ValueError),
        (lambda: Histogram("a", boundaries=[1], tag_keys=("le",)), ValueError),
        (lambda: Counter("a", tag_keys=("b",)).inc(tags={"b": "c" * 1001}), ValueError),
        (lambda: Histogram("a", boundaries=[1, 1]), ValueError),
        (lambda: Histogram("a", boundaries=[1]).observe(float("nan")), ValueError),
        (lambda: Counter(""), ValueError),
        (lambda: Counter("a", tag_keys="ab"), TypeError),
        (lambda: Counter("a").inc(0), ValueError),
        (lambda: Counter("a").inc("1"), TypeError),  # type: ignore[arg-type]
        (lambda: Counter("a").set_default_tags({"b": "c"}), ValueError),
        (lambda: Counter("a", tag_keys=("b",)).inc(), ValueError),
        (lambda: Counter("a", tag_keys=("b",)).inc(tags={"b": 1}), TypeError),  # type: ignore[dict-item]
        (lambda: Gauge("a").set("1"), TypeError),  # type: ignore[arg-type]
        (lambda: Histogram("a"), ValueError),
        (lambda: Histogram("a", boundaries=[2, 1]), ValueError),
        (lambda: Histogram("a", boundaries=[0]), ValueError),
    ],
)
def test_what_is_refused(act: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        act()


def test_a_tag_that_the_metric_has_not_is_ignored_with_a_warning_for_the_line() -> None:
    """As in Ray, where a program with such a tag runs."""
    counter = Counter("other_tags", tag_keys=("a",))
    with pytest.warns(UserWarning, match=r"other_tags has no tag 'b', so it is ignored: tag_keys") as caught:
        counter.inc(2, tags={"a": "x", "b": "y"})
    assert caught[0].filename == __file__
    assert counter.values == {("x",): 2.0}
