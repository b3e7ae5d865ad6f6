"""Specs of functions, classes and methods, made from their options. The scheduler gets each spec once."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from mpi_runtime.calls.options import RETURNS, size_in_bytes
from mpi_runtime.client.inherited import Inherited
from mpi_runtime.errors import TaskTimeoutError
from mpi_runtime.host.spawn import COSTLY
from mpi_runtime.scheduler.events import ACTOR, METHOD, STREAMING, TASK, AccountSpec, Spec, Where
from mpi_runtime.scheduler.ids import digest
from mpi_runtime.scheduler.limits import UNIT

DEFAULT_MAX_RETRIES = 3
ASYNC_MAX_CONCURRENCY = 1000
"""The default of `max_concurrency` for actors with coroutines, as in Ray."""
TYPE_UNITS = UNIT // 1000
"""The amount of the resource `accelerator_type:X` that `accelerator_type` requests: as little as in Ray."""


class Method(msgspec.Struct, frozen=True, array_like=True):
    """Facts about one method of an actor class. Handles carry them."""

    num_returns: int = 1
    max_retries: int = 0
    retry_exceptions: bool = False
    retry_only: bytes = b""
    group: str = ""
    backpressure: int = 0
    time_limit_us: int = 0
    enforces_limit: bool = False
    retries_timeouts: bool = False
    name: str = ""
    """The name of its calls, if it is not its own name."""
    parameters: tuple[tuple[str, int, bool], ...] | None = None
    """Its parameters: name, kind (as in `inspect`), whether there is a default. None: not known."""
    max_pending: int = 0
    """The largest number of unfinished calls of one handle; 0: no limit."""
    is_recorded: bool = False
    """With a journal: its calls are recorded. Its class says how its state is saved."""
    keeps_state: bool = False
    """It does not change the state that is saved."""


def _with_id(spec: Spec) -> Spec:
    spec.id = int.from_bytes(digest(msgspec.msgpack.encode(spec), 8), "big") >> 1
    spec.imports = [name for name in COSTLY if name in sys.modules or _names(spec.function, name)]
    return spec


def _names(function: bytes, module: str) -> bool:
    """Whether pickled code imports this module or a part of it, or has it as a global variable.

    All of these are strings of the pickle, each after its length. Text that only mentions the module does not count.
    """
    name = module.encode()
    if b"\x8c" + bytes((len(name),)) + name in function:
        return True
    return re.search(b"\x8c." + re.escape(name) + b"\\.", function, re.DOTALL) is not None


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
        from mpi_runtime.scheduler.resources import TYPE  # not at the top: it loads the ledger of GPUs

        needs["custom"].setdefault(TYPE + kind, TYPE_UNITS)
    says = any(options.get(one) for one in ("scheduling_strategy", "label_selector", "fallback_strategy"))
    where = _where(name, options, needs, inherited) if says or inherited is not None else None
    return {**needs, "environment": environment or {}, "where": where}


def environment(inherited: Inherited, options: Mapping[str, Any]) -> dict[str, str]:
    """The environment of calls made here: that of this process, changed by their own `runtime_env`.

    Raises:
        ValueError: a directory does not exist, cannot be read, or is too large.
    """
    given = options.get("runtime_env")
    if not given:
        return inherited.environment
    from mpi_runtime.calls import runtime_env

    return runtime_env.environment(inherited, given)


def portable(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options in a form that other processes can use."""
    if not options.get("runtime_env"):
        return options
    from mpi_runtime.calls import runtime_env

    return {**options, "runtime_env": runtime_env.portable(options["runtime_env"])}


def _retrying(options: Mapping[str, Any]) -> dict[str, Any]:
    """The exceptions for which a call may be retried. Only executors know classes."""
    wanted = options.get("retry_exceptions")
    if not isinstance(wanted, (list, tuple)) or not wanted:
        return {"retry_exceptions": wanted is True, "retries_timeouts": False}
    import cloudpickle

    return {
        "retry_exceptions": True,
        "retry_only": cloudpickle.dumps(tuple(wanted), protocol=5),
        "retries_timeouts": issubclass(TaskTimeoutError, tuple(wanted)),
    }


def _count_of_returns(value: int | str | None, is_generator: bool) -> int:
    """The number of return values for `num_returns`. The default of generators is to stream."""
    if value is None:
        return STREAMING if is_generator else 1
    return RETURNS[value] if isinstance(value, str) else value


def _where(name: str, options: Mapping[str, Any], needs: dict[str, Any], inherited: Where | None) -> Where | None:
    from mpi_runtime.calls import strategies
    from mpi_runtime.scheduler.resources import Request

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
    code: bytes = b"",
) -> Spec:
    """The spec of a remote function. Calls without a place of their own run where `inherited` says.

    `environment` is made of its `runtime_env`. `code` is the hash of the function, if its calls are to be recorded.

    Raises:
        ValueError: no bundle of the placement group can hold a call.
    """
    retries = options.get("max_retries")
    count = _count_of_returns(options.get("num_returns"), is_generator)
    if code and count >= 0:
        code = _with_environment(code, count, environment)
    return _with_id(
        Spec(
            0,
            TASK,
            options.get("name") or name,
            function,
            num_returns=count,
            code=code if count >= 0 else b"",
            backpressure=max(options.get("_generator_backpressure_num_objects") or 0, 0),
            max_calls=options.get("max_calls") or 0,
            priority=options.get("priority") or 0,
            time_limit_us=_time_limit_us(options),
            enforces_limit=_enforces_limit(name, options),
            account=AccountSpec(*options["_account"]) if options.get("_account") else None,
            path_us=options.get("_path_us") or 0,
            gather_us=options.get("_gather_us") or 0,
            max_retries=DEFAULT_MAX_RETRIES if retries is None else retries,
            **_retrying(options),
            **_needs(name, options, inherited, environment),
        )
    )


