"""Tokens: one for each call that an executor has in hand and has not started.

They lie in an event counter that the executor and its agent share. Whoever takes a call's token has the call, so
exactly one of the two has it, without a message and even while user code holds the interpreter.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from mpi_runtime.transport.messages import Drained

Received = TypeVar("Received")


class Tokens(NamedTuple):
    """One end of the counter."""

    add: Callable[[int], object]
    take: Callable[[], object]
    """Takes one; raises BlockingIOError if there is none."""


def tokens_of(descriptor: int) -> Tokens:
    """The counter behind an event descriptor that does not block and counts one at a time."""
    return Tokens(partial(os.eventfd_write, descriptor), partial(os.eventfd_read, descriptor))


def claim(calls: deque[Received], tokens: Tokens, received: int) -> Received | Drained:
    """The executor's side: its next call, if nobody has taken it back.

    Else all calls that it has received and not started are somebody else's: they are dropped, and the agent is to be
    told so.

    Args:
        calls: those that were received and not started; not empty.
        tokens: one for each of them, unless it was taken back.
        received: how many calls it has ever received.
    """
    call = calls.popleft()
    try:
        tokens.take()
    except BlockingIOError:
        calls.clear()
        return Drained(received)
    return call
