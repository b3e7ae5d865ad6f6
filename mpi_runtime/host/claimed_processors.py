"""Claims on processors of a host, among programs of one user. A claim is the abstract address of a socket.

It goes with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_kept: list[socket.socket] = []


@contextlib.contextmanager
def claimed_processors(count: int) -> Iterator[tuple[int, ...]]:
    """Processors to which no other program of this user is bound on this host; none if there are too few."""
    found = _claims(count)
    try:
        yield tuple(found)
    finally:
        for one in found.values():
            one.close()


def claim(count: int) -> tuple[int, ...]:
    """Claim processors for the life of this process; none if there are too few."""
    found = _claims(count)
    _kept.extend(found.values())
    return tuple(found)


def _claims(count: int) -> dict[int, socket.socket]:
    found: dict[int, socket.socket] = {}
    for processor in sorted(os.sched_getaffinity(0)):
        if len(found) == count:
            break
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            one.bind(f"\0mpi_runtime-{os.geteuid()}-cpu-{processor}")
        except OSError:
            one.close()
        else:
            found[processor] = one
    if len(found) == count:
        return found
    for one in found.values():
        one.close()
    return {}
