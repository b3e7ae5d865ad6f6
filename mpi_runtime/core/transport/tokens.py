"""Tokens: one for each call that an executor has received and not started.

Tokens are units of a counter (an eventfd) that the executor and its agent share. The one of the two that takes a call's
token owns the call. So exactly one of them owns it, without a message, and even while user code blocks the interpreter.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from mpi_runtime.core.transport.messages import Drained

Received = TypeVar("Received")


class Tokens(NamedTuple):
    """One end of the counter."""

    add: Callable[[int], object]
    """Add this many tokens."""
    take: Callable[[], object]
    """Take one token. Raises BlockingIOError if there is none."""
    close: Callable[[], object]


def tokens_of(descriptor: int) -> Tokens:
    """Return the counter of an eventfd, which must have the flags EFD_NONBLOCK and EFD_SEMAPHORE."""
    add, take = partial(os.eventfd_write, descriptor), partial(os.eventfd_read, descriptor)
    return Tokens(add, take, partial(os.close, descriptor))


def claim(calls: deque[Received], tokens: Tokens, received: int) -> Received | Drained:
    """Claim the executor's next call.

    If its token is gone, the agent has stolen the calls that the executor has received and not started: all of `calls`.
    Then they are dropped, and the agent must get the returned `Drained`. `received`: how many it has received in all.
    """
    call = calls.popleft()
    try:
        tokens.take()
    except BlockingIOError:
        calls.clear()
        return Drained(received)
    return call
