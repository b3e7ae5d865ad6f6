"""What breaks or is stopped: dead executors, lost ranks, cancelled and overdue calls, lost values.

- `deaths.py`: the death of an executor, in steps
- `losses.py`: the loss of a rank, in steps
- `rebuilding.py`: makes lost values again, or gives them up
- `orphans.py`: cancels calls after the death of their caller
- `cancel.py`: cancels calls in each state, and the calls that they submitted
- `overdue.py`: enforces time limits; kills calls that ignore a cancel
"""
