"""The job as the driver sees it: the processes between `init()` and `shutdown()`.

- `session.py`: starts and ends the processes of a job; turns other ranks into workers
- `head_handle.py`: starts the head process, watches it, ends it
- `running.py`: the client for public calls; the first one starts a job
"""
