"""A flat space for searchers that learn: domains by names such as `layer/units`, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi_runtime.tune.space.domains import Categorical, Domain, Float, Integer, Normal
from mpi_runtime.tune.space.variants import is_grid
from mpi_runtime.tune.trial import has_value, value_in

KNOWN = (Float, Integer, Normal, Categorical)


def domains(space: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The domains of a space, in nested dictionaries too. Functions, and what choices contain, are left out.

    Two of the same name, as in `{"a/b": uniform(0, 1), "a": {"b": uniform(0, 1)}}`, are an error.
    """
    found: dict[str, Any] = {}
    for name, value in space.items():
        inner: dict[str, Any] = {}
        if isinstance(value, KNOWN):
            inner = {f"{prefix}{name}": value}
        elif isinstance(value, Mapping) and not isinstance(value, Domain) and not is_grid(value):
            inner = domains(value, f"{prefix}{name}/")
        if both := found.keys() & inner.keys():
            raise ValueError(f"The space has two parameters with the name {min(both)!r}: rename one of them.")
        found.update(inner)
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by names such as `layer/units` as nested dictionaries."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split("/")
        inside = found
        for part in path:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return found


def named(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a configuration has for these domains, by name."""
    return {name: value_in(config, name) for name in wanted if has_value(config, name)}
