"""An executor as its agent knows it, and how its end is described."""

from __future__ import annotations

import os
import signal

from mpi_runtime.rank.custody import Custody
from mpi_runtime.rank.lines import Lines
from mpi_runtime.transport.channel import Channel

SPARE_DESCRIPTORS = 24
"""File descriptors that must be free before an executor is started. It needs ten for a moment; the others are for long
messages and files of the system."""
SAID_BYTES_MAX = 2000
"""How much of the output of an executor is quoted that died before it began a call, in bytes."""


class LocalExecutor:
    """An executor of this rank."""

    def __init__(self, number: int, channel: Channel, tokens: int, cancels: int, draft: int, custody: Custody) -> None:
        self.number = number
        self.draft = draft
        """Which of the agent's drafts is its own."""
        self.arrived = 0
        """How many frames have come from it."""
        self.channel = channel
        self.custody = custody
        self.tokens = tokens
        """The event counter behind the tokens of its custody."""
        self.cancels = cancels
        """A pipe into which the ids of cancelled attempts are written."""
        self.is_refused = False
        """Whether it has sent a frame that cannot be read. Everything that it sends afterwards is ignored."""
        self.pid = 0
        self.outputs: list[Lines] = []


def describe_status(status: int) -> str:
    """Return how a process ended, in words, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        known = {one.value: f"{one.name}: " for one in signal.Signals}  # real-time signals have no name of their own
        return f"was killed by signal {number} ({known.get(number, '')}{signal.strsignal(number)})"
    return f"exited with code {os.WEXITSTATUS(status)} before its call had ended"


def last_words(printed: bytes) -> str:
    """Return the last output of a process, to follow the description of its end; empty if there is none."""
    text = printed[-SAID_BYTES_MAX:].decode(errors="replace").strip()
    return f"\n{text}" if text else ""


def keep_spare() -> None:
    """Check that `SPARE_DESCRIPTORS` file descriptors are free.

    Raises:
        OSError: there are fewer.
    """
    taken: list[int] = []
    try:
        while len(taken) < SPARE_DESCRIPTORS:
            taken.append(os.eventfd(0, os.EFD_CLOEXEC))
    finally:
        for descriptor in taken:
            os.close(descriptor)
