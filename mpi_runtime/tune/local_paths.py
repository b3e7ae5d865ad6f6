"""Paths of results: all of them are those of a file system that the hosts share."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_FOLDER = "~/tune_results"


def local_path(path: str | os.PathLike[str], filesystem: object = None) -> Path:
    """The path of a directory or file. `filesystem`: an object of pyarrow in which `path` is looked up.

    Raises:
        ValueError: the file system is not that of this host.
    """
    text = os.fspath(path).removeprefix("file://")
    return Path(text if filesystem is None else _inside(filesystem, text)).expanduser()


def folder(path: str | os.PathLike[str] | None, filesystem: object = None) -> Path:
    """The parent directory of experiments, of `RunConfig(storage_path=..., storage_filesystem=...)`."""
    return local_path(path or DEFAULT_FOLDER, filesystem).resolve()


def _inside(filesystem: object, path: str) -> str:
    """The path on this host of a path of this file system: the local one, or a directory of one."""
    inner = getattr(getattr(filesystem, "handler", None), "fs", filesystem)  # that of fsspec behind pyarrow's, if any
    if getattr(filesystem, "type_name", "") == "local" or "local" in getattr(inner, "protocol", ()):
        return path
    around = getattr(filesystem, "base_fs", None) or getattr(inner, "fs", None)
    base = getattr(filesystem, "base_path", "") or getattr(inner, "path", "")
    if around is not None:
        return _inside(around, os.path.join(base, path.lstrip("/")))
    raise ValueError(
        f"storage_filesystem={filesystem!r} is not the file system of this host, nor a directory of it. Results and "
        "checkpoints must be on one that all hosts share: mount it, and set RunConfig(storage_path=...)"
    )
