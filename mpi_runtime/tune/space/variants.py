"""Makes the configurations of trials from a space: points of grids, and random values for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard, overload

import numpy as np

from mpi_runtime.tune.space.domains import Domain, Function, Rng
from mpi_runtime.tune.space.samplers import generator_of
from mpi_runtime.tune.trial import Config

Path = tuple[object, ...]
Grid = dict[Path, object]
"""One point of all grids of a space: the value at each path."""


class RecursiveDependencyError(ValueError):
    """Functions of a space need each other's values. Ray has this name."""


class _Unresolved(Exception):
    """A function used a value that is not known yet."""


class _Known(Config):
    """The values of a trial as keys and as attributes; `config` is the whole, as where Ray passes a `spec`."""

    def __getitem__(self, key: str) -> object:
        value = super().__getitem__(key)
        if isinstance(value, Domain):
            raise _Unresolved(key)
        return _Known(value) if isinstance(value, dict) else value

    def __getattr__(self, name: str) -> object:
        if name in self:
            return self[name]
        if name == "config":
            return self
        raise AttributeError(f"the config has no {name!r}; it has {sorted(self)}")


def rng_of(seed: int, *numbers: int) -> Rng:
    """The generator of trial `numbers[0]`; further numbers name the stream."""
    return np.random.default_rng((seed, *numbers))


def is_grid(value: object) -> TypeGuard[dict[str, list[object]]]:
    """Whether this is a result of `grid_search`."""
    return isinstance(value, dict) and value.keys() == {"grid_search"}


COUNTED = 2**63 - 1
"""The most items that a sequence can have."""


class GridPoints(Sequence[Grid]):
    """All combinations of some grids. The first changes fastest. They are made when they are asked for."""

    def __init__(self, grids: Sequence[tuple[Path, Sequence[object]]]) -> None:
        """Combine these values at these paths."""
        self._grids = grids
        self._count = math.prod(len(values) for _, values in grids)
        if self._count > COUNTED:
            raise ValueError(
                f"The grids of the space have {self._count:.1e} combinations, more than can be counted. Use `choice` "
                "for some of them: num_samples is the number of trials then."
            )

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Grid: ...

    @overload
    def __getitem__(self, index: slice) -> list[Grid]: ...

    def __getitem__(self, index: int | slice) -> Grid | list[Grid]:
        if isinstance(index, slice):
            return [self[place] for place in range(self._count)[index]]
        rest, found = range(self._count)[index], {}
        for path, values in self._grids:
            rest, place = divmod(rest, len(values))
            found[path] = values[place]
        return found


def grid_points(space: Mapping[str, object]) -> GridPoints:
    """All combinations of the grids in a space. The first grid, by the names of its path, changes fastest."""
    grids = sorted(_grids(space, ()), key=lambda grid: [str(part) for part in grid[0]])
    for path, values in grids:
        if any(True for _ in _grids(list(values), ())):
            raise ValueError(f"The grid {_name(path)} has a grid among its values. Write its combinations as one list.")
    return GridPoints(grids)


def has_grid(space: Mapping[str, object]) -> bool:
    """Whether a space has grids."""
    return any(True for _ in _grids(space, ()))


def merged(space: Mapping[str, object], chosen: Mapping[str, object]) -> Config:
    """The space with some of its values chosen, in nested dictionaries too."""
    result = dict(space)
    for key, value in chosen.items():
        inner = result.get(key)
        if isinstance(inner, dict) and isinstance(value, Mapping) and not is_grid(inner):
            result[key] = merged(inner, value)
        else:
            result[key] = value
    return result


def resolve(space: Mapping[str, object], grid: Grid, rng: Rng) -> Config:
    """Draw the values of one trial, at one point of the grids. Functions see the values of domains."""
    config: Config = _drawn(dict(space), (), grid, rng)
    waiting = list(_functions(config, ()))
    while waiting:
        later = []
        for path, function in waiting:
            try:
                value = function.draw(rng, _Known(config))
            except _Unresolved:
                later.append((path, function))
                continue
            except Exception as error:
                raise ValueError(f"The function of the parameter {_name(path)} raised {error!r}") from error
            value = _drawn(value, path, {}, rng)
            inside: Any = config
            for part in path[:-1]:
                inside = inside[part]
            inside[path[-1]] = value
            later += _functions(value, path)
        if len(later) == len(waiting) and later == waiting:
            names = ", ".join(_name(path) for path, _ in later)
            raise RecursiveDependencyError(
                f"The functions of {names} need each other's values. Let one of them need none."
            )
        waiting = later
    return config


def generate_variants(
    unresolved_spec: Mapping[str, object], constant_grid_search: bool = False, random_state: object = None
) -> Iterator[tuple[Grid, Config]]:
    """Yield a configuration for each point of the grids, with the values of the grids by path: Ray's function.

    Args:
        unresolved_spec: a space.
        constant_grid_search: draw the other values once, for all points.
        random_state: a seed, a generator of numpy of either kind, or None.

    Raises:
        ValueError: as `resolve` and `grid_points`.
    """
    rng = generator_of(None if random_state == "random" else random_state)
    seed = int(rng.integers(2**63)) if constant_grid_search else None
    for point in grid_points(unresolved_spec):
        yield point, resolve(unresolved_spec, point, rng if seed is None else np.random.default_rng(seed))


def sampled(space: Mapping[str, object], config: Config) -> dict[Path, object]:
    """The values of a configuration that were drawn from domains and grids of its space, by their paths."""
    return dict(_sampled(dict(space), config, ()))


def _sampled(space: object, value: Any, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(space, Domain) or is_grid(space):
        yield path, value
        return
    for key, inner in _children(space):
        yield from _sampled(inner, value[key], (*path, key))


def _grids(value: object, path: Path) -> Iterator[tuple[Path, list[object]]]:
    if is_grid(value):
        yield path, value["grid_search"]
        return
    for key, inner in _children(value):
        yield from _grids(inner, (*path, key))


def _functions(value: object, path: Path) -> Iterator[tuple[Path, Function]]:
    if isinstance(value, Function):
        yield path, value
    for key, inner in _children(value):
        yield from _functions(inner, (*path, key))


def _children(value: object) -> Iterator[tuple[object, object]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _drawn(value: object, path: Path, grid: Grid, rng: Rng) -> Any:
    """A copy with values for all but functions."""
    if path in grid:
        return _drawn(grid[path], path, {}, rng)
    if is_grid(value):
        raise ValueError(f"The value drawn for {_name(path)} is a grid: a grid cannot depend on chance. Use `choice`.")
    if isinstance(value, Function):
        return value
    if isinstance(value, Domain):
        return _drawn(value.draw(rng, {}), path, grid, rng)
    if isinstance(value, dict):
        return {key: _drawn(inner, (*path, key), grid, rng) for key, inner in value.items()}
    if isinstance(value, list):
        return [_drawn(inner, (*path, key), grid, rng) for key, inner in enumerate(value)]
    return value


def _name(path: Path) -> str:
    return "/".join(str(part) for part in path) or "the space"
