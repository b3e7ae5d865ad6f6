"""The ranks that MPI starts: the worker, and code that worker and head share.

Rank 0 is in `head/`; the node agent of both is in `agent/`.

- `worker.py`: a rank above 0: an agent with a connection to the head; its end in steps
- `joining.py`: the start of a rank, its report to the head, its end
- `heartbeat.py`: notices that a host has fallen silent
- `bad_frames.py`: counts and reports frames between ranks that cannot be read
"""
