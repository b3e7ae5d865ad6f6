"""Finds and creates the modules `ray`, `ray.util` and so on for Python's import system."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from mpi_runtime.as_ray import ray_names
from mpi_runtime.as_ray.ray_names import ABSENT, LIBRARIES, MODULES, RENAMED

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

FACTS = ("__commit__", "__version__")
"""Attributes with underscores that are looked up; others are Python's own."""
_NOT_FOUND = object()


class Finder(MetaPathFinder, Loader):
    """Finds Ray's modules, even if Ray itself is installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that exists here; None for others. An import of Ray's other libraries fails."""
        if fullname in MODULES:
            return ModuleSpec(fullname, self, origin=ray_names.__file__, is_package=True)
        # Not for importlib.util.find_spec, with which programs look for optional libraries: it returns None.
        if sys._getframe(2).f_code.co_name == "_find_and_load_unlocked" and (why := _why_absent(fullname)):
            # Without the name: with it `from ray import serve` would raise Python's own message.
            raise ModuleNotFoundError(why)
        return None

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """Yield a distribution named "ray": libraries ask `importlib.metadata` whether Ray is installed."""
        if context is None or context.name in (None, "ray"):
            from mpi_runtime.as_ray.distribution import Ray  # not at the top: it loads much

            yield Ray()

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an ordinary module, which cloudpickle can pickle by name."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of our modules behind it. They are looked up on first use."""
        name = module.__name__
        if name.startswith("ray.experimental.state."):  # the earlier place warns, as in Ray
            warnings.warn(f"{name} has moved: import ray.util.state", DeprecationWarning, stacklevel=2)
        module.__file__ = ray_names.__file__  # shown by Python's error for a name that is not here
        module.__doc__ = f"The content of {name} in Ray, by mpi_runtime."
        sources = [import_module(source) for source in MODULES[name]]
        below = [one.rpartition(".")[2] for one in MODULES if one.rpartition(".")[0] == name]
        # A name that is both a submodule and an attribute, such as `placement_group`, stays the attribute. Other
        # submodules are not loaded here: they may need libraries that are not installed.
        for one in below:
            for value in (vars(source)[one] for source in sources if one in vars(source)):
                if not isinstance(value, ModuleType):
                    import_module(f"{name}.{one}")
                    setattr(module, one, value)

        def find(attribute: str) -> object:
            value = _find(name, attribute)
            setattr(module, attribute, value)
            return value

        module.__getattr__ = find  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted({*vars(module), *_public(name), *below})  # type: ignore[method-assign]


def _find(name: str, attribute: str) -> object:
    """Return our object for an attribute of one of Ray's modules. The error for others explains that this is ours."""
    path = f"{name}.{attribute}"
    if path in MODULES:
        try:
            return import_module(path)
        except ImportError as error:  # a library is missing: `hasattr` is false
            raise AttributeError(str(error), name=attribute) from error
    if attribute == "__all__":  # asked for by `from ray import *`
        return _public(name)
    value = _own(name, attribute) if not attribute.startswith("__") or attribute in FACTS else _NOT_FOUND
    if value is not _NOT_FOUND:
        return value
    if (path in ABSENT or name in ABSENT) and not attribute.startswith("_"):
        return _stand_in(path, ABSENT.get(path) or ABSENT[name])
    what = f"module {name!r} has no attribute {attribute!r}{_HINT}"
    raise AttributeError(_why_absent(path) if path in LIBRARIES else what, name=attribute)


def _own(name: str, attribute: str) -> object:
    """Return the attribute from the first of our modules behind this one that has it. Submodules do not count."""
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
    """Return the public names of one of Ray's modules."""
    found = {path.rpartition(".")[2] for path in RENAMED if path.rpartition(".")[0] == name}
    for source in MODULES[name]:
        module = import_module(source)
        public = getattr(module, "__all__", None) or (one for one in vars(module) if not one.startswith("_"))
        found.update(one for one in public if _own(name, one) is not _NOT_FOUND)
    return sorted(found)


def _stand_in(path: str, why: str) -> object:
    """Return a stand-in that raises when it is called. A class serves in `isinstance`, annotations and `except`."""
    home, _, name = path.rpartition(".")

    def absent(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"{path} is not here: {why}{_HINT}")

    if name[0].isupper():  # an error can be named by `except`: it is never raised
        bases = (Exception,) if name.endswith("Error") else ()
        return _AbsentClass(name, bases, {"__new__": absent, "__module__": home, "_why": why})
    absent.__name__ = absent.__qualname__ = name
    absent.__module__ = home
    return absent


class _AbsentClass(type):
    """The class of stand-ins for classes: also a missing member, such as that of an enumeration, explains itself."""

    def __getattr__(cls, name: str) -> NoReturn:
        home = vars(cls)["__module__"]
        why = f"{home}.{cls.__name__}.{name} is not here: {vars(cls)['_why']}{_HINT}"
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}" if name[0] == "_" else why)


_HINT = " (`ray` is mpi_runtime here: docs/from_ray.md lists what there is)"


def _why_absent(path: str) -> str:
    """Why a module of Ray is not here, and the alternative: its own, or that of the module around it; else empty."""
    around = path
    while around:
        if why := LIBRARIES.get(around) or ABSENT.get(around):
            return f"{path} is not here: {why}{_HINT}"
        around = around.rpartition(".")[0]
    return ""
