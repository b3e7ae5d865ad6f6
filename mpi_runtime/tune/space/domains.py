"""Domains of parameters, and the functions that make them.

A domain draws its value from the generator that it is given. It has no state, so one space serves all trials.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator


class Domain:
    """The values that a parameter may have. Functions such as `uniform` make the subclasses."""

    def sample(self, rng: Rng, config: Mapping[str, Any]) -> Any:
        """Draw a value. `config` has the values of the trial that are known so far."""
        raise NotImplementedError


@dataclass(frozen=True)
class Float(Domain):
    """Real numbers from `lower` to `upper`, evenly or with even logarithms, in steps of `q` if there is one."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None

    def sample(self, rng: Rng, config: Mapping[str, Any]) -> float:
        """Draw a value."""
        if self.log:
            value = math.exp(rng.uniform(math.log(self.lower), math.log(self.upper)))
        else:
            value = rng.uniform(self.lower, self.upper)
        if self.q is not None:
            value = round(value / self.q) * self.q
        return min(max(float(value), self.lower), self.upper)


@dataclass(frozen=True)
class Normal(Domain):
    """Real numbers of a normal distribution, in steps of `q` if there is one."""

    mean: float
    sd: float
    q: float | None = None

    def sample(self, rng: Rng, config: Mapping[str, Any]) -> float:
        """Draw a value."""
        value = float(rng.normal(self.mean, self.sd))
        return value if self.q is None else round(value / self.q) * self.q


@dataclass(frozen=True)
class Integer(Domain):
    """Integers from `lower` to `upper`, both included, evenly or with even logarithms, in steps of `q`."""

    lower: int
    upper: int
    log: bool = False
    q: int = 1

    def sample(self, rng: Rng, config: Mapping[str, Any]) -> int:
        """Draw a value."""
        if self.log:
            value = int(math.exp(rng.uniform(math.log(self.lower), math.log(self.upper + (self.q == 1)))))
        else:
            value = int(rng.integers(self.lower, self.upper, endpoint=True))
        return min(max(round(value / self.q) * self.q, self.lower), self.upper)


@dataclass(frozen=True)
class Categorical(Domain):
    """One of some values, all equally likely."""

    categories: Sequence[Any]

    def sample(self, rng: Rng, config: Mapping[str, Any]) -> Any:
        """Draw a value."""
        return self.categories[int(rng.integers(len(self.categories)))]


@dataclass(frozen=True)
class Function(Domain):
    """The result of a function of nothing, or of the values of the trial that are known so far."""

    func: Callable[..., Any]

    def sample(self, rng: Rng, config: Mapping[str, Any]) -> Any:
        """Call the function."""
        return self.func(config) if _takes_one(self.func) else self.func()


def uniform(lower: float, upper: float) -> Float:
    """Real numbers from `lower` to `upper`.

    Raises:
        ValueError: `lower` is not below `upper`.
    """
    return Float(*_ordered("uniform", lower, upper))


def quniform(lower: float, upper: float, q: float) -> Float:
    """Multiples of `q` from `lower` to `upper`, both included.

    Raises:
        ValueError: a bound is no multiple of `q`, or `lower` is not below `upper`.
    """
    return Float(*_ordered("quniform", lower, upper), q=_step("quniform", q, lower, upper))


def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """Real numbers from `lower` to `upper` whose logarithms are evenly spread. The base has no effect.

    Raises:
        ValueError: `lower` is not positive, or not below `upper`.
    """
    return Float(*_positive("loguniform", lower, upper, base), log=True)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """Like `loguniform`, in multiples of `q`.

    Raises:
        ValueError: a bound is no multiple of `q`, `lower` is not positive, or not below `upper`.
    """
    return Float(*_positive("qloguniform", lower, upper, base), log=True, q=_step("qloguniform", q, lower, upper))


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """Real numbers of a normal distribution.

    Raises:
        ValueError: `sd` is negative.
    """
    return Normal(mean, _spread("randn", sd))


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """Multiples of `q` near numbers of a normal distribution.

    Raises:
        ValueError: `sd` is negative, or `q` is not positive.
    """
    return Normal(mean, _spread("qrandn", sd), _step("qrandn", q))


def randint(lower: int, upper: int) -> Integer:
    """Integers from `lower` to `upper`, without `upper`.

    Raises:
        ValueError: `lower` is not below `upper`.
    """
    lower, upper = _ordered("randint", lower, upper)
    return Integer(lower, upper - 1)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Multiples of `q` from `lower` to `upper`, both included.

    Raises:
        ValueError: a bound is no multiple of `q`, or `lower` is not below `upper`.
    """
    return Integer(*_ordered("qrandint", lower, upper), q=_step("qrandint", q, lower, upper))


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """Integers from `lower` to `upper`, without `upper`, whose logarithms are evenly spread.

    Raises:
        ValueError: `lower` is not positive, or not below `upper`.
    """
    lower, upper = _positive("lograndint", lower, upper, base)
    return Integer(lower, upper - 1, log=True)


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """Like `lograndint`, in multiples of `q`, and `upper` is included.

    Raises:
        ValueError: a bound is no multiple of `q`, `lower` is not positive, or not below `upper`.
    """
    return Integer(*_positive("qlograndint", lower, upper, base), log=True, q=_step("qlograndint", q, lower, upper))


def choice(categories: Iterable[Any]) -> Categorical:
    """One of these values. A value may itself be a space: it is drawn from only if it is chosen.

    Raises:
        ValueError: there are none.
    """
    values = list(categories)
    if not values:
        raise ValueError("choice([]) has nothing to choose from: pass at least one value")
    return Categorical(values)


def sample_from(func: Callable[..., Any]) -> Function:
    """The result of `func`, called for each trial.

    Args:
        func: takes nothing, or the values of the trial as keys (`c["a"]`) and as attributes (`c.a`, `c.config.a`).
            If it returns a domain, the value is drawn from it.
    """
    return Function(func)


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Each of these values, with each combination of the other grids of the space.

    Raises:
        ValueError: there are none.
    """
    grid = list(values)
    if not grid:
        raise ValueError("grid_search([]) has no values, so there would be no trials: pass at least one value")
    return {"grid_search": grid}


def _takes_one(func: Callable[..., Any]) -> bool:
    try:
        inspect.signature(func).bind(None)
    except TypeError:
        return False
    except ValueError:  # some builtins have no signature
        return False
    return True


def _ordered(name: str, lower: Any, upper: Any) -> tuple[Any, Any]:
    if not lower < upper:
        raise ValueError(f"{name}({lower}, {upper}) has no values: the lower bound must be below the upper bound")
    return lower, upper


def _positive(name: str, lower: Any, upper: Any, base: float) -> tuple[Any, Any]:
    if not lower > 0:
        raise ValueError(f"{name}({lower}, {upper}): {lower} has no logarithm; the lower bound must be above 0")
    if not base > 1:
        raise ValueError(f"{name}({lower}, {upper}, base={base}): the base must be above 1")
    return _ordered(name, lower, upper)


def _spread(name: str, sd: float) -> float:
    if not sd >= 0:
        raise ValueError(f"{name}: sd={sd} is not a standard deviation; it must be 0 or more")
    return sd


def _step(name: str, q: Any, *bounds: float) -> Any:
    if not q > 0:
        raise ValueError(f"{name}: q={q} is not a step; it must be above 0")
    for bound in bounds:
        if not math.isclose(bound / q, round(bound / q), rel_tol=1e-9, abs_tol=1e-9):
            raise ValueError(f"{name}: the bound {bound} is not a multiple of q={q}; choose bounds that are")
    return q
