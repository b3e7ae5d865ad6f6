"""The scheduler: a value that takes events and returns effects. No input or output, no clock, no environment.

Others import `core.py`, `recording.py` and `protocol/` only. A room imports only rooms below it, in this order:

- `core.py`: the front: takes events, makes decisions, gives answers
- `recording.py`: records all events of a job, so that `mpi-runtime replay` repeats its decisions
- `answers/`: answers to questions: why a call waits, what the store has
- `losses/`: deaths of executors and ranks, cancelled and overdue calls, rebuilt values
- `gangs/`: groups of executors with an MPI world of their own, for calls that run on several ranks
- `nodes/`: nodes that join, placement groups, failing GPUs, full memory
- `calls/`: calls from submission to their end
- `actors/`: lives, calls, names and saved states of actors
- `dispatch/`: gives ready calls to executors
- `places/`: where a call may run: constraints, GPUs, packing of bundles
- `values/`: objects, their references and copies, lineage, the journal's keys
- `log/`: notes for the user, history, lists
- `records/`: all tables, and the moves between states
- `protocol/`: events, effects, ids, resources, limits
"""

if __name__ != "mpi_runtime.scheduler":
    raise ImportError("import this package as mpi_runtime.scheduler, not by its folder's name")
