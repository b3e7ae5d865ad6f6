"""The command `mpi-runtime`: `main.py` has the table of verbs, and each verb has a module.

- `main.py`: the table of verbs, help, `version`
- `facts.py`: what several verbs have: the argument JOB, paths, the option `--json`
- `run.py`: `run`: starts a program on N ranks with the installed MPI
- `open_mpi.py`: variables with which Open MPI cannot start; what its killed launchers have left
- `restarts.py`: `run --restarts N`: starts a killed program again, with its journal
- `batch.py`: `batch`: runs the commands of a file
- `batch_options.py`: its options, and the table of its verbs
- `batch_check.py`: `batch --check`: what can never run, on which nodes
- `batch_control.py`: the verbs of a batch; those that change one that runs, `batch wait`, `batch list`
- `batch_views.py`: `batch status`, `batch report`, `batch log`
- `experiments.py`: `tune`: lists, shows and resumes experiments
- `view.py`: `view`: the live page of a job, a batch or a search
- `running_job.py`: `top`: shows a running job in lines
- `top_screen.py`: `top --watch` on a terminal: a screen with keys, drawn by rich
- `lists.py`: `list`, `logs`, `stack`, `timeline` of a running job
- `watching.py`: a running job as `view` and `top` see it
- `gpus.py`: `gpus`: the GPUs of this host, their links and their problems
- `doctor.py`: `doctor`: what each rank sees, and what is wrong with the launch
- `journals.py`: `journal`: shows, verifies and compacts a journal
- `completion.py`: `completion`: scripts for bash, zsh and fish, from the parsers of all verbs
- `replay.py`: `replay`: repeats the decisions of a recorded job
- `whatif.py`: `whatif`: estimates a finished batch or job on other nodes
- `slurm.py`: `submit`, `status`, `template`: Slurm jobs
"""
