"""What an agent does with effects that come when an executor has just died, and nobody has heard of it yet."""

import os
import time

from mpi_runtime.processes.node_agent import Hand, NodeAgent
from mpi_runtime.processes.poller import Poller
from mpi_runtime.scheduler.effects import Cancel
from mpi_runtime.transport.channel import Channel, pair


def test_a_cancel_for_an_executor_that_has_just_died() -> None:
    agent = NodeAgent(Poller(), lambda message: None, time.monotonic, {}, [])
    ours, theirs = pair()
    tokens = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
    cancelled, cancels = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    hand = agent._hands[1] = Hand(1, Channel(ours), tokens, cancels)
    theirs.close()
    os.close(cancelled)
    try:
        agent.obey([Cancel(1, b"a" * 16, force=False), Cancel(1, b"b" * 16, force=True)])
    finally:
        hand.channel.close()
        os.close(tokens)
        os.close(cancels)
