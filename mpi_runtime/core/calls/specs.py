"""Specs of functions, classes and methods, made from their options. The scheduler gets each spec once."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from mpi_runtime.core.calls.options import RANKS, with_options
from mpi_runtime.core.client.scope import Inherited
from mpi_runtime.core.host.spawn import COSTLY
from mpi_runtime.errors import TaskTimeoutError
from mpi_runtime.scheduler.protocol.amounts import TYPE, custom_of
from mpi_runtime.scheduler.protocol.events import (
    OF_DRIVER,
    STREAMING,
    ActorSpec,
    MethodSpec,
    RetrySpec,
    Spec,
    TaskSpec,
    TimeSpec,
    Where,
)
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.limits import UNIT

ASYNC_MAX_CONCURRENCY = 1000
"""The default of `max_concurrency` for actors with coroutines, as in Ray."""
TYPE_UNITS = UNIT // 1000
"""The amount of the resource `accelerator_type:X` that `accelerator_type` requests, as in Ray."""


class Method(msgspec.Struct, frozen=True, array_like=True):
    """Facts about one method of an actor class. Handles carry them."""

    spec: Spec
    parameters: tuple[tuple[str, int, bool], ...] | None = None
    """Its parameters: name, kind (as in `inspect`), whether there is a default. None: not known."""
    max_pending: int = 0
    """The largest number of unfinished calls of one handle; 0: no limit."""
    is_recorded: bool = False
    """Whether a journal records its calls: its class can save its state."""


def _finished(spec: Spec, name: str) -> Spec:
    """Set the id of a spec. `name` is for the error."""
    if spec.time is not None and spec.time.is_enforced and not spec.time.limit_us:
        raise ValueError(
            f"{name} has enforce_time_limit=True and no time_limit: set the seconds that a call may take, "
            "as with time_limit=60"
        )
    if spec.time == TimeSpec():
        spec.time = None
    spec.id = 0
    spec.id = int.from_bytes(digest(msgspec.msgpack.encode(spec), 8), "big") >> 1
    if not isinstance(spec.kind, MethodSpec):  # these run where their actor is
        spec.imports = [name for name in COSTLY if name in sys.modules or _names(spec.function, name)]
    return spec


def of_driver(inherited: Inherited, spec: Spec) -> Spec:
    """The spec of a method as processes with these inherited settings send it: with the mark of their driver."""
    entry = inherited.environment.get(OF_DRIVER)
    if entry is None:
        return spec
    marked = msgspec.structs.replace(spec, environment={OF_DRIVER: entry.partition(" ")[0]})
    return _finished(marked, spec.name)


def _names(function: bytes, module: str) -> bool:
    """Whether pickled code imports this module or a part of it, or has it as a global variable.

    All of these are strings of the pickle, each after its length. Text that only mentions the module does not count.
    """
    name = module.encode()
    if b"\x8c" + bytes((len(name),)) + name in function:
        return True
    return re.search(b"\x8c." + re.escape(name) + b"\\.", function, re.DOTALL) is not None


_OF_PLACES = (
    *("scheduling_strategy", "label_selector", "fallback_strategy"),
    *("placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks"),
)


def _placed(
    spec: Spec, name: str, options: Mapping[str, Any], inherited: Where | None, environment: dict[str, str] | None
) -> Spec:
    """The spec of a task or an actor with its options."""
    spec = with_options(spec, options)
    spec.environment = environment or {}
    model = options.get("accelerator_type")
    if model is not None:
        custom = custom_of({TYPE + model: TYPE_UNITS, **dict(spec.asks.custom)})
        spec.asks = msgspec.structs.replace(spec.asks, custom=custom)
    if inherited is not None or any(one in options for one in _OF_PLACES):
        from mpi_runtime.core.calls import strategies

        spec.where = strategies.where(name, options, spec.asks, inherited)
    return spec


def environment(inherited: Inherited, options: Mapping[str, Any]) -> dict[str, str]:
    """The environment of calls made here: that of this process, changed by the option `runtime_env`."""
    given = options.get("runtime_env")
    if not given:
        return inherited.environment
    from mpi_runtime.core.calls import runtime_env

    return runtime_env.environment(inherited, given)


def portable(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options in a form that other processes can use."""
    if not options.get("runtime_env"):
        return options
    from mpi_runtime.core.calls import runtime_env

    return {**options, "runtime_env": runtime_env.portable(options["runtime_env"])}


def _retrying(spec: Spec, options: Mapping[str, Any]) -> RetrySpec | None:
    """The errors after which calls of a spec with these options are retried. Only executors unpickle the classes."""
    wanted = options.get("retry_exceptions")
    if wanted is None:
        return spec.retry
    if not isinstance(wanted, (list, tuple)):
        return RetrySpec() if wanted else None
    if not wanted:
        return None
    import cloudpickle

    classes = tuple(wanted)
    return RetrySpec(cloudpickle.dumps(classes, protocol=5), issubclass(TaskTimeoutError, classes))


