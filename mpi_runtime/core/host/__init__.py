"""The machine: its limits, the launcher that started this process, and how further processes are started.

- `open_mpi.py`: variables with which Open MPI cannot start; what its killed launchers have left
- `launch.py`: detects the launcher, the rank and the number of ranks, before MPI starts
- `launchers.py`: variables that launchers set, and their removal for child processes
- `mpiexec.py`: finds the launcher of the installed MPI, and makes its command line
- `machine.py`: limits of this process: processors, memory, descriptors
- `memory_usage.py`: memory in use on the host and in its control groups
- `claimed_processors.py`: claims on processors among programs of one user
- `process_tree.py`: children, orphans and process groups; the launcher above a rank
- `spawn.py`: starts further Python processes: the head, forkservers, helpers
- `signals.py`: signals that reach all processes of a job, and are for the driver
- `mpi_files.py`: files that MPI libraries leave in shared memory
- `libc.py`: calls of the C library that Python lacks
"""
