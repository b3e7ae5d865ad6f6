"""Runs commands: each is a task that starts a program.

- `submission.py`: the public `command` and `array`; submits a command as a task, with its resources and limits
- `attempts.py`: the body of the task: attempts at the command until one counts
- `launch_lines.py`: the line by which another launcher starts the ranks of a command
- `ranks.py`: a rank of a command with several: its output, and whether it has started MPI
- `program.py`: one attempt of a command: its shell, its limits, the end of all its processes
- `loop.py`: the loop of a batch: events, requests, ready commands, the end of the batch
- `progress.py`: what has become of the commands, in numbers and lines
- `commands.py`: the commands of a batch: ready, started here, offered to all jobs, paused
- `running.py`: the commands in the scheduler of this job, and its events
- `coordinator_run.py`: the coordinator of a batch that several jobs run
- `member_run.py`: a job that joins the batch of another
- `control.py`: requests of users to a batch that runs
- `stream.py`: commands from standard input while the batch runs
- `capacity.py`: finds commands that no node can ever run
"""
