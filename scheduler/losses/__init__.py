"""What breaks or is stopped: dead executors, lost ranks, cancelled and overdue calls, lost values.

- `dead_executors.py`: the death of an executor, in steps
- `lost_ranks.py`: the loss of a rank, in steps
- `rebuilding.py`: makes lost values again, or gives them up
- `cancel.py`: cancels calls in each state, with the calls that they submitted, and calls with a dead caller
- `drivers.py`: drivers that join, and the end of what belongs to one that has left, in slices
- `time_limits.py`: enforces time limits; kills calls that ignore a cancel
"""
