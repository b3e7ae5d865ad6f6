"""An executor as its agent has it, and words for its end."""

from __future__ import annotations

import os
import signal

from mpi_runtime.rank.custody import Custody
from mpi_runtime.rank.lines import Lines
from mpi_runtime.transport.channel import Channel

SPARE_DESCRIPTORS = 24
"""So many are left when no further executor is started: its own for a moment ten, and what a long message or a file of
the system takes."""
SAID_BYTES_MAX = 2000
"""Of what an executor has printed that died before it began a call."""


class LocalExecutor:
    """An executor as its agent has it."""

    def __init__(self, number: int, channel: Channel, tokens: int, cancels: int, custody: Custody) -> None:
        self.number = number
        self.channel = channel
        self.custody = custody
        self.tokens = tokens
        """The event counter behind the tokens of its custody."""
        self.cancels = cancels
        """A pipe into which the names of cancelled attempts of calls are written."""
        self.is_refused = False
        """It has sent what cannot be read: nothing that it sends counts any more."""
        self.pid = 0
        self.outputs: list[Lines] = []


def describe_status(status: int) -> str:
    """How a process ended, in words, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        known = {one.value: f"{one.name}: " for one in signal.Signals}  # not those that have no name of their own
        return f"was killed by signal {number} ({known.get(number, '')}{signal.strsignal(number)})"
    return f"exited with code {os.WEXITSTATUS(status)} before its call had ended"


def last_words(printed: bytes) -> str:
    """The end of what a process has printed, to follow the line that says how it ended."""
    text = printed[-SAID_BYTES_MAX:].decode(errors="replace").strip()
    return f"\n{text}" if text else ""


def keep_spare() -> None:
    """See to it that there are descriptors for one more executor, and some for what else comes up.

    Raises:
        OSError: there are not.
    """
    taken: list[int] = []
    try:
        while len(taken) < SPARE_DESCRIPTORS:
            taken.append(os.eventfd(0, os.EFD_CLOEXEC))
    finally:
        for descriptor in taken:
            os.close(descriptor)
