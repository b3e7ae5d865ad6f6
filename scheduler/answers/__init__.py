"""Answers to questions about the state. They change nothing.

- `answering.py`: which function answers which question
- `cluster.py`: nodes, resources, names, placement groups, counts
- `listing.py`: lists of calls, actors, objects and executors, for `util.state`
- `ended_calls.py`: the last attempts of calls that have ended, newest first
- `why_waiting.py`: why a call does not run yet
- `summary.py`: a summary of the running job, for `mpi-runtime top` and the live page
- `inspection.py`: bounded answers for programs that look at the job from outside
- `store_summary.py`: the values of the object store, by node
"""
