"""The hash of a module of the program: of its source, and of the program's modules that it imports.

A function that calls `helpers.scale(x)` names only the module, and one with `import helpers` inside names a module that
may not be loaded yet. So the whole source counts; of a package all files. Of installed modules only the name counts.
"""

from __future__ import annotations

import dis
import functools
import importlib.util
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path

from mpi_runtime.scheduler.protocol.ids import digest

_DIGEST_BYTES = 16
_OURS = "mpi_runtime"
_INSTALLED = tuple(
    os.path.join(os.path.realpath(path), "") for name, path in sysconfig.get_paths().items() if name.endswith("lib")
)


def is_installed(path: str | None) -> bool:
    """Whether a file belongs to Python or to a library. None: the module has no file, as some in C."""
    return path is None or os.path.realpath(path).startswith(_INSTALLED)


def module_digest(name: str) -> bytes:
    """The hash of a module by its name; empty: it is installed or does not exist.

    Raises:
        OSError: a file cannot be read.
        SyntaxError, ValueError: a file is not Python source.
    """
    seen: dict[str, bytes] = {}
    pending = [_top(name)]
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen[one], imported = _read(one)
        pending.extend(imported)
    if not seen[_top(name)]:
        return b""
    return digest(b"".join(top.encode() + b"\0" + seen[top] for top in sorted(seen)), _DIGEST_BYTES)


def instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """The instructions of code and of functions inside it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from instructions(constant)


def imported_names(code: types.CodeType) -> Iterator[str]:
    """The modules that code and functions inside it import. Of a relative import: the name after the dots."""
    return (one.argval for one in instructions(code) if one.opname == "IMPORT_NAME")


def _top(name: str) -> str:
    return name.partition(".")[0]


@functools.cache
def _read(top: str) -> tuple[bytes, frozenset[str]]:
    """The hash of the files of a module or package, and their imports; empty: it is not part of the program."""
    content = b""
    imported: set[str] = set()
    for path in _files(top):
        data = path.read_bytes()
        content += path.name.encode() + b"\0" + digest(data, _DIGEST_BYTES)
        if path.suffix == ".py":
            imported.update(map(_top, imported_names(compile(data, str(path), "exec", dont_inherit=True))))
    return (digest(content, _DIGEST_BYTES) if content else b""), frozenset(imported - {""})


def _files(top: str) -> list[Path]:
    """The files of a module of the program, by its top-level name."""
    if top == _OURS:
        return []
    if top == "__main__":
        path = getattr(sys.modules[top], "__file__", None)
        return [] if path is None else [Path(path)]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    folders = list(spec.submodule_search_locations or ())
    if is_installed(folders[0] if folders else spec.origin if spec.has_location else None):
        return []
    if not folders:
        return [Path(str(spec.origin))]
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
