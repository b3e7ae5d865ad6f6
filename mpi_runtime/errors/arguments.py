"""Checks of arguments, for all public functions. The errors name the argument and what it must be."""

from __future__ import annotations

import math
import numbers

AMOUNT_MAX = 9e14
"""The largest amount of a resource. 10 000 times as much fits into the 64 bits in which amounts are counted."""
AMOUNT_MIN = 1e-4
"""The smallest amount above 0: a unit of the scheduler."""
WHOLE_MAX = 2**62
"""The largest count: messages have 64 bits for it."""
PROCESSES_MAX = 1 << 20
"""The largest number of processes in one request."""
FOREVER_S = 1e8
"""Longer timeouts mean no limit."""


def check_amount(name: str, value: float) -> None:
    """Raise TypeError or ValueError if this is not an amount of a resource. `True` is not one."""
    if isinstance(value, (int, float)) and value < 0:
        why = f"the quantity of resource {name} cannot be negative"
        raise ValueError(f"{name} must be a finite number, 0 or more, not {value!r}: {why}")
    check_number(name, value)
    if 0 < value < AMOUNT_MIN:
        raise ValueError(f"{name} must be 0, or {AMOUNT_MIN} or more, the smallest amount that is counted, not {value}")


def check_number(name: str, value: object) -> None:
    """Raise TypeError or ValueError if this is not a finite number, 0 or more. `True` is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, 0 or more, not {value!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number, 0 or more, not {value!r}")
    if value > AMOUNT_MAX:
        raise ValueError(f"{name} must be at most {AMOUNT_MAX:.0e}, not {value!r}")


def check_whole(name: str, value: object, least: int, most: int = WHOLE_MAX) -> None:
    """Raise TypeError or ValueError if this is not a whole number from `least` to `most`."""
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    value = int(value)
    if int(value) < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if int(value) > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


def check_text(name: str, value: object) -> None:
    """Raise TypeError or ValueError if this is not a string that can be sent: lone surrogates cannot."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be text that can be written as UTF-8, which {value!r} cannot") from None


def check_path(name: str, value: str) -> None:
    """Raise ValueError if a path consists of blanks, as `"$NOT_SET "` of a shell does. It may be empty."""
    if value and not value.strip():
        raise ValueError(f"{name} must be a path, and it is only blank: {value!r}")


def check_bool(name: str, value: object) -> None:
    """Raise TypeError if this is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def seconds(value: object, name: str = "timeout") -> float | None:
    """Return a timeout; None if it is longer than any program runs.

    Raises:
        TypeError: it is not a number, nor None.
        ValueError: it is nan.
    """
    if value is None:
        return None
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}")
    if value != value:
        raise ValueError(f"{name} must be a number of seconds or None, not nan")
    return float(value) if value < FOREVER_S else None
