"""Imports that ask the file system for less: directories are listed once.

At each import Python's finder asks for the time of each directory before the right one, whether the file is there, for
its time, and twice for the size of the compiled one: five to nine calls for a module. A shared file system of a cluster
serves them for all ranks. Here it is two: the time of the source, which the compiled file must match, and the content.

Imports of a program stay as they are. This finder is for modules of this package, and for what they import in turn: in
a driver while one of them is loaded (`for_all`), in processes without user code always, until an executor begins.
It finds plain modules in plain directories and zip files. For all else, and for what a listing does not have, it leaves
the search to Python: new files, namespace packages, and all modules once a program has hooks of its own.
"""

import os
import stat
import sys
from _frozen_importlib import ModuleSpec  # not of `importlib`: that is found by listings
from _frozen_importlib_external import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    PathFinder,
    SourceFileLoader,
)
from zipimport import zipimporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_OURS = "mpi_runtime."
_HOME = os.path.dirname(__file__)
_PYTHONS_HOOKS = 2
"""`sys.path_hooks` of Python: for zip files and directories."""


class _Source(SourceFileLoader):
    """Loads a module whose source the finder has just looked at."""

    def __init__(self, name: str, path: str, found: os.stat_result) -> None:
        super().__init__(name, path)
        self._found: os.stat_result | None = found

    def path_stats(self, path: str) -> dict[str, float]:
        """Return the time and size of the source, the first time without another look."""
        found, self._found = self._found or os.stat(path), None
        return {"mtime": found.st_mtime, "size": found.st_size}

    def get_data(self, path: str) -> bytes:
        """Read a file to its end, without asking for its size."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = part = os.read(descriptor, 1 << 20)
            while part:
                part = os.read(descriptor, 1 << 20)
                data += part
            return data
        finally:
            os.close(descriptor)


class Listings:
    """A finder before Python's own, with the names in each directory."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._users: list[None] = []
        """One for each part of the program that wants modules of others from here too."""

    def __enter__(self) -> None:
        self._users.append(None)

    def __exit__(self, *_: object) -> None:
        del self._users[-1:]
        if not self._users:
            self._forget_others()

    def leave(self) -> None:
        """Leave modules of others to Python from now on."""
        self._users.clear()
        self._forget_others()

    def _forget_others(self) -> None:
        """Forget the listings that may change from now on."""
        self._names = {one: names for one, names in self._names.items() if one.startswith(_HOME)}

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """Return the module of the first directory that has the name; None: Python is to look."""
        if not (self._users or fullname.startswith(_OURS)) or len(sys.path_hooks) != _PYTHONS_HOOKS:
            return None
        name = fullname.rpartition(".")[2]
        for entry in sys.path if path is None else path:
            if not isinstance(entry, str):  # as Python does
                continue
            finder = sys.path_importer_cache.get(entry, self)
            if finder is None:  # it was no directory
                continue
            if type(finder) is zipimporter:  # it has listed the archive
                spec = finder.find_spec(fullname)
                if spec is not None:
                    return spec if spec.loader is not None else None
                continue
            if (finder is not self and type(finder) is not FileFinder) or not entry.startswith("/"):
                return None
            directory = entry.rstrip("/")
            names = self._list(directory)
            if not names:
                return None
            if name in names:
                directory = f"{directory}/{name}"
                return _module(fullname, directory, "__init__", self._list(directory), [directory])
            if f"{name}.py" in names or any(name + suffix in names for suffix in _OTHERS):
                return _module(fullname, directory, name, names, None)
        return None

    def invalidate_caches(self) -> None:
        """Forget all listings."""
        self._names.clear()

    def _list(self, directory: str) -> frozenset[str]:
        names = self._names.get(directory)
        if names is None:
            try:
                names = frozenset(os.listdir(directory))
            except OSError:
                names = frozenset()
            self._names[directory] = names
        return names


_OTHERS = (*EXTENSION_SUFFIXES, ".pyc")


def _module(
    fullname: str, directory: str, name: str, names: frozenset[str], inside: list[str] | None
) -> ModuleSpec | None:
    """Return a module by its kind, in the order of Python's finder; None: it is of another kind."""
    loader: ExtensionFileLoader | SourceFileLoader
    for suffix in EXTENSION_SUFFIXES:
        if name + suffix in names:
            file = f"{directory}/{name}{suffix}"
            loader = ExtensionFileLoader(fullname, file)
            break
    else:
        file = f"{directory}/{name}.py"
        if f"{name}.py" not in names:
            return None
        try:
            found = os.stat(file)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        loader = _Source(fullname, file, found)
    spec = ModuleSpec(fullname, loader, origin=file)
    spec.submodule_search_locations = inside
    spec.has_location = True
    return spec


for_all = Listings()
"""With it, modules of others are found by listings too. `mpi_runtime/__init__.py` leaves it when it is loaded."""

for_all.__enter__()
_place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
sys.meta_path.insert(_place, for_all)
os.register_at_fork(after_in_child=for_all.leave)  # executors run user code
