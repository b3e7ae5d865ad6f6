"""The modules `ray`, `ray.util` and so on, as the import system finds and makes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mpi_runtime.as_ray.names import ABSENT, LIBRARIES, MODULES, RENAMED

_NOT_FOUND = object()


class Finder(MetaPathFinder, Loader):
    """Finds Ray's modules, also where Ray itself is installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, if there is such a one. The import of a library that Ray has says that it is not here."""
        if fullname in MODULES:
            return ModuleSpec(fullname, self, is_package=True)
        # For importlib.util.find_spec, with which libraries look for what is optional, nothing is there.
        if fullname in LIBRARIES and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
            raise ModuleNotFoundError(_absent_module(fullname), name=fullname)
        return None

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """A distribution by Ray's name: libraries ask `importlib.metadata` whether Ray is installed."""
        if context is None or context.name in (None, "ray"):
            from mpi_runtime.as_ray.distribution import Ray  # not at the top: it loads much

            yield Ray()

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module, which cloudpickle knows how to name."""

    def exec_module(self, module: ModuleType) -> None:
        """Give it the names of what it is made of, which are looked up when they are used."""
        name = module.__name__
        module.__doc__ = f"What {name} has in Ray, by mpi_runtime."
        # A name that is both a module and something of its parent, such as `placement_group`, stays the latter.
        below = [one.rpartition(".")[2] for one in MODULES if one.rpartition(".")[0] == name]
        both = {one: value for one in below if (value := _own(name, one)) is not _NOT_FOUND}
        for one in both:
            import_module(f"{name}.{one}")
        for one, value in both.items():
            if not isinstance(value, ModuleType):
                setattr(module, one, value)

        def find(attribute: str) -> Any:
            value = _find(name, attribute)
            setattr(module, attribute, value)
            return value

        module.__getattr__ = find  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted({*vars(module), *_public(name), *below})  # type: ignore[method-assign]


def _find(name: str, attribute: str) -> Any:
    """What an attribute of one of Ray's modules stands for.

    AttributeError: it is not here; says so in a way that does not let anybody look for it in Ray.
    """
    path = f"{name}.{attribute}"
    if path in MODULES:
        return import_module(path)
    if attribute == "__all__":  # asked for by `from ray import *`
        return _public(name)
    value = _own(name, attribute) if not attribute.startswith("__") or attribute == "__version__" else _NOT_FOUND
    if value is not _NOT_FOUND:
        return value
    if (path in ABSENT or name in ABSENT) and not attribute.startswith("_"):
        return _stand_in(path, ABSENT.get(path) or ABSENT[name])
    what = f"module {name!r} has no attribute {attribute!r}{_HINT}"
    raise AttributeError(_absent_module(path) if path in LIBRARIES else what, name=attribute)


def _own(name: str, attribute: str) -> Any:
    """What one of the modules has of which this one is made; modules below it are no names of its own."""
    renamed = RENAMED.get(f"{name}.{attribute}")
    if renamed is not None:
        module, _, real = renamed.rpartition(".")
        return getattr(import_module(module), real)
    for source in MODULES[name]:
        value = getattr(import_module(source), attribute, _NOT_FOUND)
        if value is not _NOT_FOUND and not (isinstance(value, ModuleType) and f"{name}.{attribute}" not in MODULES):
            return value
    return _NOT_FOUND


def _public(name: str) -> list[str]:
    """The names of one of Ray's modules."""
    found = {path.rpartition(".")[2] for path in RENAMED if path.rpartition(".")[0] == name}
    for source in MODULES[name]:
        module = import_module(source)
        names = getattr(module, "__all__", None) or (one for one in vars(module) if not one.startswith("_"))
        found.update(one for one in names if _own(name, one) is not _NOT_FOUND)
    return sorted(found)


def _stand_in(path: str, why: str) -> Any:
    """What raises when it is called; as a class it can be asked for by `isinstance` and in annotations."""
    home, _, name = path.rpartition(".")

    def absent(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{path} is not here: {why}{_HINT}")

    if name[0].isupper():
        return type(name, (), {"__new__": absent, "__module__": home})
    absent.__name__ = absent.__qualname__ = name
    absent.__module__ = home
    return absent


_HINT = " (`ray` is mpi_runtime here: docs/from_ray.md says what there is)"


def _absent_module(path: str) -> str:
    return (
        f"{path} is not here: `ray` is mpi_runtime, which has Ray's core and none of its libraries. "
        "docs/from_ray.md says what there is."
    )
