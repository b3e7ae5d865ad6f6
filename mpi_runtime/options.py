"""Options of remote functions and classes: names, bounds, defaults, and the spec that they become."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mpi_runtime.processes.client import Client
from mpi_runtime.scheduler.events import ACTOR, DYNAMIC, METHOD, STREAMING, TASK, Spec, Where
from mpi_runtime.scheduler.ids import digest
from mpi_runtime.scheduler.limits import UNIT
from mpi_runtime.scheduler.resources import TYPE, Request

TASK_OPTIONS = (
    "num_cpus", "num_gpus", "accelerator_type", "gpu_memory", "memory", "resources",
    "num_returns", "max_retries", "retry_exceptions", "name",
    "runtime_env", "scheduling_strategy", "label_selector", "max_calls", "priority", "time_limit",
    "_generator_backpressure_num_objects",
)  # fmt: skip
ACTOR_OPTIONS = (
    "num_cpus", "num_gpus", "accelerator_type", "gpu_memory", "memory", "resources",
    "name", "namespace", "get_if_exists", "lifetime", "runtime_env",
    "max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups", "allow_out_of_order_execution",
    "scheduling_strategy", "label_selector", "priority",
)  # fmt: skip
METHOD_OPTIONS = (
    "num_returns", "max_task_retries", "retry_exceptions", "concurrency_group", "time_limit",
    "_generator_backpressure_num_objects",
)  # fmt: skip
DEFAULT_MAX_RETRIES = 3
ASYNC_MAX_CONCURRENCY = 1000
"""How many calls of an actor with coroutines are under way at most, unless it says otherwise: as in Ray."""
TYPE_UNITS = UNIT // 1000
"""What `accelerator_type` takes of the resource that nodes have of that name: as little as in Ray."""
_RETURNS = {"streaming": STREAMING, "dynamic": DYNAMIC}
_MAY_BE_UNLIMITED = ("max_retries", "max_restarts", "max_task_retries")


class Method(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one method of an actor class. Handles carry it."""

    num_returns: int = 1
    max_retries: int = 0
    retry_exceptions: bool = False
    retry_only: bytes = b""
    group: str = ""
    backpressure: int = 0
    time_limit_us: int = 0


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


def _seconds(name: str, value: Any) -> None:
    _amount(name, value)
    if value * 1e6 < 1:
        raise ValueError(f"{name} must be more than 0 seconds (a microsecond at least), not {value!r}")


def _gpus(name: str, value: Any) -> None:
    _amount(name, value)
    if value > 1 and value != int(value):
        raise ValueError(f"{name} must be 0, a share below 1, or a whole number; got {value!r}")


def _bytes(name: str, value: Any) -> None:
    size_in_bytes(name, value)


