"""Directories of journals and of experiments belong to this user alone: to write to them is to run code as this user.

Values are pickles, and loading them runs code. So a journal that another user may change is refused. New directories
and files get the modes 0700 and 0600, whatever the umask is.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_WRITABLE = "can be written to by other users (chmod -R go-w, if all in it is yours)"


def make_directory(path: Path) -> None:
    """Make a directory with its parents; one that exists must be this user's, and hold files of this user only.

    Raises:
        PermissionError: see `check`.
        OSError: it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError as error:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
        check(path)
    else:
        path.chmod(0o700)


def check(directory: Path) -> None:
    """Check that a directory is this user's, and holds files of this user only.

    Raises:
        PermissionError: another user may write to it or owns something in it, or it has symbolic links.
    """
    found = directory.stat()
    if {found.st_uid, directory.lstat().st_uid} != {os.geteuid()}:
        raise _refusal(directory, "belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise _refusal(directory, _WRITABLE)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise _refusal(entry.path, "is a symbolic link")
            its = entry.stat(follow_symlinks=False)
            if its.st_uid != os.geteuid():
                raise _refusal(entry.path, "belongs to another user")
            if its.st_mode & _OTHERS_WRITE and found.st_mode & _OTHERS_ENTER:
                raise _refusal(entry.path, _WRITABLE)


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


def read_file(path: str | Path) -> bytes:
    """Return the content of a file of values that may lie anywhere, such as a checkpoint.

    A group may write to it: with some umasks all files are so.

    Raises:
        PermissionError: it is another user's, or all users may write to it.
        OSError: it cannot be read, or is a symbolic link.
    """
    with open(open_file(path), "rb") as file:
        if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
            raise _refusal(path, _WRITABLE)
        return file.read()


def _refusal(path: str | Path, why: str) -> PermissionError:
    return PermissionError(None, f"loading its values can run code, and {path} {why}", str(path))
