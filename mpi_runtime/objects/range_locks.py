"""Kernel locks on ranges of the arena's memory file: which pages are pinned, and by which process.

They belong to an open file description (`F_OFD_SETLK`), so a process that pins opens one of its own. Several processes
may share a range; taking it needs that nobody else has any of it. The kernel drops what belongs to the dead. Nobody
ever waits: a refusal is an answer.
"""

import errno
import fcntl
import os
import struct

_FLOCK = "hhqqi4x"
"""`struct flock` on 64-bit Linux: kind, meaning of the start, start, length, process."""
_NOT_HERE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""A system without such locks: nobody can have one."""


def own_description(descriptor: int) -> int:
    """Open the same file anew, for locks of this process; the caller owns the result.

    Its number is above the other's: the kernel would drop the locks if the program closed it, and a program that closes
    what is not its own means low numbers (`becoming.out_of_the_way`).

    Raises:
        OSError: `/proc` is not there.
    """
    opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, descriptor)
    finally:
        os.close(opened)


def share(descriptor: int, start: int, size: int) -> bool:
    """Have a range of the file, with others; whether that was granted."""
    try:
        _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, start, size)
    except OSError:
        return False
    return True


def take(descriptor: int, start: int, size: int) -> bool:
    """Have a range alone; whether that was granted. Where there are no such locks it is, for nobody can share it."""
    try:
        _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, start, size)
    except OSError as error:
        return error.errno in _NOT_HERE
    return True


def drop(descriptor: int, start: int, size: int) -> None:
    """Have a range no longer."""
    try:
        _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, start, size)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise


def shared_part(descriptor: int, start: int, size: int) -> tuple[int, int] | None:
    """Start and end of a part of the range that others have; None: nobody has any of it.

    There may be more such parts.
    """
    try:
        kind, _, first, length, _ = _ask(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, size)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return None
        raise
    if kind == fcntl.F_UNLCK:
        return None
    return max(start, first), min(start + size, first + length) if length else start + size


def _ask(descriptor: int, command: int, kind: int, start: int, size: int) -> tuple[int, ...]:
    return struct.unpack(_FLOCK, fcntl.fcntl(descriptor, command, struct.pack(_FLOCK, kind, 0, start, size, 0)))
