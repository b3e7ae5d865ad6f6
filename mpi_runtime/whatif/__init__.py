"""How long a finished batch or job would take on other nodes: the scheduler of real jobs in virtual time.

- `cli.py`: the verb `whatif`
- `batches.py`: a batch on other nodes, from its journal
- `recorded_jobs.py`: a job on other nodes, from its recording
- `recorded_calls.py`: the calls in a recording: submitter, arguments, duration
- `virtual_cluster.py`: nodes and processes in virtual time, around the scheduler
- `prospects.py`: the estimates as a table
"""
