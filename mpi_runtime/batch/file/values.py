"""Reads the values of options: each reader returns what it has understood, or raises a ValueError that says why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mpi_runtime.extend import check_resources, size_in_bytes
from mpi_runtime.scheduler.protocol.events import RETURNS_MAX

T = TypeVar("T")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_CLOCK = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,2}):(\d{2})")
SECONDS_MAX = 1e9
"""The longest duration: thirty years."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_NAME_MAX = 255 - len(".workdir")
"""Linux: NAME_MAX, less the longest suffix of our files."""
_SIGNALS_MAX = 64
TEXT_BYTES_MAX = 128 * 1024 - 1
"""How long one argument of a program may be in Linux (MAX_ARG_STRLEN), without the byte 0 at its end."""
SKIP, CONTINUE, STOP = "skip", "continue", "stop"
ON_FAILURE = (SKIP, CONTINUE, STOP)


def seconds(value: Any) -> float:
    """Read a duration: a number of seconds, or a text such as "90", "10m", "1h30m", "500ms" or "2:00:00".

    Raises:
        ValueError: it is not a duration.
    """
    text = "" if isinstance(value, bool) else str(value).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        found = float(text)
    elif _DURATION.fullmatch(text):
        found = sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smhd])", text))
    elif clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(one or 0) for one in clock.groups())
        found = float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    else:
        raise ValueError(f"must be a duration such as 90 (seconds), '10m', '1h30m' or '2:00:00', not {value!r}")
    if found > SECONDS_MAX:
        raise ValueError(f"must be at most {SECONDS_MAX:g} seconds (thirty years), not {value!r}")
    return found


def amount(value: Any) -> float:
    """A number, 0 or more."""
    try:
        found = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    if not 0 <= found < 1e9:
        raise ValueError(f"must be a number, 0 or more, not {value!r}")
    return found


def size(value: Any) -> int:
    """A size in bytes."""
    try:
        return size_in_bytes("", value)
    except (TypeError, ValueError):
        raise ValueError(f"must be a number of bytes, or like '20GB' or '512MiB', not {value!r}") from None


def whole(value: Any) -> int:
    """A whole number."""
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,9}", str(value).strip()):
        raise ValueError(f"must be a whole number, not {value!r}")
    return int(value)


def _checked(read: Callable[[Any], T], is_right: Callable[[T], bool], what: str) -> Callable[[Any], T]:
    """A reader that refuses some of the values of another one."""

    def reader(value: Any) -> T:
        if not is_right(found := read(value)):
            raise ValueError(f"must be {what}, not {value!r}")
        return found

    return reader


positive_seconds = _checked(seconds, lambda found: found > 0, "more than 0 seconds")
gpus = _checked(amount, lambda found: found <= 1 or found == int(found), "0, a share below 1, or a whole number")
weight = _checked(amount, lambda found: 0 < found <= 1e6, "more than 0, and at most 1000000")
count = _checked(whole, lambda found: found >= 0, "0 or more")
ranks = _checked(whole, lambda found: found >= 1, "1 or more")
ranks = _checked(ranks, lambda found: found <= RETURNS_MAX, f"at most {RETURNS_MAX}")


def codes(value: Any) -> tuple[int, ...]:
    """Exit codes, and signals as negative numbers."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    found = tuple(whole(part) for part in parts)
    if wrong := [code for code in found if not -_SIGNALS_MAX <= code <= 255]:
        raise ValueError(f"must be exit codes from 0 to 255, or -N for signal N, not {wrong[0]}")
    return found


def plain_text(value: Any) -> str:
    """A text that can be written as UTF-8."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must be a text, not {value!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"must be text that can be written as UTF-8, which {value!r} cannot")
    return value


def command_text(value: Any) -> str:
    """The text of a command, which a shell can take."""
    if not plain_text(value).strip():
        raise ValueError("must not be empty")
    if (size := len(value.encode(errors="replace"))) > TEXT_BYTES_MAX:
        raise ValueError(
            f"has {size} bytes, and the kernel takes {TEXT_BYTES_MAX} for a shell: run a script that has it"
        )
    return str(value)


def file_name(value: Any) -> str:
    """A name, after which files are named."""
    if not _NAME.fullmatch(plain_text(value)):
        raise ValueError(f"must have letters, digits, and _ . + - alone (files are named after it), not {value!r}")
    if len(value) > _NAME_MAX:
        raise ValueError(f"must have at most {_NAME_MAX} letters, because files are named after it, not {len(value)}")
    return str(value)


def file_names(value: Any) -> tuple[str, ...]:
    """Names, each once."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise ValueError(f"must be a list of names, not {value!r}")
    return tuple(dict.fromkeys(file_name(part.strip() if isinstance(part, str) else part) for part in parts))


def paths(value: Any) -> tuple[str, ...]:
    """Paths."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError(f"must be a list of paths, not {value!r}")
    return tuple(plain_text(part.strip()) for part in parts)


def flag(value: Any) -> bool:
    """True or false."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError(f"must be true or false, not {value!r}")
    return words[str(value).lower()]


def shell(value: Any) -> str:
    """A shell, by name or path."""
    if not plain_text(value) or len(value.split()) != 1:
        raise ValueError(f"must be the path or the name of a shell such as 'bash', without options, not {value!r}")
    return str(value)


def _pairs(value: Any) -> Any:
    """`A=1,B=2` as a dictionary of texts; other values as they are."""
    return dict(part.partition("=")[::2] for part in value.split(",") if part) if isinstance(value, str) else value


def environment(value: Any) -> dict[str, str]:
    """Variables and their texts."""
    value = _pairs(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"must be variables and their texts, not {value!r}")
    found = {str(name): text_of(one) for name, one in value.items()}
    if wrong := [name for name in found if not name or "=" in name or "\0" in name + found[name]]:
        raise ValueError(f"must be variables and their texts; {wrong[0]!r} cannot be the name of one")
    return found


def resources(value: Any) -> dict[str, float]:
    """Custom resources and their amounts."""
    pairs = _pairs(value)
    try:
        found = {name.strip(): float(one) if isinstance(one, str) else one for name, one in pairs.items()}
        check_resources("resources", found)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"must be names and amounts, such as licence=1,scratch=20, not {value!r}: {error}") from None
    return found


def on_failure(value: Any) -> str:
    """What a failure means."""
    if value not in ON_FAILURE:
        raise ValueError(f"must be {', '.join(map(repr, ON_FAILURE))}, not {value!r}")
    return str(value)


def text_of(value: Any) -> str:
    """A value as the text of a command has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
