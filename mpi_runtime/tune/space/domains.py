"""Domains of parameters, and the functions that make them. They have no state, so one space serves all trials."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.tune.space import bounds, samplers

Rng = np.random.Generator
T = TypeVar("T")


@published("mpi_runtime.tune")
class Domain:
    """The values that a parameter may have. Functions such as `uniform` make the subclasses.

    `sample`, `uniform`, `loguniform`, `quantized` and so on are those of Ray's domains, for libraries that call them.
    Domains are not frozen, since FLAML adds attributes to them.
    """

    def draw(self, rng: Rng, config: Mapping[str, object]) -> object:
        """Draw a value. `config` has the values of the trial that are known so far."""
        raise NotImplementedError

    def sample(self, config: Mapping[str, object] | None = None, size: int = 1, random_state: object = None) -> Any:
        """Draw a value, or `size` values: numbers without a step as an array, others as a list, as in Ray.

        `random_state`: a seed, or a generator of numpy of either kind.
        """
        rng = samplers.generator_of(random_state)
        values = [self.draw(rng, config or {}) for _ in range(size)]
        if size == 1:
            return values[0]
        return np.array(values) if isinstance(self, Float | Normal | Integer) and self.q in (None, 1) else values

    def is_valid(self, value: object) -> bool:
        """Whether a value is between the bounds, or one of the values."""
        return bool(self.lower <= value <= self.upper)  # type: ignore[attr-defined]

    def cast(self, value: Any) -> Any:
        """Return a value, such as text, as one of the class that is drawn."""
        kind = {Float: float, Normal: float, Integer: int}.get(type(self))
        return value if kind is None else kind(value)

    @property
    def domain_str(self) -> str:
        """Its bounds, its values or its function as text."""
        if isinstance(self, Categorical):
            return f"{self.categories}"
        if isinstance(self, Function):
            return f"{self.func}()"
        return f"({getattr(self, 'lower', -math.inf)}, {getattr(self, 'upper', math.inf)})"

    def is_function(self) -> bool:
        """Whether a function makes the values."""
        return isinstance(self, Function)

    def is_grid(self) -> bool:
        """Whether it is a grid: never, those of `grid_search` are dictionaries."""
        return False

    def get_sampler(self) -> samplers.Sampler:
        """Describe how values are drawn, in Ray's words."""
        log, q = getattr(self, "log", False), getattr(self, "q", None)
        sampler = samplers.LogUniform() if log else samplers.Uniform()
        return sampler if q in (None, 1) else samplers.Quantized(sampler, q)

    @property
    def sampler(self) -> samplers.Sampler:
        """The same as `get_sampler()`."""
        return self.get_sampler()


@published("mpi_runtime.tune")
@dataclass(unsafe_hash=True)
class Float(Domain):
    """Real numbers from `lower` to `upper`, evenly or with even logarithms, in steps of `q` if there is one."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None

    def draw(self, rng: Rng, config: Mapping[str, object]) -> float:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.lower), math.log(self.upper)))
        else:
            value = rng.uniform(self.lower, self.upper)
        if self.q is not None:
            value = round(value / self.q) * self.q
        return min(max(float(value), self.lower), self.upper)

    def uniform(self) -> Float:
        """The same, evenly."""
        return replace(uniform(self.lower, self.upper), q=self.q)

    def loguniform(self) -> Float:
        """The same, with even logarithms."""
        return replace(loguniform(self.lower, self.upper), q=self.q)

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Normal:
        """Real numbers of a normal distribution, without bounds."""
        return randn(mean, sd)

    def quantized(self, q: float) -> Float:
        """The same, in multiples of `q`."""
        return replace(self, q=bounds.step("quantized", q, self.lower, self.upper))


@published("mpi_runtime.tune")
@dataclass(unsafe_hash=True)
class Normal(Domain):
    """Real numbers of a normal distribution, in steps of `q` if there is one."""

    mean: float
    sd: float
    q: float | None = None

    def draw(self, rng: Rng, config: Mapping[str, object]) -> float:
        value = float(rng.normal(self.mean, self.sd))
        return value if self.q is None else float(round(value / self.q) * self.q)

    def get_sampler(self) -> samplers.Sampler:
        """Describe how values are drawn, in Ray's words."""
        normal = samplers.Normal(self.mean, self.sd)
        return normal if self.q is None else samplers.Quantized(normal, self.q)

    def uniform(self) -> Float:
        """Raise ValueError: it has a distribution already."""
        raise ValueError(f"{self} has a distribution already: make another domain")

    loguniform = uniform

    def quantized(self, q: float) -> Normal:
        """The same, in multiples of `q`."""
        return replace(self, q=bounds.step("quantized", q))

    def is_valid(self, value: object) -> bool:
        return True


