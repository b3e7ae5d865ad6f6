"""`ray.tune.utils`: functions for dictionaries and dates, reports as text, and what has nothing to do here."""

from __future__ import annotations

import copy
import datetime
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9_/][\w./+'-]*( [\w./+'-]+)*")
_SPECIAL = re.compile(
    r"true|false|null|yes|no|on|off|[\d_]+(\.[\d_]*(e[-+]\d+)?)?|0x[\da-f_]+|\d{4}-\d\d?-\d\d?", re.IGNORECASE
)
"""Texts that YAML reads as something else without quotes, although they have the form of plain ones."""


def flatten_dict(dt: Mapping[str, object], delimiter: str = "/", prevent_delimiter: bool = False) -> dict[str, object]:
    """Nested dictionaries as one, with names like `a/b`. Empty ones are left out."""
    found: dict[str, object] = {}
    for key, value in dt.items():
        if prevent_delimiter and delimiter in str(key):
            raise ValueError(f"the key {key!r} has the delimiter {delimiter!r}: choose another delimiter")
        if isinstance(value, Mapping):
            inner = flatten_dict(value, delimiter, prevent_delimiter)
            found.update({f"{key}{delimiter}{name}": one for name, one in inner.items()})
        else:
            found[key] = value
    return found


def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **more: Any) -> Any:
    """Return what a name like `a/b` finds in nested dictionaries and lists, else the argument `default=`."""
    if flat_key in lookup:
        return lookup[flat_key]
    value = lookup
    try:
        for part in flat_key.split(delimiter):
            value = value[part] if isinstance(value, Mapping) else value[int(part)]
    except (KeyError, IndexError, TypeError, ValueError):
        if "default" in more:
            return more["default"]
        raise KeyError(flat_key) from None
    return value


def deep_update(
    original: dict[str, object], new_dict: Mapping[str, object], new_keys_allowed: bool = False
) -> dict[str, object]:
    """Update a dictionary in place, nested ones too, and return it."""
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise KeyError(f"unknown key {key!r}; known are {sorted(original)}")
        inner = original.get(key)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            deep_update(inner, value, new_keys_allowed)
        else:
            original[key] = value
    return original


def merge_dicts(d1: Mapping[str, object], d2: Mapping[str, object]) -> dict[str, object]:
    """A copy of the first dictionary, updated by the second one."""
    return deep_update(copy.deepcopy(dict(d1)), d2, True)


def date_str() -> str:
    """The time now, for names of files."""
    return datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def unflatten_list_dict(dt: Mapping[str, Any], delimiter: str = "/") -> Any:
    """The inverse of `flatten_dict`; names that are numbers make lists."""
    found: dict[str, Any] = {}
    for key, value in dt.items():
        *path, last = key.split(delimiter)
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return _with_lists(found)


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(one) for key, one in value.items()}
    is_list = bool(inner) and all(key.isdigit() for key in inner)
    return [inner[key] for key in sorted(inner, key=int)] if is_list else inner


def diagnose_serialization(trainable: Any) -> Any:
    """True if a trainable can be serialised; else the objects in it that cannot."""
    from mpi_runtime.util import inspect_serializability

    is_serializable, failures = inspect_serializability(trainable)
    return is_serializable or failures


def validate_save_restore(trainable_cls: Any, config: Any = None, num_gpus: int = 0) -> bool:
    """True: a class that saves its state, and another object of it that restores this, count the same steps."""
    with tempfile.TemporaryDirectory() as folder:
        first = trainable_cls(config)
        for _ in range(3):
            first.train()
        checkpoint = first.save(folder)
        second = trainable_cls(config)
        second.restore(checkpoint)
        count = second.train()["training_iteration"]
        if count != 4:
            raise AssertionError(f"after three steps and a restore, the next step is number {count}, and not 4")
    return True


def wait_for_gpu(gpu_id: object = None, target_util: float = 0.01, retry: int = 20, **more: object) -> bool:
    """True: a GPU is free before the next trial gets it."""
    return True


def pretty_print(result: Mapping[str, Any], exclude: Collection[str] | None = None) -> str:
    """The values of a report as YAML, without its configuration, values that are None and those that are excluded."""
    left_out = {"config", "hist_stats", *(exclude or ())}
    shown = {key: value for key, value in result.items() if key not in left_out and value is not None}
    return "\n".join(_yaml(shown)) + "\n"


def _yaml(value: Any) -> Iterator[str]:
    """The lines of a value in YAML."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, Mapping) and value:
        for key, one in sorted((str(key), one) for key, one in value.items()):
            first, *more = _yaml(one)
            if not _is_block(one):
                yield f"{_scalar(key)}: {first}"
            else:
                yield f"{_scalar(key)}:"
                indent = "  " if isinstance(one, Mapping) else ""
                yield from (indent + line for line in (first, *more))
    elif isinstance(value, list | tuple | set) and value:
        for one in value:
            first, *more = _yaml(one)
            yield f"- {first}"
            yield from (f"  {line}" for line in more)
    else:
        yield _scalar(value)


def _is_block(value: Any) -> bool:
    value = value.tolist() if hasattr(value, "tolist") else value
    return bool(value) and isinstance(value, Mapping | list | tuple | set)


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        text = repr(value)
        if text in ("inf", "-inf", "nan"):
            return text.replace("inf", ".inf").replace("nan", ".nan")
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping | list | tuple | set):
        return "{}" if isinstance(value, Mapping) else "[]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and not _SPECIAL.fullmatch(text) else "'" + text.replace("'", "''") + "'"
