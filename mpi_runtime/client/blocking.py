"""Reports that the call of an executor waits, so that the scheduler can lend its CPU.

The simulator runs this too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.client.outgoing import Outgoing
from mpi_runtime.client.scope import Scope
from mpi_runtime.scheduler.protocol.events import BLOCKED_IDS_MAX, Blocked, Unblocked


class Blocking:
    """The state of one process. The owner lets one thread at a time use it."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.lends_cpu = False
        """Whether this is an executor that lends its CPU while its call waits."""
        self.is_said = False
        """Whether the scheduler was told that the running call waits."""

    def waits(self, scope: Scope, ids: Sequence[bytes]) -> None:
        """Note that a thread of a call waits for these objects, among others.

        Each is reported: one of them may be there.
        """
        scope.waiting += 1
        self.is_said = True
        self._outgoing.post(Blocked(list(ids[:BLOCKED_IDS_MAX])))

    def waits_no_more(self, scope: Scope, running: Scope) -> None:
        """Note that a thread of a call no longer waits; `running` is the running call. The last one is reported."""
        scope.waiting -= 1
        if not scope.waiting and scope is running:
            self.goes_on()

    def goes_on(self) -> None:
        """Note that no thread of the running call waits, or that it ends.

        Threads that it leaves behind do not count.
        """
        if self.is_said:
            self.is_said = False
            self._outgoing.post(Unblocked())
