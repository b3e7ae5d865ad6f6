"""Options of remote functions, classes and methods: one table of their names, checks and meanings."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from mpi_runtime.core.calls.labels import check_selector
from mpi_runtime.errors.arguments import check_amount, check_bool, check_number, check_text
from mpi_runtime.scheduler.protocol.amounts import custom_of
from mpi_runtime.scheduler.protocol.events import (
    DYNAMIC,
    RETURNS_MAX,
    STREAMING,
    AccountSpec,
    ActorSpec,
    GangSpec,
    MethodSpec,
    Spec,
    TaskSpec,
    TimeSpec,
)
from mpi_runtime.scheduler.protocol.limits import UNIT

DEFAULT_MAX_RETRIES = 3

RANKS = "ranks"
"""The value of `num_returns` for one reference of each rank."""
RETURNS = {"streaming": STREAMING, "dynamic": DYNAMIC}
"""Words that are values of `num_returns`."""
Options = Mapping[str, Any]
"""Options by name, as a user states them: their values have no common type."""
WHOLE_MAX = 2**62
COUNT_MAX = 2**31 - 1
_INSTEAD = {
    "tensor_transport": "leave it out: tensors go through the object store, or by util.collective",
    "enable_tensor_transport": "leave it out: tensors go through the object store, or by util.collective",
    "object_store_memory": "it belongs to the whole node: use init(object_store_memory=...)",
}
"""Options that only Ray has, and what to do instead."""


def check(options: Mapping[str, object], known: tuple[str, ...], what: str) -> None:
    """Check names and values of options."""
    for name, value in options.items():
        if name not in known:
            from difflib import get_close_matches  # not at the top: it is needed only after a mistake

            near = get_close_matches(name, known, n=1)
            public = ", ".join(name for name in known if not name.startswith("_"))
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {public}"
            hint = _INSTEAD.get(name, hint)
            raise ValueError(f"Invalid option keyword {name!r} for {what}; {hint}")
        if value is None:
            continue
        _ALL[name].check(name, value)
    if options.get("placement_group") not in (None, "default") and options.get("scheduling_strategy") is not None:
        raise ValueError("scheduling_strategy and the old option placement_group exclude each other: leave one out")


def check_gang(options: Mapping[str, object], is_generator: bool) -> None:
    """Refuse options of a function that contradict each other with or without `num_ranks`."""
    ranks, returns = options.get("num_ranks"), options.get("num_returns")
    if ranks is None:
        without = [name for name in ("ranks_per_node", "mpi_grace", "reuse", "pin") if options.get(name) is not None]
        if without or returns == RANKS:
            name = without[0] if without else 'num_returns="ranks"'
            raise ValueError(f"{name} is for calls on a gang: add num_ranks")
        return
    if is_generator:
        raise ValueError("a function with num_ranks must not yield: its members end together. Return a list instead.")
    if returns not in (None, 0, 1, RANKS) and (returns, options.get("_starts_mpi")) != ("streaming", False):
        raise ValueError(
            f'num_returns={returns!r} is not possible with num_ranks: 1 is the value of rank 0, and "ranks" gives a '
            "reference for each rank"
        )
    if options.get("max_calls"):
        raise ValueError("max_calls is not possible with num_ranks: reuse=False ends the gang after each call")


def check_actor_gang(options: Mapping[str, object], name: str, is_async: bool, yielding: Sequence[str]) -> None:
    """Refuse options of a class that contradict each other with or without `num_ranks`."""
    if options.get("num_ranks") is None:
        for one in ("ranks_per_node", "pin"):
            if options.get(one) is not None:
                raise ValueError(f"{one} is for actors on a gang: add num_ranks")
        return
    several = [one for one in ("max_concurrency", "concurrency_groups") if options.get(one) not in (None, 1, {})]
    if is_async or several:
        what = several[0] if several else "methods that are coroutines"
        raise ValueError(f"{name} has num_ranks and {what}: the members of a gang run one call after the other")
    if yielding:
        raise ValueError(f"{name}.{yielding[0]} yields, which members of a gang cannot: return a list instead")


def _seconds(name: str, value: Any) -> None:
    check_number(name, value)
    if value * 1e6 < 1:
        raise ValueError(f"{name} must be more than 0 seconds (a microsecond at least), not {value!r}")


def _gpus(name: str, value: Any) -> None:
    check_amount(name, value)
    if value > 1 and value != int(value):
        raise ValueError(f"{name} must be 0, a share below 1, or a whole number; got {value!r}")


def size_in_bytes(name: str, value: Any) -> int:
    """Read a number of bytes, or a text such as "20GB" or "512 MiB"."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B?", value.strip())
        if match is None:
            raise ValueError(f"{name} must be a number of bytes, or like '20GB' or '512MiB', not {value!r}")
        base = 1024 if (match[2] or "").endswith("i") else 1000
        size = float(match[1]) * math.pow(base, " KMGT".index((match[2] or " ")[0].upper()))
        check_amount(name, size)
        return round(size)
    check_amount(name, value)
    return int(float(value))


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if abs(value) > WHOLE_MAX:
        raise ValueError(f"{name} must be between -{WHOLE_MAX} and {WHOLE_MAX}, not {value}")
    return value


