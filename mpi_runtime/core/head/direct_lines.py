"""Direct lines: executors of other ranks of this host, whose frames go straight to the head instead of by MPI.

The head makes an executor's line and hands its ends to the executor's rank, before the order to start it. Then calls,
results, tokens and memory are matters of the head's own agent, as if the executor were its own, and the agent of the
rank has its process: it forks, interrupts and kills it, and reads its output. See docs/decisions/0305.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mpi_runtime.core.agent.custody import Custodian
from mpi_runtime.core.agent.executors import keep_spare
from mpi_runtime.core.transport.base import Transport
from mpi_runtime.core.transport.messages import StartDirect, ToWorker
from mpi_runtime.scheduler.protocol.effects import Cancel, RankEffect, StartExecutor, StopExecutor, TakeBack


class DirectLines:
    """The lines from the head to executors of other ranks on its host, without their workers."""

    def __init__(self, transport: Transport, custodian: Custodian, token: str, is_on: bool) -> None:
        """Make none yet. `token`: of the job: executors of the next one have the same numbers."""
        self._transport = transport
        self._custodian = custodian
        self._token = token
        self._is_on = is_on

    def left_to(self, rank: int, effects: Sequence[RankEffect]) -> list[ToWorker]:
        """Do the head's part of effects for another rank. Return the messages for what is left to the rank."""
        hosts = self._transport.hosts
        if not self._is_on or hosts[rank] != hosts[self._transport.rank]:
            return list(effects)
        left: list[ToWorker] = []
        for effect in effects:
            if isinstance(effect, StartExecutor):
                left.append(self._start(rank, effect))
            elif isinstance(effect, StopExecutor | TakeBack | Cancel):
                rest = self._custodian.obey(effect)
                if rest is not None:
                    left.append(rest)
            else:
                left.append(effect)
        return left

    def _start(self, rank: int, start: StartExecutor) -> StartDirect | StartExecutor:
        """Make a line. Frames of members of gangs, and of executors to which the system refuses one, go by MPI.

        The agent of a member reads what the member has sent to the start service before it reads its frames.
        """
        if start.member is not None:
            return start
        try:
            keep_spare()
            ends = self._custodian.open(start.executor, rank)
        except OSError:
            return start
        key = f"{self._token} {start.executor}".encode()
        is_handed = self._transport.hand(rank, ends, key)
        for end in ends:
            os.close(end)
        if is_handed:
            return StartDirect(start, key)
        self._custodian.drop(start.executor)
        return start
