"""Rates that change during training, as functions of the part that remains: 1 at the beginning, 0 at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]
Rate = float | str | Schedule
"""As users state it: see `schedule`."""


@dataclass(frozen=True)
class Linear:
    """From `first` to `last`, reached after `fraction` of the training; constant from there on."""

    first: float
    last: float = 0.0
    fraction: float = 1.0

    def __call__(self, remaining: float) -> float:
        """Return the rate when this part of the training remains."""
        done = min(1.0, (1.0 - remaining) / self.fraction) if self.fraction > 0 else 1.0
        return self.first + (self.last - self.first) * done


def schedule(name: str, value: object) -> Schedule:
    """Return a number, a function of the remaining part, or "lin_0.001" (as in rl-zoo: a line to 0) as a schedule."""
    if callable(value):
        found: Schedule = value
        return found
    if isinstance(value, str):
        try:
            first = float(value.removeprefix("lin_"))
        except ValueError:
            raise ValueError(f"{name}={value!r} must be a number, a function, or a text like 'lin_0.001'") from None
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r} must be a number, a function, or a text like 'lin_0.001'")
    else:
        first = float(value)
    if not first >= 0:
        raise ValueError(f"{name} must be 0 or more, not {value!r}")
    return Linear(first, 0.0 if isinstance(value, str) else first)