@published("mpi_runtime.tune")
@dataclass(unsafe_hash=True)
class Integer(Domain):
    """Integers from `lower` to `upper`, evenly or with even logarithms, in multiples of `q`.

    As in Ray, `upper` is excluded, unless `q` is above 1.
    """

    lower: int
    upper: int
    log: bool = False
    q: int = 1

    @property
    def first(self) -> int:
        """The lowest value."""
        return -(-self.lower // self.q) * self.q

    @property
    def last(self) -> int:
        """The highest value."""
        return self.upper - 1 if self.q == 1 else self.upper // self.q * self.q

    def draw(self, rng: Rng, config: Mapping[str, object]) -> int:
        low, high = self.first // self.q, self.last // self.q
        if self.log:
            number = int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))
        else:
            number = int(rng.integers(low, high, endpoint=True))
        return int(min(max(number, low), high) * self.q)

    def uniform(self) -> Integer:
        """The same, evenly."""
        return qrandint(self.lower, self.upper, self.q)

    def loguniform(self) -> Integer:
        """The same, with even logarithms."""
        return qlograndint(self.lower, self.upper, self.q)

    def quantized(self, q: int) -> Integer:
        """The same, in multiples of `q`."""
        return _with_values("quantized", replace(self, q=bounds.step("quantized", q)))


@published("mpi_runtime.tune")
@dataclass(unsafe_hash=True)
class Categorical(Domain):
    """One of some values, all equally likely."""

    categories: Sequence[object]

    def draw(self, rng: Rng, config: Mapping[str, object]) -> object:
        return self.categories[int(rng.integers(len(self.categories)))]

    def uniform(self) -> Categorical:
        """The same: all values are equally likely."""
        return self

    def is_valid(self, value: object) -> bool:
        return value in self.categories

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> object:
        return self.categories[index]


@published("mpi_runtime.tune")
@dataclass(unsafe_hash=True)
class Function(Domain):
    """The result of a function of nothing, or of the values of the trial that are known so far."""

    func: Callable[..., object]

    def __post_init__(self) -> None:
        if not callable(self.func) or not (_takes(self.func, None) or _takes(self.func)):
            raise ValueError(
                f"sample_from() needs a function of nothing, or of the values of the trial, not {self.func!r}"
            )

    def draw(self, rng: Rng, config: Mapping[str, object]) -> object:
        return self.func(config) if _takes(self.func, None) else self.func()

    def is_valid(self, value: object) -> bool:
        return True


@published("mpi_runtime.tune")
def uniform(lower: float, upper: float) -> Float:
    """Real numbers from `lower` to `upper`.

    Raises:
        ValueError: `lower` is above `upper`.
    """
    return Float(*bounds.ordered("uniform", lower, upper))


@published("mpi_runtime.tune")
def quniform(lower: float, upper: float, q: float) -> Float:
    """Multiples of `q` from `lower` to `upper`, both included.

    Raises:
        ValueError: a bound is not a multiple of `q`, or `lower` is above `upper`.
    """
    return Float(*bounds.ordered("quniform", lower, upper), q=bounds.step("quniform", q, lower, upper))


@published("mpi_runtime.tune")
def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """Real numbers from `lower` to `upper` whose logarithms are evenly spread. The base has no effect.

    Raises:
        ValueError: `lower` is not positive, or above `upper`.
    """
    return Float(*bounds.positive("loguniform", lower, upper, base), log=True)


