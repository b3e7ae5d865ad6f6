"""Claims on processors of a host, among programs of one user. A claim is the abstract address of a socket.

It goes with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_kept = contextlib.ExitStack()
"""The claims for the life of this process."""


@contextlib.contextmanager
def claimed_processors(count: int) -> Iterator[tuple[int, ...]]:
    """Processors to which no other program of this user is bound on this host; none if there are too few."""
    found: list[int] = []
    with contextlib.ExitStack() as claims:
        for processor in sorted(os.sched_getaffinity(0)):
            if len(found) < count:
                one = claims.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                with contextlib.suppress(OSError):  # it is another's
                    one.bind(f"\0mpi_runtime-{os.geteuid()}-cpu-{processor}")
                    found.append(processor)
        if len(found) < count:
            claims.close()
            found.clear()
        yield tuple(found)


def claim(count: int) -> tuple[int, ...]:
    """Claim processors for the life of this process; none if there are too few."""
    return _kept.enter_context(claimed_processors(count))
