"""The value of `--allocate`: "max=8,nodes=2,time=1h,idle=5m"."""

import re
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import msgspec

from mpi_runtime.batch.file.options import positive_seconds
from mpi_runtime.slurm import Request

_ALIASES = {
    "cpus": "cpus_per_node", "gpus": "gpus_per_node", "mem": "memory", "ranks": "ranks_per_node", "module": "modules",
    "env": "environment",
}  # fmt: skip
_LISTS = ("modules", "setup", "sbatch", "qsub")
_NUMBERS = ("cpus_per_node", "ranks_per_node")
_OWN = ("max", "queued", "idle", "profile")
_NOT_HERE = ("array", "after", "name", "warn_s", "requeue", "as_ray", "environment")
"""Fields of a request that mean nothing here, or would confuse jobs of one batch."""
_KNOWN = [*_OWN, *(one.name for one in fields(Request) if one.name not in _NOT_HERE)]
_COMMA = re.compile(r",\s*(?=[A-Za-z][\w-]*=)")
"""Between two settings; a value may have commas itself: "partition=short,long"."""


class Spec(msgspec.Struct, frozen=True):
    """How many jobs there may be, and what each requests."""

    max: int = 1
    """How many jobs wait and run at a time."""
    queued: int = 0
    """How many of them wait at a time; 0: all may."""
    idle_s: float | None = None
    """Seconds after which a job with nothing to do leaves; None: the option `--idle-timeout` says."""
    profile: str | None = None
    request: dict[str, Any] = {}
    """Fields of `Request`."""


def read_spec(texts: Sequence[str]) -> Spec:
    """Read the values of `--allocate`, which may be given several times.

    Raises:
        ValueError: one of them cannot be read.
    """
    given: dict[str, list[str]] = {}
    for setting in (one for text in texts for one in _COMMA.split(text)):
        name, equals, value = setting.strip().partition("=")
        name = name.replace("-", "_")
        name = _ALIASES.get(name, name)
        if not equals or not value:
            raise ValueError(f"{setting!r} must be NAME=VALUE, as in max=8,nodes=2,time=1h,idle=5m")
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, n=1)
            raise ValueError(f"there is no {name!r}; {f'did you mean {near[0]!r}' if near else ', '.join(_KNOWN)}")
        if name in given and name not in _LISTS:
            raise ValueError(f"{name} is stated twice")
        given.setdefault(name, []).append(value)
    own = {name: given.pop(name)[0] for name in _OWN if name in given}
    most, queued = (_count(name, own[name]) if name in own else 0 for name in ("max", "queued"))
    request = {name: tuple(values) if name in _LISTS else _value(name, values[0]) for name, values in given.items()}
    idle_s = _duration("idle", own["idle"]) if "idle" in own else None
    return Spec(most or 1, queued, idle_s, own.get("profile"), request)


def _value(name: str, text: str) -> object:
    if name in _NUMBERS or (name in ("nodes", "gpus_per_node") and text.isdecimal()):
        return _count(name, text)
    if name == "time" and re.search(r"[smhd]$", text):  # other forms are those of Slurm
        limit_s = round(_duration(name, text))
        return f"{limit_s // 3600}:{limit_s // 60 % 60:02}:{limit_s % 60:02}"
    return text


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{name} must be a whole number of 1 or more, not {text!r}")
    return int(text)


def _duration(name: str, text: str) -> float:
    try:
        return positive_seconds(text)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
