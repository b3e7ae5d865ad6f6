"""Every limit and threshold of the scheduler, with its unit and the reason for its value."""

from __future__ import annotations

from typing import Final

from mpi_runtime.gpu import device

UNIT: Final = device.UNIT
"""One CPU, one GPU, or 1.0 of a custom resource. Amounts are integers, so shares add up exactly."""

PUSH_BYTES_MAX: Final = 4096
"""Results up to this size go to the submitting client unasked: larger ones might be passed on and never looked at."""

LOCAL_QUEUE_US: Final = 4_000
"""Work sent ahead to one executor: several round trips to a head that shares two cores with it."""

LOCAL_QUEUE_CALLS_MAX: Final = 256
"""The most assigned calls of one executor, whatever their duration: a bound on calls that have to be taken back."""

ACTOR_CALLS_MAX: Final = 256
"""The most assigned calls of one actor. No other executor could run them, so there are more than for tasks."""

WANTED_MAX: Final = 8
"""The ends of calls are wanted at once if a call waits for at most this many: of more ends only the last matters, and
each would cost a message. Nor are they sent at once by an executor that has this many calls behind: others have as
much to do."""

FOLLOWERS_MAX: Final = 64
"""The most calls of an executor that wait for values of calls before them there: some round trips of short ones."""

FOLLOW_US_MAX: Final = 1_000
"""Calls up to this long follow, and are followed: for longer ones the round trip to the head does not matter."""

FORK_WORTH_US: Final = 10_000
"""Backlog per executor that justifies forking another one: a fork and its first call take about this long."""

HIRE_WORTH_US: Final = 100
"""Backlog per executor that justifies an idle one: a message wakes it, and another brings its result. Below, the
present executors get the last calls."""

EXECUTORS_IN_A_ROW: Final = 4
"""Executors that a rank gets before another rank of its host gets one. The first one of a rank also starts its
forkserver, an interpreter of its own: that takes as much CPU time as some ten forks. Where the job survives the loss of
a rank, they are dealt out one by one, so that few are lost with it."""

STEAL_WORTH_US: Final = 2_000
"""Estimated backlog of a busy executor from which an idle one takes over the half: some round trips."""

PREFETCH_US_MAX: Final = 50_000
"""Calls up to this long get one successor sent ahead, to hide the round trip to the head."""

PREFETCH_WORTH: Final = 20
"""Behind longer ones the next call is sent ahead too, if moving its arguments takes at least this part (1/20) of the
duration of a call: they arrive meanwhile. Otherwise less than 5 % would be gained, and a call that was sent ahead must
be taken back if there is room elsewhere."""

VICTIMS_MAX: Final = 8
"""Executors that are compared to find one with many calls behind the running one: there may be tens of thousands."""

STUCK_US: Final = 5_000
"""An executor with calls behind the running one counts as stuck after this long without progress."""

ACTOR_PATIENCE_US: Final = 100_000
"""The creation of an actor that will hold no CPU waits this long for a free one. Then it needs none: all may be held
for good, by placement groups or by a call that waits for this actor in a loop. Each queue creates one actor in that
time, so that heavy constructors do not run all at once."""

IDLE_US_MAX: Final = 10_000_000
"""An executor beyond the node's CPU count that has been idle for this long is stopped."""

IDLE_KEYS_MAX: Final = 64
"""Environments and devices whose executors idle on a node at a time; with more CPUs, one for each. The executors of the
one that was used least recently are stopped: otherwise calls that all differ, 70 in a second, would leave 700 processes
of some 4 MB each."""

GANG_IDLE_US: Final = 10_000_000
"""A gang that has been idle for this long is ended: another one starts in a tenth of a second."""

GANG_WAIT_US: Final = 1_000_000
"""How often a gang with a member that waits for calls is looked at: these may never find room."""

RESERVATION_US: Final = 10_000_000
"""How long a large request may reserve a node at first. Afterwards it waits as long without a reservation. Each time
that was not enough, both last twice as long: with calls that take a time T it is served within some 8 T."""

RESERVABLE_MAX: Final = 8
"""How many nodes are compared for a reservation: with more of them it would begin hardly sooner."""

DEPTH_MAX: Final = 255
"""The deepest nesting of calls that counts: deeper calls are served first; beyond this all count alike."""

AT_ONCE_US: Final = 1_000_000
"""A process that dies within this time after it got its call did not get to work: a start takes some 10 ms, and imports
take a part of a second."""

BACKOFF_US: Final = 100_000
"""How long a call waits after its process has died at once twice in a row; then twice as long each time."""

