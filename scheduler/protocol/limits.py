"""Every limit and threshold of the scheduler, with its unit and the reason for its value."""

from __future__ import annotations

from typing import Final

from mpi_runtime.gpu import device

UNIT: Final = device.UNIT
"""One CPU, one GPU, or 1.0 of a custom resource: amounts are integers, so that shares add up exactly."""

PUSH_BYTES_MAX: Final = 4096
"""Results up to this size go to the submitting client unasked: larger ones might be passed on and never looked at."""

LOCAL_QUEUE_US: Final = 4_000
"""Work sent ahead to one executor: several round trips to a head that shares two cores with it."""

LOCAL_QUEUE_CALLS_MAX: Final = 256
"""Calls in hand of one executor at most, whatever their duration: bounds what has to be taken back."""

ACTOR_CALLS_MAX: Final = 256
"""Calls in hand of one actor: nobody else could run them, so more than for tasks."""

FORK_WORTH_US: Final = 10_000
"""Backlog per executor that justifies forking another one: a fork and its first call take about this long."""

STEAL_WORTH_US: Final = 2_000
"""Estimated backlog of a busy executor from which an idle one takes over the half: some round trips."""

PREFETCH_US_MAX: Final = 50_000
"""Calls up to this long get one successor sent ahead, to hide the round trip to the head."""

PREFETCH_WORTH: Final = 20
"""Behind longer ones the next call is sent ahead too, if moving its arguments takes at least this part (1/20) of the
time that a call takes: they come meanwhile. Of what takes less, less than 5 % would be gained, and a call that was sent
ahead has to be taken back if there is room elsewhere."""

VICTIMS_MAX: Final = 8
"""Executors that are compared to find one with much behind its running call: there may be tens of thousands."""

STUCK_US: Final = 5_000
"""An executor that has shown no progress for this long, with calls behind the one it runs, is thought stuck."""

IDLE_US_MAX: Final = 10_000_000
"""An executor beyond the node's CPU count that has been idle for this long is stopped."""

RESERVATION_US: Final = 10_000_000
"""How long a large request may keep others off a node at first; afterwards it waits as long without that right. Each
time that was not enough, both last twice as long: with calls that take a time T it is served within some 8 T."""

RESERVABLE_MAX: Final = 64
"""How many nodes are compared for a reservation."""

DEPTH_MAX: Final = 255
"""Nesting of calls that is told apart: deeper calls are served first; beyond this all count alike."""

AT_ONCE_US: Final = 1_000_000
"""A process that dies so soon after it was given what it runs did not get to work: a start takes some 10 ms, and its
imports a part of a second."""

BACKOFF_US: Final = 100_000
"""How long a call waits whose process has died at once twice in a row; then twice as long each time."""

BACKOFF_US_MAX: Final = 5_000_000
"""The longest such wait: what has been mended meanwhile is noticed soon, and a fork in so long costs nothing."""

STILLBORN_MAX: Final = 5
"""How often in a row executors for a queue may die before they begin a call: then its calls fail. With the waits this
takes a second, so that what is short for a moment has come free."""

LONG_US: Final = 10_000_000
"""Calls of functions that take longer are not started when the job's time ends before they can: of shorter ones little
is lost, and they are stopped at the end at worst."""

INTERRUPT_GRACE_US: Final = 5_000_000
"""How long a call has to end after it was interrupted: long enough to save what it has. Then its process is killed if
its time limit was over, and the user is told if somebody had cancelled it."""

HISTORY_CALLS_MAX: Final = 100_000
"""Calls that have ended and are remembered for `timeline()`: as many as Ray remembers; about 30 MB in the head."""

TOLD_SINGLY_MAX: Final = 5
"""How often the user is told singly that calls of one function have crashed, and the like."""

STORIES_MAX: Final = 10_000
"""Things whose unusual moves are remembered for explanations and errors; some 5 MB in the head at most."""

STORY_MOVES_MAX: Final = 8
"""Moves of one thing that are remembered; the same move in a row counts once."""

STORY_CAUSE_CHARS_MAX: Final = 300
"""Of the first line of a cause."""

LARGEST_OBJECTS: Final = 3
"""Values that are named when memory runs out."""

HOLDERS_NAMED: Final = 3
"""Processes and calls that are named as those who keep such a value."""

UNREACHED_US: Final = 2_000_000
"""How long nobody is told that a copy cannot be had: by then the head has noticed if the rank that has it is dead."""

LINEAGE_BYTES_MAX: Final = 64 << 20
"""What is kept in the head to make lost values again, as `lineage.py` counts it: some 100 000 calls with small
arguments. What was kept first goes first."""

LINEAGE_CALL_BYTES: Final = 1000
"""What one kept call counts besides its arguments: `benchmarks/lineage.py` measures it."""

LINEAGE_DEPTH_MAX: Final = 1000
"""How long a chain of calls may be that are run again for one lost value."""

EXPLAINED_MAX: Final = 20
"""Entries of a list in an explanation."""

assert 0 < STEAL_WORTH_US <= LOCAL_QUEUE_US <= FORK_WORTH_US, "a fork must be worth more than a move between executors"
assert LOCAL_QUEUE_CALLS_MAX < 2**16 - 2, "the count in a channel's header has 16 bits"
REFUSALS_TELL_US = 1_000_000
"""How often the user is told of executors that have sent what they may not."""

ROOM_SHARE = 16
"""Where an arena is full this part of it is freed besides what is wanted, so that not every value waits."""
READ_PAST_US = 300_000
"""How long nothing can leave an arena before clients read values on disk in the file itself."""
ROOM_PATIENCE_US = 60_000_000
"""How long those who wait for room in an arena wait where nothing can leave it, and calls run that may change that."""

SHARED_BYTES = 8 << 20
"""So many bytes of a value are on their way from one place at the same time, or one copy: a few fast copies spread it
sooner than many slow ones, and of what is small the messages about it take longer than its bytes."""
PIPELINED_BYTES = 16 << 20
"""Of values of this size and above parts are passed on while others arrive."""
HOP_BYTES = 8 << 20
"""The longest chain has one node for each of them: see `spreading.py`."""

NEAR_WORTH_BYTES = 1 << 20
"""Arguments of this size take about a millisecond on a fast network: calls go to the node that has them."""
MOVED_BYTES_PER_US = 1000
"""How fast values are thought to move between nodes: 1 GB/s, as over Ethernet of 10 Gbit/s. A call waits for the node
with its arguments as long as that takes."""
