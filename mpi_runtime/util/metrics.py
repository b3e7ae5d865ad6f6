"""Metrics of a program, with the names of Ray's: `Counter`, `Gauge`, `Histogram`.

    from mpi_runtime.util.metrics import Counter

    requests = Counter("requests", description="how many were served", tag_keys=("kind",))
    requests.inc(tags={"kind": "read"})
    print(requests.values)  # {("read",): 1.0}

The values are those of this process, also if the metric arrives in several calls. Nothing is sent anywhere: return
`values` from a call to see those of another process.
"""

from __future__ import annotations

import bisect
import numbers
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Counter", "Gauge", "Histogram", "Observed"]

_NAME = re.compile(r"[A-Za-z_][\w:.-]*")
_lock = threading.Lock()
_of_process: dict[Any, dict[tuple[str, ...], Any]] = {}
"""The values of each metric, by its class and arguments."""


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"value must be a number, not {value!r}")
    return float(value)


class _Metric:
    """What the three kinds share: names, tags, values by tags."""

    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"name must begin with a letter, with letters, digits and _ : . - after it, not {name!r}")
        keys = () if tag_keys is None else tag_keys
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"tag_keys must be a tuple of strings, not {tag_keys!r}")
        self._name, self._description, self._keys = name, description, tuple(keys)
        self._defaults: dict[str, str] = {}
        self._values = _of_process.setdefault((type(self), self._arguments()), {})

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, self._keys

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments(), {"_defaults": self._defaults}

    @property
    def info(self) -> dict[str, Any]:
        """The name, the description, the keys of tags, and the default tags."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._keys,
            "default_tags": dict(self._defaults),
        }

    @property
    def values(self) -> dict[tuple[str, ...], Any]:
        """The values of this process, by the values of the tags in the order of `tag_keys`."""
        with _lock:
            return dict(self._values)

    def set_default_tags(self, default_tags: Mapping[str, str]) -> None:
        """Set the tags of records that do not state them.

        Raises:
            ValueError: a tag is not in `tag_keys`.
            TypeError: the value of a tag is not a string.
        """
        self._check(default_tags)
        self._defaults = dict(default_tags)

    def _check(self, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            if key not in self._keys:
                raise ValueError(f"{self._name} has no tag {key!r}; tag_keys are {self._keys}")
            if not isinstance(value, str):
                raise TypeError(f"the value of tag {key!r} must be a string, not {value!r}")

    def _of(self, tags: Mapping[str, str] | None) -> tuple[str, ...]:
        self._check(tags or {})
        found = {**self._defaults, **(tags or {})}
        if missing := [key for key in self._keys if key not in found]:
            raise ValueError(f"{self._name} needs the tags {', '.join(missing)}: give tags=, or set_default_tags()")
        return tuple(found[key] for key in self._keys)


class Counter(_Metric):
    """A number that grows."""

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Add to the counter.

        Raises:
            ValueError: `value` is not above 0, or a tag is unknown or missing.
        """
        if not (number := _number(value)) > 0:
            raise ValueError(f"value must be above 0, not {value!r}: a counter grows")
        key = self._of(tags)
        with _lock:
            self._values[key] = self._values.get(key, 0.0) + number


class Gauge(_Metric):
    """A number that rises and falls."""

    def set(self, value: float | None, tags: Mapping[str, str] | None = None) -> None:
        """Replace the value; None removes it.

        Raises:
            ValueError: a tag is unknown or missing.
        """
        key, number = self._of(tags), None if value is None else _number(value)
        with _lock:
            if number is None:
                self._values.pop(key, None)
            else:
                self._values[key] = number


class Observed(NamedTuple):
    """The values of a histogram."""

    counts: tuple[int, ...]
    """How many values were at most each of the boundaries and above the one before; the last: above all."""
    sum: float
    """Of all values."""


class Histogram(_Metric):
    """Counts of values between boundaries."""

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        self.boundaries = list(boundaries or ())
        """In ascending order."""
        if not self.boundaries or self.boundaries != sorted(self.boundaries) or self.boundaries[0] <= 0:
            raise ValueError(f"boundaries must be numbers above 0 in ascending order, not {boundaries!r}")
        super().__init__(name, description, tag_keys)

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, tuple(self.boundaries), self._keys

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Count a value.

        Raises:
            ValueError: a tag is unknown or missing.
        """
        number, key = _number(value), self._of(tags)
        place = bisect.bisect_left(self.boundaries, number)
        with _lock:
            counts, total = self._values.get(key, ((0,) * (len(self.boundaries) + 1), 0.0))
            counts = tuple(count + (index == place) for index, count in enumerate(counts))
            self._values[key] = Observed(counts, total + number)
