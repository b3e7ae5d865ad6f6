"""Options of remote functions and classes: names, bounds, defaults, and the spec that they become."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from mpi_runtime.digest import digest
from mpi_runtime.scheduler.events import ACTOR, METHOD, TASK, Spec
from mpi_runtime.scheduler.limits import UNIT

TASK_OPTIONS = (
    "num_cpus", "num_gpus", "memory", "resources", "num_returns", "max_retries", "retry_exceptions", "name",
    "runtime_env",
)  # fmt: skip
ACTOR_OPTIONS = (
    "num_cpus", "num_gpus", "memory", "resources", "name", "namespace", "get_if_exists", "lifetime", "runtime_env",
)  # fmt: skip
DEFAULT_MAX_RETRIES = 3


def check(options: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    """Refuse options that there are not, and values that cannot be.

    Raises:
        ValueError: there is no such option, or its value is out of bounds.
        TypeError: its value is of the wrong type.
    """
    for name, value in options.items():
        if name not in known:
            from difflib import get_close_matches  # not at the top: who makes no mistake need not wait for it

            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            raise ValueError(f"Invalid option keyword {name!r} for {what}; {hint}")
        if value is None:
            continue
        _CHECKS[name](name, value)


def _amount(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, 0 or more, not {value!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number, 0 or more, not {value!r}")


def _gpus(name: str, value: Any) -> None:
    _amount(name, value)
    if value > 1 and value != int(value):
        raise ValueError(f"{name} must be 0, a share below 1, or a whole number; got {value!r}")


def _count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if name == "max_retries" and value < -1:
        raise ValueError(f"{name} must be 0 or more, or -1 for no limit, not {value}")
    if name != "max_retries" and value < 0:
        raise ValueError(f"{name} must be 0 or more, not {value}")


def _bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")


def _lifetime(name: str, value: Any) -> None:
    if value not in ("detached", "non_detached"):
        raise ValueError(f"{name} must be 'detached' (until it is killed or the job ends) or None, not {value!r}")


def check_name(options: Mapping[str, Any]) -> None:
    """Refuse options of actors that mean nothing without a name, or an empty name.

    Raises:
        ValueError: says which.
    """
    if options.get("name") == "":
        raise ValueError("name must not be empty")
    if options.get("namespace") == "":
        raise ValueError("namespace must not be empty; leave it out for that of the job")
    if not options.get("name"):
        for option in ("get_if_exists", "namespace"):
            if options.get(option):
                raise ValueError(f"{option} is of use only with a name: .options(name=..., {option}=...)")
        if options.get("lifetime") == "detached":
            raise ValueError("a detached actor needs a name, or nobody could find it: .options(name=..., lifetime=...)")


def _resources(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of names and amounts, not {value!r}")
    for resource, units in value.items():
        if resource in ("CPU", "GPU"):
            raise ValueError(f"use num_{resource.lower()}s for {resource!r}, not {name}")
        _text(f"a key of {name}", resource)
        _amount(f"{name}[{resource!r}]", units)


def _runtime_env(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {value!r}")
    for key in value:
        if key != "env_vars":
            raise ValueError(f"{name} may have 'env_vars' only, not {key!r}")
    for variable, text in value.get("env_vars", {}).items():
        _text(f"a key of {name}['env_vars']", variable)
        _text(f"{name}['env_vars'][{variable!r}]", text)


_CHECKS = {
    "num_cpus": _amount,
    "num_gpus": _gpus,
    "memory": _amount,
    "resources": _resources,
    "num_returns": _count,
    "max_retries": _count,
    "retry_exceptions": _bool,
    "name": _text,
    "namespace": _text,
    "get_if_exists": _bool,
    "lifetime": _lifetime,
    "runtime_env": _runtime_env,
}


def _with_id(spec: Spec) -> Spec:
    spec.id = int.from_bytes(digest(msgspec.msgpack.encode(spec), 8), "big") >> 1
    return spec


def _needs(options: Mapping[str, Any], default_cpus: float) -> dict[str, Any]:
    cpus = options.get("num_cpus")
    return {
        "cpu": round((default_cpus if cpus is None else cpus) * UNIT),
        "gpu": round((options.get("num_gpus") or 0) * UNIT),
        "memory": int(options.get("memory") or 0),
        "custom": {name: round(units * UNIT) for name, units in (options.get("resources") or {}).items() if units},
        "environment": (options.get("runtime_env") or {}).get("env_vars", {}),
    }


def task_spec(name: str, function: bytes, options: Mapping[str, Any]) -> Spec:
    """The spec of a remote function."""
    retries = options.get("max_retries")
    returns = options.get("num_returns")
    return _with_id(
        Spec(
            0,
            TASK,
            options.get("name") or name,
            function,
            num_returns=1 if returns is None else returns,
            max_retries=DEFAULT_MAX_RETRIES if retries is None else retries,
            retry_exceptions=bool(options.get("retry_exceptions")),
            **_needs(options, 1),
        )
    )


def actor_spec(name: str, function: bytes, options: Mapping[str, Any]) -> Spec:
    """The spec of an actor's creation. Without `num_cpus` it takes one CPU to be placed and none to run."""
    needs = _needs(options, 1)
    held = 0 if options.get("num_cpus") is None else needs["cpu"]
    return _with_id(Spec(0, ACTOR, name, function, held_cpu=held, **needs))


def method_spec(name: str, num_returns: int) -> Spec:
    """The spec of an actor's method."""
    return _with_id(Spec(0, METHOD, name, b"", num_returns=num_returns))
