"""Gangs: groups of executors with an MPI world of their own, which run a call together.

The call itself is assigned to the executor of rank 0, the leader, so it starts, ends, is retried and cancelled as any
other. Each further rank has a task without objects, a part of the call. A gang has no placement group: its members take
their grants from nodes or bundles all at once, and each returns its grant when its process is gone.

- `starting.py`: finds room for all members at once, or an idle gang; sends the call to all
- `nested_calls.py`: calls that members submit, which must not wait for gangs that wait
- `members.py`: members that report their end, raise or die; ends and idle time of gangs
"""
