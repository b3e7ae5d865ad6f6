"""Kernel locks on ranges of the arena's memory file: which pages are pinned, and by which process.

They belong to an open file description (`F_OFD_SETLK`), so a process that pins opens its own. Several processes may
share a range; only a process alone may take one. The kernel drops the locks of the dead. No call waits.
"""

import errno
import fcntl
import os
import struct

_FLOCK = "hhqqi4x"
"""`struct flock` on 64-bit Linux: kind, meaning of the start, start, length, process."""
_NOT_HERE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a system without such locks."""


def own_description(descriptor: int) -> int:
    """Open the same file again, for locks of this process; the caller owns the result.

    Its number is above the other's: the kernel would drop the locks if the program closed it, and programs that close
    foreign descriptors close low numbers (`becoming.out_of_the_way`).

    Raises:
        OSError: there is no `/proc`.
    """
    opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, descriptor)
    finally:
        os.close(opened)


def share(descriptor: int, start: int, size: int) -> bool:
    """Lock a range of the file, shared with others; return whether that was granted."""
    try:
        _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, start, size)
    except OSError:
        return False
    return True


def take(descriptor: int, start: int, size: int) -> bool:
    """Lock a range for this process alone; return whether that was granted. True on a system without such locks."""
    try:
        _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, start, size)
    except OSError as error:
        return error.errno in _NOT_HERE
    return True


def drop(descriptor: int, start: int, size: int) -> None:
    """Unlock a range."""
    try:
        _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, start, size)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise


def shared_part(descriptor: int, start: int, size: int) -> tuple[int, int] | None:
    """Return start and end of one part of the range that others have locked; None: there is no such part."""
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