BACKOFF_US_MAX: Final = 5_000_000
"""The longest such wait. A repair is noticed soon, and one fork in this time costs nothing."""

STILLBORN_MAX: Final = 5
"""After this many executors in a row that died before they began a call, the calls of a queue fail. With the waits
that takes a second, so a short lack of memory or processes does not count."""

LONG_US: Final = 10_000_000
"""Calls that take longer are not started if they cannot end before the job's time does. Shorter ones are: little is
lost if they are stopped at the end."""

INTERRUPT_GRACE_US: Final = 5_000_000
"""How long an interrupted call has to end: long enough to save its work. After a time limit its process is killed
then; after a cancel a warning is logged."""

LOOK_US: Final = 1_000_000
"""The time between looks at a call or command with a time limit."""

STOPPED_US: Final = 1_000_000
"""A look that is later than this shows that the job was stopped, as by `scontrol suspend`: that time does not count."""

LEAVING_STEPS: Final = 100
"""Calls, references and actors of a driver that has left which end between two decisions: about a millisecond."""

HISTORY_CALLS_MAX: Final = 100_000
"""Ended calls that are remembered for `timeline()`: as many as in Ray; about 30 MB in the head."""

ENDED_MAX: Final = 10_000
"""The most ended calls of a list, and failed ones whose error is remembered, as in Ray; about 3 MB in the head."""

ENDED_ACTORS_MAX: Final = 1_000
"""The most actors of a list that have ended and have no handle left; about 1 MB in the head."""

ENDED_CAUSE_MAX: Final = 1_000
"""The most characters that are kept of why such an actor died."""

MOVES_MAX: Final = 20_000
"""Copies, spills and levels of arenas that are remembered for `timeline()`: about 8 MB in the head."""

LOGGED_SINGLY_MAX: Final = 5
"""How often a frequent event, such as a crash of one function, is logged singly."""

STORIES_MAX: Final = 10_000
"""Things whose unusual moves are remembered for explanations and errors; some 5 MB in the head at most."""

STORY_MOVES_MAX: Final = 8
"""Moves of one thing that are remembered; the same move in a row counts once."""

STORY_CAUSE_CHARS_MAX: Final = 300
"""Characters of the first line of a cause that are kept."""

LARGEST_OBJECTS: Final = 3
"""The largest values that are named when memory runs out."""

HOLDERS_NAMED: Final = 3
"""Holders of such a value that are named."""

UNREACHED_US: Final = 2_000_000
"""How long after a failed fetch clients get an error: by then the head has noticed whether the rank with it is dead."""

LINEAGE_BYTES_MAX: Final = 64 << 20
"""Lineage that is kept in the head, as `lineage.py` counts it: some 100 000 calls with small arguments. The oldest is
dropped first."""

LINEAGE_CALL_BYTES: Final = 1000
"""The size of one kept call without its arguments: `benchmarks/lineage.py` measures it."""

LINEAGE_DEPTH_MAX: Final = 1000
"""The longest chain of calls that run again for one lost value."""

EXPLAINED_MAX: Final = 20
"""Entries of a list in an explanation."""

assert 0 < HIRE_WORTH_US <= STEAL_WORTH_US <= LOCAL_QUEUE_US <= FORK_WORTH_US, "a fork costs more than a wake-up"
assert LOCAL_QUEUE_CALLS_MAX < 2**16 - 2, "the count in a channel's header has 16 bits"
REFUSALS_LOG_US = 1_000_000
"""The time between log lines about executors that broke the protocol."""

ROOM_SHARE = 16
"""The part of a full arena that is freed besides the wanted bytes, so that not every value waits."""
READ_PAST_US = 300_000
"""How long nothing can leave an arena before clients read values on disk in the file itself."""
ROOM_PATIENCE_US = 60_000_000
"""How long clients wait for room in an arena that nothing can leave, while calls run that may change that."""

SHARED_BYTES = 8 << 20
"""The most bytes of a value that one place sends at a time, or one copy: a few fast copies spread it
sooner than many slow ones, and for a small value messages take longer than its bytes."""
PIPELINED_BYTES = 16 << 20
"""Values of this size and above are passed on while they arrive."""
HOP_BYTES = 8 << 20
"""A chain has at most one node for each of them: see `spreading.py`."""

NEAR_WORTH_BYTES = 1 << 20
"""Arguments of this size take about a millisecond on a fast network: calls go to the node that has them."""
MOVED_BYTES_PER_US = 1000
"""The assumed speed of moves between nodes: 1 GB/s, as over Ethernet of 10 Gbit/s. A call waits for the node with its
arguments as long as a move would take."""
