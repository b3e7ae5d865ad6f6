"""The job as the driver sees it: the processes between `init()` and `shutdown()`.

- `session.py`: starts and ends the processes of a job; turns other ranks into workers
- `head_handle.py`: starts the head process, watches it, ends it
- `addresses.py`: finds a session by its address
- `near.py`: connects to a session as one of its drivers
- `far.py`: reaches a session on another host
- `own_session.py`: `init(nodes=...)`: a session in a batch job that ends with the program
- `session_jobs.py`: sessions in batch jobs: submits them, waits for them, ends them
- `other_jobs.py`: other jobs in the same batch job, with which this one shares CPUs
- `end_of_time.py`: asks for the end of the job's time again while it runs
- `report.py`: files about the job that the driver writes: its page, its metrics
- `running.py`: the client for public calls; the first one starts a job
"""
