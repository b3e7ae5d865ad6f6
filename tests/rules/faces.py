"""Faces: modules that load others on first use. `make faces` writes the imports from which type checkers learn of it.

Where names come from stands in `_HOMES` of a face, and which of them are public in `__all__`. The imports below
`if TYPE_CHECKING` follow from these two.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from typing import Any

from tests.helpers import ROOT
from tests.rules.house import Module, is_for_types, modules

Pairs = set[tuple[str, str]]
"""Modules, with a name that each has."""


def faces() -> Iterator[Module]:
    """Each face of the package."""
    return (one for one in modules().values() if _value(one, "_HOMES") is not None)


def _value(module: Module, name: str) -> Any:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return None


def in_table(face: Module) -> Pairs:
    """The public names that the table has, with their modules."""
    found: Pairs = set()
    for home, names in _value(face, "_HOMES").items():
        module = resolve_name(f".{home}", face.name).rstrip(".")
        room, _, own = module.rpartition(".")
        found |= {(module, name) for name in names.split()}
        if not names or (home and "." not in home):
            found.add((room, own))  # the module itself
    return {(module, name) for module, name in found if name in _value(face, "__all__")}


def for_checkers(face: Module) -> Pairs:
    """The names that type checkers find in place of the table."""
    return {
        (node.module or "", alias.name)
        for node in ast.walk(_block(face))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _block(face: Module) -> ast.If:
    return next(one for one in face.tree.body if isinstance(one, ast.If) and is_for_types(one) and one.orelse)


def write(face: Module) -> None:
    """Write the imports that follow from the table, as ruff sorts and wraps them."""
    block, lines = _block(face), face.path.read_text().splitlines(keepends=True)
    imports = [f"    from {module} import {name}\n" for module, name in sorted(in_table(face))]
    first, last = block.body[0].lineno - 1, block.body[-1].end_lineno
    text = "".join([*lines[:first], *imports, *lines[last:]])
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(face.path), "-"]
        text = subprocess.run(ruff, input=text, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    face.path.write_text(text)


if __name__ == "__main__":
    for one in faces():
        write(one)
