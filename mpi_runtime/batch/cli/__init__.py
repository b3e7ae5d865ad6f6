"""The verb `batch` and the verbs below it.

- `main.py`: what the words of the verb ask for, and the start of its ranks
- `running.py`: reads a batch and runs it, or only checks it
- `part.py`: the part of a job in a batch
- `options.py`: its options, and the table of its verbs
- `allocated.py`: `--allocate`: submits jobs that run the batch
- `check.py`: `--check`: what can never run, on which nodes
- `reading.py`: what a command line names: the file, its commands, the directory of its output
- `control.py`: the verbs of a batch; those that change one that runs, `batch wait`, `batch list`
- `views.py`: `batch status`, `batch report`, `batch log`
"""
