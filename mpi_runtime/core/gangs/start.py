"""The node's part of a start: a gang's members on one node, from their environment to MPI_Finalize.

1. `Starts.start` begins a gang. With PMI-1 its members can be forked at once; with PMIx when the helper has registered
   the gang, and with an unknown library when the helper has found it.
2. `member` returns what a member needs: variables, and with PMI-1 a descriptor.
3. Members call MPI_Init, and ask. What concerns other nodes goes to the `Gather` of the gang on the head, and back
   through `on_message`. A gang on a single node has a `Gather` of its own.
4. `close`, when the members have ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from mpi_runtime import config as configuration
from mpi_runtime.core.gangs import library
from mpi_runtime.core.gangs.command_channel import Talks
from mpi_runtime.core.gangs.library import Library
from mpi_runtime.core.gangs.node import NodeStart
from mpi_runtime.core.gangs.pmix_helper import GANGS_MAX, ForkIt, Helper
from mpi_runtime.core.gangs.start_protocols import Pmi1Side, PmixSide
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.effects import Membership


class Starts:
    """All gangs that start on this node."""

    def __init__(
        self, poller: Poller, directory: Callable[[], str], open_mpi: Callable[[], None], fork_helper: ForkIt
    ) -> None:
        """Start nothing yet.

        Args:
            poller: waits for descriptors.
            directory: returns a private directory of the job on this host. It is called with the first gang.
            open_mpi: has the parent of members open the MPI library. It is called with each gang that starts MPI, once
                the library has been opened in another process and is known to work.
            fork_helper: has the parent of members fork a helper.
        """
        self._poller, self._directory, self._open_mpi = poller, directory, open_mpi
        self._fork_helper = fork_helper
        self._library: Library | None = None
        self._helper: Helper | None = None
        self._retired: list[Helper] = []
        """Helpers that get no further gang and still have some."""
        self._undecided: list[NodeStart] = []

    def start(
        self,
        gang: bytes,
        shape: Membership,
        send: Callable[[bytes], None],
        changed: Callable[[NodeStart], None],
        protocol: str = "",
    ) -> NodeStart:
        """Begin the start of a gang.

        Args:
            gang: its name: bytes that no other job has, and a number in 8 bytes, big end first, that no other gang of
                the job has. A retry is another gang.
            shape: of any member of this node. Members that do not start MPI talk with this process.
            send: is called with bytes for the `Gather` of the gang. Not if there is one node.
            changed: is called when an attribute of the result has changed, but not before this returns.
            protocol: `pmi1` or `pmix`; empty: that of the MPI library that is found here.

        Returns:
            The start. If it has a `problem`, members cannot be started.
        """
        node = NodeStart(gang, shape, send, changed)
        if not shape.starts_mpi:
            node.talks = Talks(self._poller, node.hosts, node.own, node.exchange, node.status, node.renew)
        protocol = protocol or configuration.gang_protocol()
        try:
            known = Library(protocol=protocol) if protocol else self._library
            if known is not None:
                self._decide(node, known)
            else:
                self._undecided.append(node)
                self._take_helper()
        except OSError as error:
            node.problem = f"the helper process of gangs could not be started: {error}"
        return node

    def close(self) -> None:
        """End the helpers. The gangs must have been closed."""
        for helper in [*self._retired, *([self._helper] if self._helper else [])]:
            helper.close()
        self._helper, self._retired = None, []

    def _take_helper(self) -> Helper:
        if self._helper is not None and (self._helper.is_suspect or self._helper.total >= GANGS_MAX):
            self._retired.append(self._helper)
            self._helper = None
        for helper in [one for one in self._retired if not one.gangs]:
            self._retired.remove(helper)
            helper.close()
        if self._helper is None or self._helper.is_closed:
            known = self._library.pmix if self._library else ""
            self._helper = Helper(self._poller, self._fork_helper, self._directory(), known, self._on_found)
        return self._helper

    def _on_found(self, found: Library) -> None:
        """The helper has found the library, or has died before: then the next gang starts another one."""
        if found.version:
            self._library = found
        undecided, self._undecided = self._undecided, []
        for node in undecided:
            if not node.is_closed:
                self._decide(node, found)
                node.note()
        if self._helper is not None and not self._helper.gangs and found.protocol != library.PMIX:
            self._helper.close()
            self._helper = None

    def _decide(self, node: NodeStart, found: Library) -> None:
        node.again = functools.partial(self._decide, node, found)
        if found.version and found.protocol and node.talks is None:
            self._open_mpi()
        if found.protocol == library.PMI1:
            node.begin(Pmi1Side(node, self._poller), found.protocol)
            node.is_ready = True
        elif found.protocol == library.PMIX:
            PmixSide(node, self._take_helper)
        elif node.talks is not None:
            node.why_none, node.is_ready = found.problem, True
        else:
            node.problem = found.problem
