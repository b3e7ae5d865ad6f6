"""The public names of `ray.train` with their parameters and members, as lines of `ray_train_names.txt`.

    python -m tests.unit.docs.ray_train_names > tests/unit/docs/ray_train_names.txt

This needs Ray and torch. A line is a name, its parameters, and after a colon what its class and objects have.
"""

import dataclasses
import enum
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

MODULES = ("ray.train", "ray.train.collective", "ray.train.torch")


def parameters(value: Any) -> list[str]:
    """What it is called with."""
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return []
    try:
        found = inspect.signature(value).parameters.values()
    except ValueError:
        return []
    return [one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name[0] != "_"]


def members(value: Any) -> list[str]:
    """Public attributes of a class and of its objects, without those of all exceptions."""
    if not inspect.isclass(value):
        return []
    own = {one.name for one in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    return sorted(one for one in {*own, *dir(value)} - {*dir(Exception)} if one[0] != "_")


def lines() -> Iterator[str]:
    """All lines."""
    for path in MODULES:
        module = importlib.import_module(path)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            of = f": {' '.join(found)}" if (found := members(value)) else ""
            if callable(value):
                yield f"{path}.{name}({', '.join(parameters(value))}){of}"


if __name__ == "__main__":
    print("\n".join(lines()))
