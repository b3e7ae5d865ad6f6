"""Reports that the call of an executor waits, so that the scheduler can lend its CPU.

The simulator runs this too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.core.client.outgoing import Outgoing
from mpi_runtime.core.client.scope import Scope
from mpi_runtime.scheduler.protocol.events import BLOCKED_IDS_MAX, Blocked, Unblocked


class Blocking:
    """The state of one process. The owner lets one thread at a time use it."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.lends_cpu = False
        """Whether this is an executor that lends its CPU while its call waits."""
        self.is_reported = False
        """Whether the scheduler knows that the running call waits."""

    def waits(self, scope: Scope, ids: Sequence[bytes]) -> None:
        """Report that a thread of a call waits for these objects, among others.

        Each wait is reported, because another object may have arrived already.
        """
        scope.waiting += 1
        self.is_reported = True
        self._outgoing.post(Blocked(list(ids[:BLOCKED_IDS_MAX])))

    def ends_wait(self, scope: Scope, running: Scope) -> None:
        """Note that a thread of a call no longer waits. Reported for the last one of the `running` call."""
        scope.waiting -= 1
        if not scope.waiting and scope is running:
            self.resumes()

    def resumes(self) -> None:
        """Report that no thread of the running call waits, or that it ends.

        Threads that it leaves behind do not count.
        """
        if self.is_reported:
            self.is_reported = False
            self._outgoing.post(Unblocked())
