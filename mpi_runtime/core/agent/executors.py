"""The executors of one agent: a record for each, a description of its end, and the drafts of all.

The drafts are in one memory file without a name, so that an executor costs its agent no further descriptor. The format
is in `transport/unsent_frame.py`.
"""

from __future__ import annotations

import os
from fcntl import F_ADD_SEALS, F_SEAL_SHRINK, fcntl

from mpi_runtime.core.agent.custody import Custody
from mpi_runtime.core.agent.output_lines import Lines
from mpi_runtime.core.host.process_tree import describe_end
from mpi_runtime.core.transport.unsent_frame import SIZE, WORD, sealed

SPARE_DESCRIPTORS = 24
"""File descriptors that must be free before an executor is started. It needs ten for a moment; the others are for long
messages and files of the system."""
SAID_BYTES_MAX = 2000
"""Bytes of output that are quoted if an executor died before it began a call."""


class LocalExecutor:
    """An executor of this rank, from the request to fork it until its end is noted."""

    def __init__(self, number: int, draft: int, cancels: int, custody: Custody | None) -> None:
        self.number = number
        self.draft = draft
        self.cancels = cancels
        """A pipe into which the ids of cancelled attempts are written."""
        self.custody = custody
        """Its calls; None: the head's agent has them, and it has a direct line."""
        self.pid = 0
        self.outputs: list[Lines] = []
        self.gang = 0
        """The gang of which it is a member; 0: none."""
        self.gang_rank = 0
        self.mpi_words = b""
        """The last texts of its MPI library that are not in its output."""
        self.unsaid: bytes | None = b""
        """Those that wait to be forwarded; None: it is being killed, and they report ends of others."""
        self.death_note = ""
        """How it ended, if its exit status does not show that."""
        self.end_waits_s = 0.0
        """How long the report of its end waits, in seconds: another member's end may be the cause."""
        self.unforked: list[int] = []
        """Its own ends of socket and pipes, until it is forked."""

    def close_unforked(self) -> None:
        """Close its own ends: it has them, or will never be forked."""
        while self.unforked:
            os.close(self.unforked.pop())

    @property
    def may_run_calls(self) -> bool:
        """Whether it may be running a call, as far as its agent knows."""
        return self.custody is None or bool(self.custody.ids)


def describe_status(status: int) -> str:
    """Return how an executor ended, in words, from its wait status."""
    return describe_end(status) + ("" if os.WIFSIGNALED(status) else " before its call had ended")


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


class Drafts:
    """The file of one agent."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("mpi_runtime drafts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # An executor that shortened the file by mistake would kill others, which write beyond the new end.
        fcntl(self.descriptor, F_ADD_SEALS, F_SEAL_SHRINK)
        self._count = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Return the index of an empty draft, for an executor that will be forked.

        Raises:
            OSError: the file cannot grow.
        """
        if not self._free:
            os.ftruncate(self.descriptor, (self._count + 1) * SIZE)
            self._free.append(self._count)
            self._count += 1
        os.pwrite(self.descriptor, bytes(WORD), self._free[-1] * SIZE)
        return self._free.pop()

    def content(self, draft: int) -> bytes:
        """Return what a dead executor has sealed, for `left` in `transport/unsent_frame.py`; empty if it is nothing."""
        return sealed(os.pread(self.descriptor, SIZE, draft * SIZE))

    def give_back(self, draft: int) -> None:
        """Take the draft of an executor that has ended."""
        self._free.append(draft)

    def close(self) -> None:
        """Close the file. Its memory is free when the executors have ended too."""
        os.close(self.descriptor)
