"""What the processes of a job have counted in metrics of their own (`mpi_runtime.util.metrics`), added up.

Counters and histograms of all processes with the same tags add up, those of ended processes too. A gauge is a state of
a process, so each process has its own, with the labels `node` and `pid`, as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpi_runtime.core.head.measures import first_that_fit
from mpi_runtime.scheduler.protocol.series import GAUGE, Family, Labels, Numbers, Row, Series

SERIES_MAX = 10_000
"""The most values of a job, added up. Further ones are not kept."""
ANSWER_BYTES_MAX = 150_000
Key = tuple[str, Labels]
"""Name and labels of a value."""


class Metrics:
    """The values of a job."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """`warn` logs a warning. Each is logged once."""
        self._warn = warn
        self._warned: set[str] = set()
        self._families: dict[str, Family] = {}
        self._names: dict[str, str] = {}
        """The family that uses a name of samples."""
        self._living: dict[int, dict[Key, Numbers]] = {}
        """By client."""
        self._ended: dict[Key, Numbers] = {}
        """The sums of the processes that have ended."""
        self._keys: set[Key] = set()
        self._rows: list[Row] = []
        """The answer that is being asked for, part by part."""

    def take(self, client: int, node: str, pid: int, series: Sequence[Series]) -> None:
        """Take values of a process, each in place of the one before."""
        values = self._living.setdefault(client, {})
        for one in series:
            family = one.family
            if not self._is_known(family):
                continue
            own = (("node", node), ("pid", str(pid))) if family.kind == GAUGE else ()
            for tags, numbers in one.values:
                named = dict(zip(family.keys, tags, strict=False))
                labels = tuple(({**dict(own), **named}).items())
                self._put(values, (family.name, labels), numbers)

    def _put(self, values: dict[Key, Numbers], key: Key, numbers: Numbers) -> None:
        if not numbers:
            values.pop(key, None)
            self._keys.discard(key)
        elif key in self._keys or len(self._keys) < SERIES_MAX:
            self._keys.add(key)
            values[key] = numbers
        else:
            self._warn_once(f"metrics of the program have more than {SERIES_MAX} values: further ones are not exported")

    def _is_known(self, family: Family) -> bool:
        known = self._families.get(family.name)
        if known is None:
            users = {self._names[name] for name in family.sample_names() if name in self._names}
            if users:
                why = f"its samples would have names of the metric {min(users)}"
                self._warn_once(f"the {family.kind} {family.name} is not exported: {why}. Rename one of them")
                return False
            self._families[family.name] = family
            self._names.update(dict.fromkeys(family.sample_names(), family.name))
        elif (known.kind, known.boundaries) != (family.kind, family.boundaries):
            shape = f" with boundaries {list(known.boundaries)}" if known.boundaries else ""
            why = f"the job has a {known.kind}{shape} of this name"
            self._warn_once(f"a {family.kind} {family.name} is not exported: {why}. Rename one of them")
            return False
        return True

    def _warn_once(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < len(self._families) + 10:
            self._warned.add(text)
            self._warn(text)

    def ended(self, client: int) -> None:
        """Keep what a process has counted. Its gauges are gone with it."""
        for key, numbers in self._living.pop(client, {}).items():
            if self._families[key[0]].kind == GAUGE:
                self._keys.discard(key)
            else:
                self._ended[key] = _sum(self._ended.get(key), numbers)

    def answer(self, first: int) -> list[Row]:
        """Return the values from a number on, as many as fit into an answer. The first part begins with a new state."""
        if not first:
            found = dict(self._ended)
            for values in self._living.values():
                for key, numbers in values.items():
                    found[key] = numbers if self._families[key[0]].kind == GAUGE else _sum(found.get(key), numbers)
            self._rows = [Row(self._families[name], labels, found[name, labels]) for name, labels in sorted(found)]
        return first_that_fit(self._rows[first:], ANSWER_BYTES_MAX)


def _sum(one: Numbers | None, other: Numbers) -> Numbers:
    return tuple(map(float.__add__, one, other)) if one is not None else other