def size_in_bytes(name: str, value: Any) -> int:
    """A number of bytes, or a text like "20GB" or "512 MiB".

    Raises:
        TypeError, ValueError: it is neither; says which and why.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]i?)?B?", value.strip())
        if match is None:
            raise ValueError(f"{name} must be a number of bytes, or like '20GB' or '512MiB', not {value!r}")
        base = 1024 if (match[2] or "").endswith("i") else 1000
        return round(float(match[1]) * math.pow(base, " kMGT".index((match[2] or " ")[0])))
    _amount(name, value)
    return int(float(value))


def _count(name: str, value: Any) -> None:
    _whole(name, value)
    if name in _MAY_BE_UNLIMITED and value < -1:
        raise ValueError(f"{name} must be 0 or more, or -1 for no limit, not {value}")
    if name == "max_concurrency" and value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
    if name not in _MAY_BE_UNLIMITED and value < 0:
        raise ValueError(f"{name} must be 0 or more, not {value}")


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")


def _bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def _returns(name: str, value: Any) -> None:
    if isinstance(value, str):
        if value not in _RETURNS:
            raise ValueError(f"{name} must be a whole number, 'streaming' or 'dynamic', not {value!r}")
    else:
        _count(name, value)


def _groups(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of names and numbers of calls, not {value!r}")
    for group, limit in value.items():
        _text(f"a key of {name}", group)
        if not group:
            raise ValueError(f"a key of {name} must not be empty: max_concurrency is for calls without a group")
        _count(f"{name}[{group!r}]", limit)
        if limit < 1:
            raise ValueError(f"{name}[{group!r}] must be 1 or more, not {limit}")


def _exceptions(name: str, value: Any) -> None:
    if isinstance(value, bool):
        return
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be True, False or a list of exception classes, not {value!r}")
    for kind in value:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{name} must be True, False or a list of exception classes; {kind!r} is none")


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


def _type(name: str, value: Any) -> None:
    _text(name, value)
    if not value:
        raise ValueError(
            f"{name} must not be empty: a type as in cluster_resources(), 'H100' for accelerator_type:H100"
        )


def _resources(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of names and amounts, not {value!r}")
    for resource, units in value.items():
        if resource in ("CPU", "GPU"):
            raise ValueError(f"use num_{resource.lower()}s for {resource!r}, not {name}")
        _text(f"a key of {name}", resource)
        _amount(f"{name}[{resource!r}]", units)


def _runtime_env(name: str, value: Any) -> None:
    from mpi_runtime import runtime_env  # not at the top, as with places

    runtime_env.check(name, value)


def _strategy(name: str, value: Any) -> None:
    from mpi_runtime import strategies  # not at the top: who says nothing about places need not wait for it

    strategies.check_strategy(name, value)


def _selector(name: str, value: Any) -> None:
    from mpi_runtime import strategies

    strategies.check_selector(name, value)


_CHECKS = {
    "num_cpus": _amount,
    "num_gpus": _gpus,
    "accelerator_type": _type,
    "gpu_memory": _bytes,
    "memory": _amount,
    "resources": _resources,
    "num_returns": _returns,
    "_generator_backpressure_num_objects": _count,
    "max_retries": _count,
    "max_calls": _count,
    "priority": _whole,
    "time_limit": _seconds,
    "max_restarts": _count,
    "max_task_retries": _count,
    "max_concurrency": _count,
    "concurrency_groups": _groups,
    "concurrency_group": _text,
    "allow_out_of_order_execution": _bool,
    "retry_exceptions": _exceptions,
    "name": _text,
    "namespace": _text,
    "get_if_exists": _bool,
    "lifetime": _lifetime,
    "runtime_env": _runtime_env,
    "scheduling_strategy": _strategy,
    "label_selector": _selector,
}


def _with_id(spec: Spec) -> Spec:
    spec.id = int.from_bytes(digest(msgspec.msgpack.encode(spec), 8), "big") >> 1
    return spec


def _needs(
    name: str, options: Mapping[str, Any], inherited: Where | None, environment: dict[str, str] | None
) -> dict[str, Any]:
    cpus = options.get("num_cpus")
    needs: dict[str, Any] = {
        "cpu": round((1 if cpus is None else cpus) * UNIT),
        "gpu": round((options.get("num_gpus") or 0) * UNIT),
        "memory": int(options.get("memory") or 0),
        "custom": {name: round(units * UNIT) for name, units in (options.get("resources") or {}).items() if units},
        "gpu_memory": size_in_bytes("gpu_memory", options.get("gpu_memory") or 0),
    }
    kind = options.get("accelerator_type")
    if kind is not None:
        needs["custom"].setdefault(TYPE + kind, TYPE_UNITS)
    says = options.get("scheduling_strategy") is not None or options.get("label_selector")
    where = _where(name, options, needs, inherited) if says or inherited is not None else None
    return {**needs, "environment": environment or {}, "where": where}


def environment(client: Client, options: Mapping[str, Any]) -> dict[str, str]:
    """What calls made here find in their environment: what this process has, changed by their own `runtime_env`.

    Raises:
        ValueError: it names a directory that is not there, cannot be read, or is too large.
    """
    given = options.get("runtime_env")
    if not given:
        return client.environment
    from mpi_runtime import runtime_env

    return runtime_env.environment(client, given)


def portable(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options as another process can use them."""
    if not options.get("runtime_env"):
        return options
    from mpi_runtime import runtime_env

    return {**options, "runtime_env": runtime_env.portable(options["runtime_env"])}


def _retrying(options: Mapping[str, Any]) -> dict[str, Any]:
    """For which exceptions a call may be run again. Only executors know classes."""
    wanted = options.get("retry_exceptions")
    if not isinstance(wanted, (list, tuple)) or not wanted:
        return {"retry_exceptions": wanted is True}
    import cloudpickle

    return {"retry_exceptions": True, "retry_only": cloudpickle.dumps(tuple(wanted), protocol=5)}


def _count_of_returns(value: int | str | None, is_generator: bool) -> int:
    """What `num_returns` comes to. Generators stream, unless told otherwise."""
    if value is None:
        return STREAMING if is_generator else 1
    return _RETURNS[value] if isinstance(value, str) else value


