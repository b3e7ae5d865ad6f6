"""What the rules look at: the project's files, and what each of its modules imports."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import IN_CI, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = "mpi_runtime"
PACKAGED = (PACKAGE, "scheduler", "gpu", "slurm")
"""Where files of the package are."""


@cache
def project() -> dict[str, Any]:
    """Return the content of pyproject.toml."""
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return content


@cache
def files() -> tuple[Path, ...]:
    """Return the files that git knows or would add, from the root; links are themselves, not what they show."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        if IN_CI:
            raise
        pytest.skip(f"git does not say which files belong to the project: {error}")
    names = sorted({Path(name) for name in listing.split("\0") if name})
    return tuple(name for name in names if (ROOT / name).is_symlink() or (ROOT / name).is_file())


def texts() -> Iterator[tuple[Path, str]]:
    """Each text file of the project with its content."""
    for name in files():
        if not (ROOT / name).is_symlink():
            data = (ROOT / name).read_bytes()
            if b"\0" not in data:
                yield name, data.decode()


def python_files() -> Iterator[tuple[Path, str]]:
    """Each Python file of the project with its content."""
    return ((name, text) for name, text in texts() if name.suffix == ".py")


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Each statement, also within others: many times fewer nodes than `ast.walk` has."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, name, ()))


def room_of(path: Path) -> str:
    """Return the name of the room in which a file of the package stands; a loose file's is that of the package."""
    return path.parts[path.parts[0] == PACKAGE and len(path.parts) > 2]


@dataclass(frozen=True)
class Import:
    """One module that another one names in an import."""

    module: str
    line: int
    for_types: bool
    """Whether it stands below `if TYPE_CHECKING`, and so is not there at run time."""


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    path: Path
    tree: ast.Module

    def where(self, line: int) -> str:
        """A place in it, for messages."""
        return f"{self.path.relative_to(ROOT)}:{line}"


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by its full name, through the links."""
    found = {}
    for package in packages():
        for path in sorted(ROOT.joinpath(*package.split(".")).glob("*.py")):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found[name] = Module(name, path, ast.parse(path.read_text(), str(path)))
    return found


@cache
def packages() -> list[str]:
    """The name of each package, through the links, as setuptools finds them: by their `__init__.py`."""
    walked = os.walk(ROOT / PACKAGE, followlinks=True)
    return sorted(
        ".".join(Path(folder).relative_to(ROOT).parts) for folder, _, names in walked if "__init__.py" in names
    )


def is_for_types(node: ast.AST) -> bool:
    """Whether this is a block that only type checkers read."""
    return isinstance(node, ast.If) and ast.dump(node.test) in _FOR_TYPES


_FOR_TYPES = {ast.dump(ast.parse(text, mode="eval").body) for text in ("TYPE_CHECKING", "typing.TYPE_CHECKING")}


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """What a module imports, at any depth; of `from package import module` the module."""
    found = []
    todo: list[tuple[ast.AST, bool]] = [(module.tree, False)]
    while todo:
        node, for_types = todo.pop()
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, for_types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            found += [
                Import(name, node.lineno, for_types) for name in {_module_of(base, alias.name) for alias in node.names}
            ]
        elif isinstance(node, ast.stmt | ast.Module | ast.excepthandler | ast.match_case):
            inside = for_types or is_for_types(node)
            todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    return tuple(found)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + (module.path.stem == "__init__")]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _module_of(base: str, name: str) -> str:
    return f"{base}.{name}" if f"{base}.{name}" in modules() else base
