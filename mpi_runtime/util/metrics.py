"""Metrics of a program, with the names of Ray's: `Counter`, `Gauge`, `Histogram`.

    from mpi_runtime.util.metrics import Counter

    requests = Counter("requests", description="how many were served", tag_keys=("kind",))
    requests.inc(tags={"kind": "read"})
    print(requests.values)  # {("read",): 1.0}

`init(metrics=FILE)`, `mpi-runtime view --metrics` and the live page have the values of all processes of the job.
`values` are those of this process, also if the metric arrives in several calls.

A process sends what has changed before each result, and every `PERIOD_S` in between. So the values of a call are there
when its result is, and a process that is killed loses at most those of `PERIOD_S`.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import numbers
import os
import re
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict, TypeVar

from mpi_runtime.errors.frames import in_utf8
from mpi_runtime.extend import before_results, job_or_none, send_metrics
from mpi_runtime.scheduler.protocol.series import COUNTER, GAUGE, HISTOGRAM, Family, Numbers, Series, Tags

if TYPE_CHECKING:
    from mpi_runtime.extend import Client

__all__ = ["Counter", "Gauge", "Histogram", "Observed"]

PERIOD_S = 0.5
ABOUT_CHARACTERS_MAX = 500
TAG_CHARACTERS_MAX = 1000
BOUNDARIES_MAX = 500
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_KEY = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = "mpi_runtime_"


class _Values:
    """The values of a metric in this process, which all its copies share."""

    def __init__(self) -> None:
        self.by_tags: dict[Tags, Numbers] = {}
        self.changed: set[Tags] = set()
        """Those that have not been sent."""

    def take(self, family: Family, all_of_them: bool) -> Series:
        """What is to be sent. The caller holds the lock."""
        taken, self.changed = {*self.changed, *self.by_tags} if all_of_them else self.changed, set()
        return Series(family, [(tuple(map(in_utf8, tags)), self.by_tags.get(tags, ())) for tags in taken])


_lock = threading.RLock()
"""Held for moments only: code that the garbage collector runs may record too, inside anything."""
_sending = threading.RLock()
"""Held while values are sent, so that an older one does not arrive after a newer one."""
_of_process: dict[Family, _Values] = {}
_is_waiting = False
"""Whether a thread will send soon."""
_sent_to: weakref.ref[Client] | None = None


def _send(client: Client) -> None:
    """Send what has changed to the head of a job; if another job had it before, everything."""
    global _sent_to
    with _sending:
        is_other = _sent_to is None or _sent_to() is not client
        _sent_to = weakref.ref(client)
        with _lock:
            found = [one.take(family, is_other) for family, one in _of_process.items() if one.changed or is_other]
        if found:
            send_metrics(client, found)


def _send_late() -> None:
    global _is_waiting
    _is_waiting = False
    if (client := job_or_none()) is not None:
        _send(client)


def _send_soon() -> None:
    """Send in `PERIOD_S`. The caller holds the lock."""
    global _is_waiting
    if job_or_none() is not None:
        timer = threading.Timer(PERIOD_S, _send_late)
        timer.name, timer.daemon = "mpi_runtime metrics", True
        with contextlib.suppress(RuntimeError):  # no thread can start now: the end of the call sends it
            timer.start()
            _is_waiting = True


def _after_fork_in_child() -> None:
    global _lock, _sending, _is_waiting
    _lock, _sending, _is_waiting = threading.RLock(), threading.RLock(), False  # threads of the parent may hold them


os.register_at_fork(after_in_child=_after_fork_in_child)


class Info(TypedDict):
    """What a metric was made of."""

    name: str
    description: str
    tag_keys: tuple[str, ...]
    default_tags: dict[str, str]


class HistogramInfo(Info):
    """What a histogram was made of."""

    boundaries: list[float]


M = TypeVar("M", bound="Metric")


class Metric:
    """What the three kinds share: names, tags, values by tags."""

    _kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        self._name, self._description, self._keys = name, description, self._checked_keys(tag_keys)
        self._defaults: dict[str, str] = {}
        if problem := self._problem():
            warnings.warn(
                f"the metric {name!r} is not exported: {problem}", UserWarning, stacklevel=2 + (self._kind == HISTOGRAM)
            )
            self._values = _Values()  # of this object alone
            return
        with _lock:
            self._values = _of_process.setdefault(self._family(), _Values())
        before_results(_send)

    def _checked_keys(self, tag_keys: Sequence[str] | None) -> tuple[str, ...]:
        keys = () if tag_keys is None else tag_keys
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"tag_keys must be a tuple of strings, not {tag_keys!r}")
        for key in keys:
            if not _KEY.fullmatch(key) or (key == "le" and self._kind == HISTOGRAM):
                why = "they are letters, digits and _, begin with a letter, and 'le' belongs to histograms"
                raise ValueError(f"tag_keys has {key!r}, which labels of OpenMetrics cannot be: {why}")
        return tuple(keys)

    def _problem(self) -> str:
        """Why the metric cannot be exported under its name; empty: it can."""
        name = self._name
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {name!r}")
        if not name:
            raise ValueError("name must not be empty")
        if _NAME.fullmatch(name) and not name.startswith(_RESERVED):
            return ""
        proposed = re.sub("[^A-Za-z0-9_:]", "_", name.removeprefix(_RESERVED))
        advice = f". Call it {proposed!r}" if _NAME.fullmatch(proposed) else ""
        why = f"_ and :, not a digit first, and not {_RESERVED} first, which the names of the runtime have"
        return f"names of OpenMetrics have letters, digits, {why}{advice}"

    def _family(self) -> Family:
        """The metric as it is exported."""
        name = self._name
        if self._kind == COUNTER:
            name = name.removesuffix("_total") or name  # OpenMetrics adds it
        return Family(name, self._kind, in_utf8(str(self._description))[:ABOUT_CHARACTERS_MAX], self._keys)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._arguments(), {"_defaults": self._defaults}

    def _arguments(self) -> tuple[object, ...]:
        return self._name, self._description, self._keys

    @property
    def info(self) -> Info:
        """The name, the description, the keys of tags, and the default tags."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._keys,
            "default_tags": dict(self._defaults),
        }

    def set_default_tags(self: M, default_tags: Mapping[str, str]) -> M:
        """Set the tags of records that do not state them, and return the metric itself.

        Raises:
            ValueError: a tag is not in `tag_keys`, or too long.
            TypeError: the value of a tag is not a string.
        """
        if unknown := [key for key in default_tags if key not in self._keys]:
            raise ValueError(f"{self._name} has no tag {unknown[0]!r}; tag_keys are {self._keys}")
        self._check(default_tags)
        self._defaults = dict(default_tags)
        return self

    def _check(self, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            if key not in self._keys:  # as in Ray, which takes them; and a metric must not end what it measures
                warnings.warn(
                    f"{self._name} has no tag {key!r}, so it is ignored: tag_keys are {self._keys}", stacklevel=4
                )
            if not isinstance(value, str):
                raise TypeError(f"the value of tag {key!r} must be a string, not {value!r}")
            if len(value) > TAG_CHARACTERS_MAX:
                raise ValueError(
                    f"the value of tag {key!r} of {self._name} has {len(value)} characters; {TAG_CHARACTERS_MAX} are "
                    "possible: each value is a series of its own, so use few and short ones"
                )

    def _of(self, tags: Mapping[str, str] | None) -> Tags:
        self._check(tags or {})
        found = {**self._defaults, **(tags or {})}
        if missing := [key for key in self._keys if key not in found]:
            raise ValueError(f"{self._name} needs the tags {', '.join(missing)}: give tags=, or set_default_tags()")
        return tuple(found[key] for key in self._keys)

    def _changed(self, tags: Tags) -> None:
        """Note that a value has changed. The caller holds the lock."""
        self._values.changed.add(tags)
        if not _is_waiting:
            _send_soon()


class _OfOneNumber(Metric):
    @property
    def values(self) -> dict[tuple[str, ...], float]:
        """The values of this process, by the values of the tags in the order of `tag_keys`."""
        with _lock:
            return {tags: number for tags, (number,) in self._values.by_tags.items()}


class Counter(_OfOneNumber):
    """A number that grows. The values of all processes add up."""

    _kind = COUNTER

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Add to the counter.

        Raises:
            ValueError: `value` is not above 0, or a tag is missing.
        """
        if not (number := _number(value)) > 0:
            raise ValueError(f"value must be above 0, not {value!r}: a counter grows")
        key = self._of(tags)
        with _lock:
            (before,) = self._values.by_tags.get(key, (0.0,))
            self._values.by_tags[key] = (before + number,)
            self._changed(key)


class Gauge(_OfOneNumber):
    """A number that rises and falls. Each process has its own, with the labels `node` and `pid`, while it lives."""

    _kind = GAUGE

    def set(self, value: float | None, tags: Mapping[str, str] | None = None) -> None:
        """Replace the value; None removes it.

        Raises:
            ValueError: a tag is missing.
        """
        key, number = self._of(tags), None if value is None else _number(value)
        with _lock:
            if number is None:
                self._values.by_tags.pop(key, None)
            else:
                self._values.by_tags[key] = (number,)
            self._changed(key)


class Observed(NamedTuple):
    """The values of a histogram."""

    counts: tuple[int, ...]
    """How many values were at most each of the boundaries and above the one before; the last: above all."""
    sum: float
    """Of all values."""


class Histogram(Metric):
    """Counts of values between boundaries. Those of all processes add up."""

    _kind = HISTOGRAM

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        self.boundaries = list(boundaries or ())
        """In ascending order."""
        ascending = sorted({_number(one) for one in self.boundaries})
        if not ascending or self.boundaries != ascending or ascending[0] <= 0 or not math.isfinite(ascending[-1]):
            raise ValueError(f"boundaries must be numbers above 0 in ascending order, not {boundaries!r}")
        if len(ascending) > BOUNDARIES_MAX:
            raise ValueError(f"boundaries must be at most {BOUNDARIES_MAX} numbers, not {len(ascending)}")
        super().__init__(name, description, tag_keys)

    def _family(self) -> Family:
        family = super()._family()
        return Family(family.name, family.kind, family.about, family.keys, tuple(map(float, self.boundaries)))

    def _arguments(self) -> tuple[object, ...]:
        return self._name, self._description, tuple(self.boundaries), self._keys

    @property
    def info(self) -> HistogramInfo:
        """Also the boundaries."""
        return {**super().info, "boundaries": list(self.boundaries)}

    @property
    def values(self) -> dict[tuple[str, ...], Observed]:
        """The values of this process, by the values of the tags in the order of `tag_keys`."""
        with _lock:
            found = self._values.by_tags.items()
            return {tags: Observed(tuple(map(int, counts)), total) for tags, (total, *counts) in found}

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Count a value.

        Raises:
            ValueError: a tag is missing, or the value is not a number.
        """
        number, key = _number(value), self._of(tags)
        if math.isnan(number):
            raise ValueError("value must be a number, not nan")
        place = bisect.bisect_left(self.boundaries, number)
        with _lock:
            total, *counts = self._values.by_tags.get(key) or (0.0,) * (len(self.boundaries) + 2)
            counts[place] += 1.0
            self._values.by_tags[key] = (total + number, *counts)
            self._changed(key)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"value must be a number, not {value!r}")
    return float(value)