def _where(name: str, options: Mapping[str, Any], needs: dict[str, Any], inherited: Where | None) -> Where | None:
    from mpi_runtime import strategies

    asked = {name: value for name, value in needs.items() if name != "custom"}
    request = Request(**asked, custom=tuple(sorted(needs["custom"].items())))
    return strategies.where(name, options, request, inherited)


def task_spec(
    name: str,
    function: bytes,
    options: Mapping[str, Any],
    inherited: Where | None = None,
    is_generator: bool = False,
    environment: dict[str, str] | None = None,
) -> Spec:
    """The spec of a remote function. Calls that say nothing about their place run where `inherited` says.

    `environment` is what its `runtime_env` comes to.

    Raises:
        ValueError: no bundle of the placement group in which it is to run can hold a call.
    """
    retries = options.get("max_retries")
    return _with_id(
        Spec(
            0,
            TASK,
            options.get("name") or name,
            function,
            num_returns=_count_of_returns(options.get("num_returns"), is_generator),
            backpressure=options.get("_generator_backpressure_num_objects") or 0,
            max_calls=options.get("max_calls") or 0,
            priority=options.get("priority") or 0,
            time_limit_us=_time_limit_us(options),
            max_retries=DEFAULT_MAX_RETRIES if retries is None else retries,
            **_retrying(options),
            **_needs(name, options, inherited, environment),
        )
    )


def _time_limit_us(options: Mapping[str, Any]) -> int:
    return min(round((options.get("time_limit") or 0) * 1e6), 2**62)


def _concurrency(options: Mapping[str, Any], is_async: bool) -> dict[str, int]:
    """How many calls of each group run at a time; empty: one after the other, in the main thread."""
    groups = options.get("concurrency_groups") or {}
    most = options.get("max_concurrency") or (ASYNC_MAX_CONCURRENCY if is_async else 1)
    return {"": most, **groups} if is_async or groups or most > 1 else {}


def actor_spec(
    name: str,
    function: bytes,
    options: Mapping[str, Any],
    inherited: Where | None = None,
    is_async: bool = False,
    environment: dict[str, str] | None = None,
) -> Spec:
    """The spec of an actor's creation. Without `num_cpus` it takes one CPU to be placed and none to run.

    `environment` is what its `runtime_env` comes to.

    Raises:
        ValueError: no bundle of the placement group in which it is to run can hold the actor.
    """
    needs = _needs(name, options, inherited, environment)
    held = 0 if options.get("num_cpus") is None else needs["cpu"]
    return _with_id(
        Spec(
            0,
            ACTOR,
            name,
            function,
            held_cpu=held,
            max_restarts=options.get("max_restarts") or 0,
            concurrency=_concurrency(options, is_async),
            is_async=is_async,
            priority=options.get("priority") or 0,
            out_of_order=bool(options.get("allow_out_of_order_execution")),
            **needs,
        )
    )


def method(own: Mapping[str, Any], actor: Mapping[str, Any], is_generator: bool = False) -> Method:
    """What a method's own options and its actor's come to."""
    returns = _count_of_returns(None, is_generator)
    return changed(Method(returns, actor.get("max_task_retries") or 0), own)


def changed(method: Method, options: Mapping[str, Any]) -> Method:
    """A method with some options changed."""
    values: dict[str, Any] = {}
    if options.get("num_returns") is not None:
        values["num_returns"] = _count_of_returns(options["num_returns"], False)
    if options.get("_generator_backpressure_num_objects") is not None:
        values["backpressure"] = options["_generator_backpressure_num_objects"]
    if options.get("max_task_retries") is not None:
        values["max_retries"] = options["max_task_retries"]
    if options.get("retry_exceptions") is not None:
        values |= {"retry_only": b"", **_retrying(options)}
    if options.get("concurrency_group") is not None:
        values["group"] = options["concurrency_group"]
    if options.get("time_limit") is not None:
        values["time_limit_us"] = _time_limit_us(options)
    return msgspec.structs.replace(method, **values)


def method_spec(name: str, method: Method) -> Spec:
    """The spec of an actor's method."""
    return _with_id(
        Spec(
            0,
            METHOD,
            name,
            b"",
            num_returns=method.num_returns,
            max_retries=method.max_retries,
            retry_exceptions=method.retry_exceptions,
            retry_only=method.retry_only,
            group=method.group,
            backpressure=method.backpressure,
            time_limit_us=method.time_limit_us,
        )
    )
