"""Checks the bounds, the steps and the deviations of domains."""

from __future__ import annotations

import math
from typing import TypeVar

N = TypeVar("N", int, float)


def _check_numbers(name: str, *values: float) -> None:
    """Check that these bounds, steps or deviations of a domain are numbers."""
    value: float | None = None
    try:
        for value in values:
            math.isnan(value)  # it takes the numbers of any library, and no text
    except (TypeError, ValueError):
        raise TypeError(f"{name} needs numbers, not {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name}: a number is too large; each must fit into a float") from None


def ordered(name: str, lower: N, upper: N, has_upper: bool = True) -> tuple[N, N]:
    """Check the bounds of a domain, and return them. `has_upper`: the upper one is a value, so they may be equal."""
    _check_numbers(name, lower, upper)
    if not (lower <= upper if has_upper else lower < upper):
        relation = "not be above" if has_upper else "be below"
        raise ValueError(f"{name}({lower}, {upper}) has no values: the lower bound must {relation} the upper bound")
    if math.inf in (-lower, upper):
        raise ValueError(f"{name}({lower}, {upper}) cannot be sampled: both bounds must be finite")
    return lower, upper


def positive(name: str, lower: N, upper: N, base: float, has_upper: bool = True) -> tuple[N, N]:
    """Check the bounds of a domain of logarithms, and return them."""
    _check_numbers(name, lower, upper, base)
    if not lower > 0:
        raise ValueError(f"{name}({lower}, {upper}): {lower} has no logarithm; the lower bound must be above 0")
    if not base > 1:
        raise ValueError(f"{name}({lower}, {upper}, base={base}): the base must be above 1")
    return ordered(name, lower, upper, has_upper)


def spread(name: str, mean: float, sd: float) -> tuple[float, float]:
    """Check the mean and the standard deviation of a normal domain, and return them."""
    _check_numbers(name, mean, sd)
    if not 0 <= sd < math.inf:
        raise ValueError(f"{name}: sd={sd} is not a standard deviation; it must be 0 or more, and finite")
    return mean, sd


def step(name: str, q: N, *bounds: float) -> N:
    """Check the step of a domain, of which its bounds must be multiples, and return it."""
    _check_numbers(name, q)
    if not 0 < q < math.inf:
        raise ValueError(f"{name}: q={q} is not a step; it must be above 0, and finite")
    for bound in bounds:
        if not math.isclose(bound / q, round(bound / q), rel_tol=1e-9, abs_tol=1e-9):
            raise ValueError(f"{name}: the bound {bound} is not a multiple of q={q}; choose bounds that are")
    return q
