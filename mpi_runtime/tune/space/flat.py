"""A flat space for searchers that learn: domains by names such as `layer/units`, and the way back."""

from __future__ import annotations

from collections.abc import Mapping

from mpi_runtime.tune.space.domains import Categorical, Domain, Float, Integer, Normal
from mpi_runtime.tune.space.variants import is_grid
from mpi_runtime.tune.trial import Config, has_value, value_in

Known = Float | Integer | Normal | Categorical
"""The domains that searchers learn."""


def domains(space: Mapping[str, object], prefix: str = "") -> dict[str, Known]:
    """The domains of a space, in nested dictionaries too. Functions, and what choices contain, are left out.

    Two of the same name, as in `{"a/b": uniform(0, 1), "a": {"b": uniform(0, 1)}}`, are an error.
    """
    found: dict[str, Known] = {}
    for name, value in space.items():
        inner: dict[str, Known] = {}
        if isinstance(value, Known):
            inner = {f"{prefix}{name}": value}
        elif isinstance(value, Mapping) and not isinstance(value, Domain) and not is_grid(value):
            inner = domains(value, f"{prefix}{name}/")
        if both := found.keys() & inner.keys():
            raise ValueError(f"The space has two parameters with the name {min(both)!r}: rename one of them.")
        found.update(inner)
    return found


def unflatten_dict(dt: Mapping[str, object], delimiter: str = "/") -> Config:
    """Values by names such as `layer/units` as nested dictionaries of the same class: Ray's function."""
    kind = type(dt) if isinstance(dt, dict) else dict
    found: Config = kind()
    for name, value in dt.items():
        *path, last = name.split(delimiter)
        inside = found
        for part in path:
            inside = inside.setdefault(part, kind())
        inside[last] = value
    return found


def named(config: Mapping[str, object], wanted: Mapping[str, object]) -> Config:
    """The values that a configuration has for these domains, by name."""
    return {name: value_in(config, name) for name in wanted if has_value(config, name)}
