"""The command `mpi-runtime`: `main.py` has the table of verbs, and each verb has a module.

The verbs of a library stand with the library: `batch/cli/`, `tune/cli.py`, `rl/cli.py`, `whatif/cli.py`.

- `main.py`: the table of verbs, help, `version`
- `run.py`: `run`: starts a program on N ranks with the installed MPI
- `restarts.py`: `run --restarts N`: starts a killed program again, with its journal
- `session.py`: `session`: which of the next three has a verb
- `sessions.py`: starts, lists and ends sessions
- `session_keeper.py`: the program of rank 0 of a session
- `session_runs.py`: `session run` and `session logs`
- `batch.py`: what scripts of batches that earlier versions submitted start
- `view.py`: `view`: the live page of a job, a batch or a search
- `running_job.py`: `top`: shows a running job in lines
- `top_screen.py`: `top --watch` on a terminal: a screen with keys, drawn by rich
- `lists.py`: `list`, `logs`, `stack`, `timeline` of a running job
- `watching.py`: a running job as `view` and `top` see it
- `gpus.py`: `gpus`: the GPUs of this host, their links and their problems
- `doctor.py`: `doctor`: what each rank sees, and what is wrong with the launch
- `own_places.py`: directories that each rank of a host has for itself
- `journals.py`: `journal`: shows, verifies and compacts a journal
- `completion.py`: `completion`: scripts for bash, zsh and fish, from the parsers of all verbs
- `replay.py`: `replay`: repeats the decisions of a recorded job
- `slurm.py`: `submit`, `status`, `template`: Slurm jobs
"""
