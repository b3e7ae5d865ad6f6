"""Drafts of an executor that is killed at any moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

KILLED = """
import mmap, os, random, signal, socket, sys, time
from mpi_runtime.core.agent.executors import Drafts
from mpi_runtime.scheduler.protocol.events import Done
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import Channel, packed, pair
from mpi_runtime.core.transport.unsent_frame import Draft, left, map_memory

def work(end, draft, progress):
    number = 0
    while True:
        for _ in range(random.randrange(1, 40)):
            number += 1
            message = Done(number.to_bytes(16, "big"), b"x" * random.randrange(60), number)
            assert draft.add([message], 1)
            progress[0] = number  # from here on it has ended
        end.sendall(packed(*reversed(draft.frame([], 0))))
        draft.sent()

drafts, from_memory, in_part, total = Drafts(), 0, 0, 0
for attempt in range(int(sys.argv[1])):
    random.seed(attempt)
    slot, (ours, theirs) = drafts.take(), pair()
    progress = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    child = os.fork()
    if not child:
        ours.close()
        work(theirs, Draft(map_memory(drafts.descriptor, slot)), progress)
    theirs.close()
    channel, frames = Channel(ours), []
    while not frames:  # it has begun
        frames += channel.receive()
    until = time.monotonic() + random.random() * 0.005
    while time.monotonic() < until:
        frames += channel.receive()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    frames += channel.receive_rest()
    in_part += channel.splitter._size > 0
    unsent = left(drafts.content(slot), len(frames))
    from_memory += unsent is not None
    frames += [unsent] * (unsent is not None)
    ids = [int.from_bytes(one.id, "big") for _, frame in frames for one in codec.from_client.decode(frame)]
    assert ids == list(range(1, len(ids) + 1)), (attempt, ids[-50:])
    assert sum(count for count, _ in frames) == len(ids)
    assert progress[0] <= len(ids) <= progress[0] + 1, (attempt, progress[0], len(ids))
    total += len(ids)
    drafts.give_back(slot)
    ours.close()
print(from_memory, in_part, total)
"""


@pytest.mark.timeout(240)
def test_a_process_is_killed_at_any_moment() -> None:
    """Each call that had ended is heard of, once, in order, also where the last frame was sent in part."""
    done = subprocess.run([sys.executable, "-c", KILLED, "300"], capture_output=True, text=True, check=False)
    assert not done.stderr
    assert done.returncode == 0
    from_memory, _, total = map(int, done.stdout.split())
    assert from_memory >= 10, "few have anything in their draft when they are killed"
    assert total > 300