def _with_environment(code: bytes, count: int | None, environment: dict[str, str] | None) -> bytes:
    own = {name: text for name, text in (environment or {}).items() if "=" not in name}
    return digest(code + msgspec.msgpack.encode((count, own), order="deterministic"), 16)


def _time_limit_us(options: Mapping[str, Any]) -> int:
    return min(round((options.get("time_limit") or 0) * 1e6), 2**62)


def _enforces_limit(name: str, options: Mapping[str, Any], has_limit: bool = False) -> bool:
    if options.get("enforce_time_limit") and not has_limit and options.get("time_limit") is None:
        raise ValueError(
            f"{name} has enforce_time_limit=True and no time_limit: say how many seconds a call may take, "
            "as with time_limit=60"
        )
    return bool(options.get("enforce_time_limit"))


def _concurrency(options: Mapping[str, Any], is_async: bool) -> dict[str, int]:
    """How many calls of each group run at a time; empty: one after the other, in the main thread."""
    groups = options.get("concurrency_groups") or {}
    most = options.get("max_concurrency") or (ASYNC_MAX_CONCURRENCY if is_async else 1)
    return {"": most, **groups} if is_async or groups or most > 1 else {}


def _out_of_order(name: str, options: Mapping[str, Any], is_async: bool) -> bool:
    """Whether calls start as soon as their arguments are there.

    With concurrent calls a later one may be needed by an earlier one.
    """
    several = is_async or (options.get("max_concurrency") or 1) > 1
    wanted = options.get("allow_out_of_order_execution")
    if several and wanted is False:
        kind = "has coroutines" if is_async else "has max_concurrency above 1"
        raise ValueError(
            f"{name} {kind}, so its calls start as their arguments come: allow_out_of_order_execution=False cannot be. "
            "Leave it out, or use an actor that runs one call after the other."
        )
    return several if wanted is None else wanted


def actor_spec(
    name: str,
    function: bytes,
    options: Mapping[str, Any],
    inherited: Where | None = None,
    is_async: bool = False,
    environment: dict[str, str] | None = None,
    code: bytes = b"",
) -> Spec:
    """The spec of an actor's creation. Without `num_cpus` it needs one CPU to be placed and none to run.

    `environment` is made of its `runtime_env`. `code` is the hash of the class, if its states are to be saved.

    Raises:
        ValueError: no bundle of the placement group can hold the actor; or its calls are to keep an order although they
            are concurrent.
    """
    if code:
        code = _with_environment(code, None, environment)
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
            out_of_order=_out_of_order(name, options, is_async),
            code=code,
            save_calls=options.get("checkpoint_calls") or 0,
            save_us=min(round((options.get("checkpoint_s") or 0) * 1e6), 2**62),
            **needs,
        )
    )


def method(
    own: Mapping[str, Any],
    actor: Mapping[str, Any],
    is_generator: bool = False,
    parameters: tuple[tuple[str, int, bool], ...] | None = None,
    is_recorded: bool = False,
) -> Method:
    """The facts about a method, from its own options and its actor's. `is_recorded`: its class saves its state."""
    returns = _count_of_returns(None, is_generator)
    pending = max(actor.get("max_pending_calls") or 0, 0)
    retries = actor.get("max_task_retries") or 0
    made = Method(returns, retries, parameters=parameters, max_pending=pending, is_recorded=is_recorded)
    return changed(made, own)


def changed(method: Method, options: Mapping[str, Any]) -> Method:
    """A method with some options changed."""
    values: dict[str, Any] = {}
    if options.get("num_returns") is not None:
        values["num_returns"] = _count_of_returns(options["num_returns"], False)
    if options.get("_generator_backpressure_num_objects") is not None:
        values["backpressure"] = max(options["_generator_backpressure_num_objects"], 0)
    if options.get("max_task_retries") is not None:
        values["max_retries"] = options["max_task_retries"]
    if options.get("retry_exceptions") is not None:
        values |= {"retry_only": b"", **_retrying(options)}
    if options.get("concurrency_group") is not None:
        values["group"] = options["concurrency_group"]
    if options.get("time_limit") is not None:
        values["time_limit_us"] = _time_limit_us(options)
    if options.get("enforce_time_limit") is not None:
        values["enforces_limit"] = _enforces_limit("the method", options, has_limit=method.time_limit_us > 0)
    if options.get("name") is not None:
        values["name"] = options["name"]
    if options.get("journal") is not None:
        values["keeps_state"] = not options["journal"]
    return msgspec.structs.replace(method, **values)


def method_spec(name: str, method: Method) -> Spec:
    """The spec of an actor's method. If its calls have another name, its own name replaces the code."""
    code = b""
    if method.is_recorded and not method.keeps_state and method.num_returns >= 0:
        code = digest(msgspec.msgpack.encode((name, method.num_returns)), 16)
    return _with_id(
        Spec(
            0,
            METHOD,
            method.name or name,
            name.rpartition(".")[2].encode() if method.name else b"",
            num_returns=method.num_returns,
            max_retries=method.max_retries,
            retry_exceptions=method.retry_exceptions,
            retry_only=method.retry_only,
            group=method.group,
            backpressure=method.backpressure,
            time_limit_us=method.time_limit_us,
            enforces_limit=method.enforces_limit,
            retries_timeouts=method.retries_timeouts,
            code=code,
            keeps_state=method.keeps_state,
        )
    )
