"""Copies of what a trial prints, in files of its directory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class _Copied:
    """A stream that writes to a file too."""

    def __init__(self, stream: TextIO, file: TextIO) -> None:
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        self._file.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def copied(names: tuple[str, str] | None, directory: str) -> Iterator[None]:
    """Within the block, append what Python code prints to files in this directory."""
    if names is None:
        yield
        return
    os.makedirs(directory, exist_ok=True)
    with contextlib.ExitStack() as stack:
        paths = [os.path.join(directory, name) for name in names]
        opened = {
            path: stack.enter_context(open(path, "a", buffering=1, encoding="utf-8", errors="backslashreplace"))
            for path in paths
        }
        out, err = (opened[path] for path in paths)
        stack.enter_context(contextlib.redirect_stdout(_Copied(sys.stdout, out)))
        stack.enter_context(contextlib.redirect_stderr(_Copied(sys.stderr, err)))
        yield