def _counted(words: str, least: int, most: int = COUNT_MAX, besides: int | None = None) -> Callable[[str, object], int]:
    """The check of a number of things: from `least` to `most`, or the number `besides`. `words` name its lower end."""

    def check_count(name: str, value: object) -> int:
        count = _whole(name, value)
        if count > most:
            raise ValueError(f"{name} must be at most {most}, not {count}")
        if count < least and count != besides:
            raise ValueError(f"{name} must be {words}, not {count}")
        return count

    return check_count


_count = _counted("0 or more", 0)
_limit_or_none = _counted("0 or more, or -1 for no limit", -1)
_one_or_more = _counted("1 or more", 1)
_ranks = _counted("1 or more", 1, RETURNS_MAX)


def _returns(name: str, value: object) -> None:
    if isinstance(value, str):
        if value not in RETURNS and value != RANKS:
            raise TypeError(f"{name} must be a whole number, 'streaming', 'dynamic' or 'ranks', not {value!r}")
    elif (count := _count(name, value)) > RETURNS_MAX:
        raise ValueError(f"{name} must be {RETURNS_MAX} or less, not {count}: return a list, or yield the values")


def _anything(name: str, value: object) -> None:
    """Accept any value, as in Ray."""


def _groups(name: str, value: object) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of names and numbers of calls, not {value!r}")
    for group, limit in value.items():
        check_text(f"a key of {name}", group)
        if not group:
            raise ValueError(f"a key of {name} must not be empty: max_concurrency is for calls without a group")
        _one_or_more(f"{name}[{group!r}]", limit)


def _exceptions(name: str, value: object) -> None:
    if isinstance(value, bool):
        return
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be True, False or a list of exception classes, not {value!r}")
    for kind in value:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{name} must be True, False or a list of exception classes; {kind!r} is not one")


LIFETIME = "=lifetime"
"""The entry in the environment of calls with the lifetime of actors whose options have none. It is not a variable."""
DETACHED = "detached"


def _lifetime(name: str, value: object) -> None:
    check_text(name, value)
    if value not in (DETACHED, "non_detached"):
        raise ValueError(f"{name} must be 'detached' (until it is killed or the job ends) or None, not {value!r}")


def check_name(options: Mapping[str, object]) -> None:
    """Check that the name of an actor is not empty, and that there is one if other options need it."""
    if options.get("name") == "":
        raise ValueError("name must not be empty")
    if options.get("namespace") == "":
        raise ValueError("namespace must not be empty; omit it for the namespace of the job")
    if not options.get("name") and options.get("get_if_exists"):
        raise ValueError("get_if_exists needs a name: .options(name=..., get_if_exists=True)")


def _type(name: str, value: object) -> None:
    check_text(name, value)
    if not value:
        raise ValueError(
            f"{name} must not be empty: a type as in cluster_resources(), 'H100' for accelerator_type:H100"
        )