@published("mpi_runtime.tune")
def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """Like `loguniform`, in multiples of `q`.

    Raises:
        ValueError: a bound is not a multiple of `q`, `lower` is not positive, or above `upper`.
    """
    return Float(
        *bounds.positive("qloguniform", lower, upper, base), log=True, q=bounds.step("qloguniform", q, lower, upper)
    )


@published("mpi_runtime.tune")
def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """Real numbers of a normal distribution.

    Raises:
        ValueError: `sd` is negative.
    """
    return Normal(*bounds.spread("randn", mean, sd))


@published("mpi_runtime.tune")
def qrandn(mean: float, sd: float, q: float) -> Normal:
    """Multiples of `q` near numbers of a normal distribution.

    Raises:
        ValueError: `sd` is negative, or `q` is not positive.
    """
    return Normal(*bounds.spread("qrandn", mean, sd), bounds.step("qrandn", q))


@published("mpi_runtime.tune")
def randint(lower: int, upper: int) -> Integer:
    """Integers from `lower` to `upper`, without `upper`.

    Raises:
        ValueError: `lower` is not below `upper`.
    """
    return Integer(*bounds.ordered("randint", lower, upper, has_upper=False))


@published("mpi_runtime.tune")
def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Multiples of `q` from `lower` to `upper`, with `upper` unless `q` is 1.

    Raises:
        ValueError: there is no such multiple.
    """
    return _with_values(
        "qrandint", Integer(*bounds.ordered("qrandint", lower, upper, q != 1), q=bounds.step("qrandint", q))
    )


@published("mpi_runtime.tune")
def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """Integers from `lower` to `upper`, without `upper`, whose logarithms are evenly spread.

    Raises:
        ValueError: `lower` is not positive, or not below `upper`.
    """
    return Integer(*bounds.positive("lograndint", lower, upper, base, has_upper=False), log=True)


@published("mpi_runtime.tune")
def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """Like `lograndint`, in multiples of `q`, and with `upper` unless `q` is 1.

    Raises:
        ValueError: `lower` is not positive, or there is no such multiple.
    """
    limits = bounds.positive("qlograndint", lower, upper, base, q != 1)
    return _with_values("qlograndint", Integer(*limits, log=True, q=bounds.step("qlograndint", q)))


@published("mpi_runtime.tune")
def choice(categories: Iterable[object]) -> Categorical:
    """One of these values. A value may itself be a space: it is drawn from only if it is chosen.

    Raises:
        ValueError: there are none.
    """
    values = list(categories)
    if not values:
        raise ValueError("choice([]) has nothing to choose from: pass at least one value")
    return Categorical(values)


@published("mpi_runtime.tune")
def sample_from(func: Callable[..., object]) -> Function:
    """The result of `func`, called for each trial.

    Args:
        func: takes nothing, or the values of the trial as keys (`c["a"]`) and as attributes (`c.a`, `c.config.a`).
            If it returns a domain, the value is drawn from it.

    Raises:
        ValueError: `func` takes more, or is not a function.
    """
    return Function(func)


@published("mpi_runtime.tune")
def grid_search(values: Iterable[T]) -> dict[str, list[T]]:
    """Each of these values, with each combination of the other grids of the space.

    Raises:
        ValueError: there are none.
    """
    grid = list(values)
    if not grid:
        raise ValueError("grid_search([]) has no values, so there would be no trials: pass at least one value")
    return {"grid_search": grid}


def _takes(func: Callable[..., object], *args: object) -> bool:
    try:
        inspect.signature(func).bind(*args)
    except TypeError:
        return False
    except ValueError:  # some builtins have no signature
        return not args
    return True


def _with_values(name: str, domain: Integer) -> Integer:
    if domain.first > domain.last:
        raise ValueError(
            f"{name}({domain.lower}, {domain.upper}, {domain.q}) has no values: no multiple of q is between"
        )
    return domain
