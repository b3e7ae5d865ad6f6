"""Elastic batches: several jobs run the commands of one batch, with files as their only connection.

The job that has claimed the journal (`files/claim.py`) is the coordinator: it alone decides what may start. It offers
slices of commands to all jobs, also to itself. A job begins a slice only after it has made the name of this slice.
Every file has one writer.

Pure: numbers and values in, orders out.

- `records.py`: what jobs write for each other
- `coordinator.py`: what is offered to which job, what is taken back
- `member.py`: what a job takes, and what it starts
- `watch.py`: whether a job still writes, measured by looks

These act on files, in a directory or in a simulation:

- `files.py`: the files of one job and those that it reads
- `coordinator_turns.py`: the turns of the coordinator
- `member_turns.py`: the turns of a member
"""