def check_resources(name: str, value: object) -> None:
    """Raise TypeError or ValueError if these are not amounts of custom resources."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of names and amounts, not {value!r}")
    for resource, units in value.items():
        if resource in ("CPU", "GPU"):
            raise ValueError(f"use num_{resource.lower()}s for {resource!r}, not {name}")
        if resource in ("memory", "object_store_memory"):
            raise ValueError(f"use the option memory, not {name}[{resource!r}]")
        check_text(f"a key of {name}", resource)
        check_amount(f"{name}[{resource!r}]", units)


def _elsewhere(module: str, function: str) -> Callable[[str, object], None]:
    """The check that a module beside this one has. It is loaded on first use: most programs need none of them."""

    def load_and_check(name: str, value: object) -> None:
        from importlib import import_module

        getattr(import_module(f"mpi_runtime.core.calls.{module}"), function)(name, value)

    return load_and_check


def _old_group(name: str, value: object) -> None:
    from mpi_runtime.core.calls.placement_groups import PlacementGroup

    if value != "default" and not isinstance(value, PlacementGroup):
        raise TypeError(f"{name} must be a PlacementGroup, None or 'default', not {value!r}")


def _units(value: float) -> int:
    return round(value * UNIT)


def _custom(value: Mapping[str, float]) -> tuple[tuple[str, int], ...]:
    return custom_of({name: _units(amount) for name, amount in value.items() if amount})


def _microseconds(value: float) -> int:
    return min(round(value * 1e6), WHOLE_MAX)


def _limit(value: int) -> int:
    return max(value, 0)  # -1 is 0 in specs: no limit


class Option(NamedTuple):
    """One option.

    For each kind of call: its field of `Spec`, as "priority", or of a part of it, as "gang.ranks"; "": it is read
    elsewhere; None: the kind does not have the option.
    """

    check: Callable[[str, Any], object]
    task: str | None = None
    actor: str | None = None
    method: str | None = None
    convert: Callable[[Any], object] | None = None
    """Converts the value of the option to that of the field; None: they are the same."""
    default: object = None
    """The value of an omitted option; None: the default of the field."""


OPTIONS = {
    "num_cpus": Option(check_amount, "asks.cpu", "asks.cpu", None, _units, 1),
    "num_gpus": Option(_gpus, "asks.gpu", "asks.gpu", None, _units),
    "accelerator_type": Option(_type, "", ""),
    "gpu_memory": Option(
        size_in_bytes, "asks.gpu_memory", "asks.gpu_memory", None, partial(size_in_bytes, "gpu_memory")
    ),
    "memory": Option(check_amount, "asks.memory", "asks.memory", None, int),
    "resources": Option(check_resources, "asks.custom", "asks.custom", None, _custom),
    "num_returns": Option(_returns, "num_returns", None, "num_returns", lambda value: RETURNS.get(value, value)),
    "max_retries": Option(_limit_or_none, "max_retries", default=DEFAULT_MAX_RETRIES),
    "max_task_retries": Option(_limit_or_none, None, "", "max_retries"),
    "retry_exceptions": Option(_exceptions, "", None, ""),
    "concurrency_group": Option(check_text, None, None, "kind.group"),
    "name": Option(check_text, "", "", ""),
    "namespace": Option(check_text, None, ""),
    "get_if_exists": Option(check_bool, None, ""),
    "lifetime": Option(_lifetime, None, ""),
    "runtime_env": Option(_elsewhere("runtime_env", "check"), "", ""),
    "max_restarts": Option(_limit_or_none, None, "kind.max_restarts"),
    "max_concurrency": Option(_one_or_more, None, ""),
    "concurrency_groups": Option(_groups, None, ""),
    "allow_out_of_order_execution": Option(check_bool, None, ""),
    "scheduling_strategy": Option(_elsewhere("strategies", "check_strategy"), "", ""),
    "placement_group": Option(_old_group, "", ""),
    "placement_group_bundle_index": Option(_whole, "", ""),
    "placement_group_capture_child_tasks": Option(check_bool, "", ""),
    "label_selector": Option(check_selector, "", ""),
    "max_calls": Option(_count, "kind.max_calls"),
    "priority": Option(_whole, "priority", "priority"),
    "num_ranks": Option(_ranks, "gang.ranks", "gang.ranks"),
    "ranks_per_node": Option(_ranks, "gang.ranks_per_node", "gang.ranks_per_node"),
    "mpi_grace": Option(_seconds, "gang.grace_us", "gang.grace_us", None, _microseconds),
    "reuse": Option(check_bool, "gang.reuse"),
    "pin": Option(check_bool, "gang.pins", "gang.pins"),
    "own_scheduler": Option(check_bool, ""),
    "time_limit": Option(_seconds, "time.limit_us", None, "time.limit_us", _microseconds),
    "expect": Option(_seconds, "time.expect_us", None, None, _microseconds),
    "enforce_time_limit": Option(check_bool, "time.is_enforced", None, "time.is_enforced"),
    "max_pending_calls": Option(_counted("1 or more, or -1 (or 0) for no limit", -1, WHOLE_MAX), None, ""),
    "journal": Option(check_bool, "", "", "kind.keeps_state", operator.not_),
    "checkpoint_calls": Option(_one_or_more, None, "kind.save_calls"),
    "checkpoint_s": Option(_seconds, None, "kind.save_us", None, _microseconds),
    "_generator_backpressure_num_objects": Option(
        _counted("1 or more, or -1 for no limit", 1, WHOLE_MAX, -1), "backpressure", None, "backpressure", _limit
    ),
    "fallback_strategy": Option(_elsewhere("strategies", "check_fallbacks"), "", ""),
    "enable_task_events": Option(check_bool, "", "", ""),
    "_metadata": Option(_anything, "", ""),
    "_labels": Option(_anything, "", ""),
}
_OF_BATCHES = {
    "_account": Option(_anything, "account", convert=lambda given: AccountSpec(*given)),
    "_path_us": Option(_anything, "path_us"),
    "_alternatives": Option(_anything, "kind.alternatives"),
    "_gather_us": Option(_anything, "gather_us"),
    "_starts_mpi": Option(check_bool, "gang.starts_mpi"),
}
"""Options that batches set: (name, weight, limit), length of a chain, further requests, delay of reported ends, whether
members of a gang start MPI themselves. See `Spec`."""
_ALL = OPTIONS | _OF_BATCHES
TASK_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.task is not None)
ACTOR_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.actor is not None)
METHOD_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.method is not None)
FUNCTION_OPTIONS = (*TASK_OPTIONS, *_OF_BATCHES)
"""Options of tasks, and those that batches give theirs."""
_PARTS = {"gang": GangSpec, "time": TimeSpec}
"""Parts that most specs lack."""
_FIELDS: dict[type, list[tuple[str, str, str, Callable[[Any], Any] | None, object]]] = {
    kind: [
        (name, *field.rpartition(".")[::2], one.convert, one.default)
        for name, one in _ALL.items()
        if (field := getattr(one, column))
    ]
    for kind, column in ((TaskSpec, "task"), (ActorSpec, "actor"), (MethodSpec, "method"))
}
"""The options of each kind of spec that become a field, each with the part of the spec and the field."""


def with_options(spec: Spec, options: Mapping[str, object]) -> Spec:
    """The spec with the fields that each depend on one option."""
    parts: dict[str, dict[str, Any]] = {}
    for name, part, field, convert, default in _FIELDS[type(spec.kind)]:
        value = options.get(name)
        if value is None:
            value = default
        if value is not None:
            parts.setdefault(part, {})[field] = value if convert is None else convert(value)
    made = parts.pop("", {})
    for part, fields in parts.items():
        before = getattr(spec, part)
        made[part] = _PARTS[part](**fields) if before is None else structs.replace(before, **fields)
    return structs.replace(spec, **made)


def in_words(options: Options) -> str:
    """The given options in words, for a `repr`: ` with num_cpus=2`."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None)
    return f" with {given}" if given else ""
