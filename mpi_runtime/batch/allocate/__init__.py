"""Allocations on demand: jobs of a batch system are submitted while commands of a batch wait.

- `spec.py`: the value of `--allocate`
- `demand.py`: how many jobs are useful now. Pure
- `streak.py`: when jobs are of no use. Pure
- `allocator.py`: the process that submits them
"""
