"""Conditions on entries of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

E = TypeVar("E", bound=Mapping[str, Any])
Filter = tuple[str, str, Any]
"""(key, "=" or "!=", value)"""


def filtered(entries: list[E], keys: Sequence[str], filters: Sequence[Filter], limit: int) -> list[E]:
    """The first entries that meet all filters. ValueError: a filter is malformed, or its key is not one of `keys`."""
    for one in filters:
        if not isinstance(one, tuple) or len(one) != 3 or one[1] not in ("=", "!="):
            raise ValueError(f"a filter is (key, '=' or '!=', value), not {one!r}")
        key, comparison, wanted = one
        key = key.lower() if isinstance(key, str) else key
        if key not in keys:
            raise ValueError(f"there is no key {key!r} to filter by; there are: {', '.join(keys)}")
        entries = [entry for entry in entries if _meets(entry.get(key), wanted) is (comparison == "=")]
    return entries[:limit]


def _meets(value: object, wanted: object) -> bool:
    """Whether a value is the wanted one, by the text of it, as on a command line."""
    if value is None or wanted is None or isinstance(wanted, type(value)):
        return value == wanted or (isinstance(value, str) and value.lower() == str(wanted).lower())
    if isinstance(value, bool):
        return value is (str(wanted).lower() in ("1", "true"))
    return str(value).lower() == str(wanted).lower()
