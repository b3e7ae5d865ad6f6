"""Directories and files of a journal belong to this user alone: whoever can write to them can run code as this user.

Values are pickles, and loading them runs code. So a journal that another user may change is refused. New directories
and files get the modes 0700 and 0600, whatever the umask is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_directory(path: Path) -> None:
    """Make a directory with its parents; one that exists must be this user's, and hold files of this user only.

    Raises:
        PermissionError: another user may write to it or owns something in it, or it has symbolic links.
        OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        _check(path)
    else:
        path.chmod(0o700)


def create_file(path: str | Path) -> int:
    """Make a new file to write, and return its descriptor.

    Raises:
        OSError: it cannot be made, or exists.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def open_file(path: str | Path) -> int:
    """Open a file to read, and return its descriptor.

    Raises:
        PermissionError: it is another user's.
        OSError: it cannot be opened, or is a symbolic link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise _refusal(path, "belongs to another user")
    return descriptor


def _check(directory: Path) -> None:
    found = directory.stat()
    if {found.st_uid, directory.lstat().st_uid} != {os.geteuid()}:
        raise _refusal(directory, "belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refusal(directory, "can be written to by other users (chmod go-w, if all in it is yours)")
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise _refusal(entry.path, "is a symbolic link")
            if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                raise _refusal(entry.path, "belongs to another user")


def _refusal(path: str | Path, why: str) -> PermissionError:
    return PermissionError(None, f"loading its values can run code, and {path} {why}", str(path))
