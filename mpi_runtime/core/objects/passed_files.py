"""Files that pass parts of large values between two hosts which share a directory.

Streams of srun take 1 KiB at a time, through two more processes: a file is many times faster where users' homes are
shared. The message about a part tells the reader that its file is closed. No name is used twice: hosts of NFS are sure
to see all bytes of a file that they open for the first time after it was closed.
"""

from __future__ import annotations

import contextlib
import errno
import os

from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.files import private


def _path(directory: str, number: int) -> str:
    if not directory:
        raise FileNotFoundError(errno.ENOENT, "the hosts share no directory")
    return os.path.join(directory, str(number))


def leave(directory: str, number: int, data: Buffer) -> None:
    """Write a new file.

    Raises:
        OSError: it cannot be written, or there is no directory.
    """
    descriptor = private.create_file(_path(directory, number))
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    except BaseException:
        os.close(descriptor)
        drop(directory, number)
        raise
    os.close(descriptor)  # NFS reports here that the disk is full


def take(directory: str, number: int, target: memoryview) -> None:
    """Read a whole file, and remove it.

    Raises:
        OSError: it cannot be read, or does not have these bytes.
    """
    descriptor = private.open_file(_path(directory, number))
    try:
        size, at = os.fstat(descriptor).st_size, 0
        while at < len(target) and (read := os.readv(descriptor, [target[at:]])):
            at += read
    finally:
        os.close(descriptor)
        drop(directory, number)
    if not at == size == len(target):
        raise OSError(errno.EIO, f"a file of {len(target)} bytes has {size} here, {at} of them to be read")


def drop(directory: str, number: int) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(OSError):
        os.unlink(_path(directory, number))
