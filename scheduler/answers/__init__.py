"""Answers to questions about the state. They change nothing.

- `why_waiting.py`: nodes, resources, and why a call does not run yet
- `summary.py`: a summary of the running job, for `mpi-runtime top` and the live page
- `inspection.py`: the questions of programs that look at the job from outside
- `store_summary.py`: the values of the object store, by node
"""
