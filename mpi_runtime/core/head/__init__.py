"""The head, rank 0: it runs the scheduler, performs its effects, and is the node agent of its own host.

It is a child of the driver and runs no user code. `process.py` has the life of the process, `head.py` one job.

- `process.py`: starts the head, serves one job after another, ends MPI
- `head.py`: one job: decodes frames, asks the scheduler, performs effects; the end in steps
- `drivers.py`: programs that have connected to a session: their frames, their output, their leave
- `door.py`: the local socket at which they connect
- `direct_lines.py`: executors of other ranks of this host, whose frames do not go by MPI
- `gangs.py`: what members of gangs on several nodes exchange when they start
- `journal.py`: records finished calls in the journal, and recalls those of earlier runs
- `recorder.py`: writes a recording of the job, for `mpi-runtime replay`
- `printer.py`: prints the output of executors and log lines in a thread, and keeps the last of them for the window
- `progress.py`: the progress line of `init(progress=True)`
- `measures.py`: what is used on each host, measured while somebody looks through the window
- `stacks.py`: stacks of executors on all hosts, read when somebody asks through the window
- `metrics.py`: metrics that the program records itself, of all processes
- `status.py`: status lines such as progress bars, below the other output
- `inspection.py`: a local socket at which the job's user can look at the running job
- `inspecting.py`: the other end of that socket, for the command line and the page of a job
- `unused_resources.py`: reports resources of the batch job that no call can use
"""