def task_spec(
    name: str,
    function: bytes,
    options: Mapping[str, Any],
    inherited: Where | None = None,
    is_generator: bool = False,
    environment: dict[str, str] | None = None,
    code: bytes = b"",
) -> Spec:
    """The spec of a remote function. Calls without a place of their own run in the `inherited` one.

    `environment` is made of its `runtime_env`. `code` is the hash of the function, if its calls are to be recorded.
    """
    spec = Spec(0, TaskSpec(), options.get("name") or name, function, num_returns=STREAMING if is_generator else 1)
    spec.code_name = name if spec.name != name else ""
    spec = _placed(spec, name, options, inherited, environment)
    spec.retry = _retrying(spec, options)
    if options.get("num_returns") == RANKS and spec.gang is not None:
        spec.num_returns, spec.gang = spec.gang.ranks, msgspec.structs.replace(spec.gang, by_rank=True)
    if isinstance(spec.kind, TaskSpec) and spec.kind.alternatives and (spec.where or spec.gang):
        raise ValueError(f"{name} has alternatives, and these exclude a place such as a placement group, and ranks")
    if code and spec.num_returns >= 0:
        spec.code = _with_environment(code, spec.num_returns, environment)
    return _finished(spec, name)


def _with_environment(code: bytes, count: int | None, environment: dict[str, str] | None) -> bytes:
    own = {name: text for name, text in (environment or {}).items() if "=" not in name}
    return digest(code + msgspec.msgpack.encode((count, own), order="deterministic"), 16)


def _concurrency(options: Mapping[str, Any], is_async: bool) -> dict[str, int]:
    """The number of calls of each group that run at a time; empty: one after the other, in the main thread."""
    groups = options.get("concurrency_groups") or {}
    most = options.get("max_concurrency") or (ASYNC_MAX_CONCURRENCY if is_async else 1)
    return {"": most, **groups} if is_async or groups or most > 1 else {}


def _out_of_order(name: str, options: Mapping[str, Any], is_async: bool) -> bool:
    """Whether calls start as soon as their arguments have arrived.

    With concurrent calls an earlier one may wait for a later one.
    """
    several = is_async or (options.get("max_concurrency") or 1) > 1
    wanted = options.get("allow_out_of_order_execution")
    if several and wanted is False:
        kind = "has coroutines" if is_async else "has max_concurrency above 1"
        raise ValueError(
            f"{name} {kind}, so its calls start as their arguments arrive: allow_out_of_order_execution=False is not "
            "possible. Omit it, or use an actor that runs one call after the other."
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
    full_name: str = "",
) -> Spec:
    """The spec of an actor's creation. Without `num_cpus` it needs a host with a CPU, and holds none.

    `environment` is made of its `runtime_env`. `code` is the hash of the class, if its states are to be saved.
    `full_name` is that of the class with what surrounds it.
    """
    kind = ActorSpec(
        concurrency=_concurrency(options, is_async),
        is_async=is_async,
        out_of_order=_out_of_order(name, options, is_async),
    )
    spec = _placed(Spec(0, kind, name, function), name, options, inherited, environment)
    if options.get("num_cpus") is not None or options.get("num_ranks"):
        spec.kind = msgspec.structs.replace(spec.kind, held_cpu=spec.asks.cpu)
    if code:
        spec.code = _with_environment(code, None, environment)
    spec.code_name = full_name if full_name != name else ""
    return _finished(spec, name)


def method(
    name: str,
    own: Mapping[str, Any],
    actor: Mapping[str, Any],
    is_generator: bool = False,
    parameters: tuple[tuple[str, int, bool], ...] | None = None,
    is_recorded: bool = False,
) -> Method:
    """The facts about a method, from its own options and its actor's.

    `name` is "Class.method". `is_recorded`: its class saves its state.
    """
    returns = STREAMING if is_generator else 1
    spec = Spec(0, MethodSpec(), name, b"", num_returns=returns, max_retries=actor.get("max_task_retries") or 0)
    pending = max(actor.get("max_pending_calls") or 0, 0)
    return changed(name, Method(spec, parameters, pending, is_recorded), own)


def changed(name: str, method: Method, options: Mapping[str, Any]) -> Method:
    """A method with some options changed."""
    if options.get("num_returns") == RANKS:
        raise ValueError(f'{name}: num_returns="ranks" is for functions. The value of a method is that of rank 0')
    spec = with_options(method.spec, options)
    spec.retry = _retrying(spec, options)
    other = options.get("name")
    if other is not None:  # its own name replaces the code
        spec.name, spec.function = other or name, name.rpartition(".")[2].encode() if other else b""
        spec.code_name = name if spec.name != name else ""
    is_recorded = method.is_recorded and not spec.keeps_state and spec.num_returns >= 0
    spec.code = digest(msgspec.msgpack.encode((name, spec.num_returns)), 16) if is_recorded else b""
    return msgspec.structs.replace(method, spec=_finished(spec, name))
