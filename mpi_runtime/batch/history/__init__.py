"""The history of a batch and its results. No module here starts anything.

- `batch_history.py`: the history of a batch as its journal has it: commands, starts, ends
- `journal.py`: the journal while the batch runs: it records
- `keys.py`: the keys of commands: which are done
- `outlook.py`: what a run will do with each command, before it does
- `allocations.py`: the jobs that `--allocate` has submitted: their record, and the claim of the process that submits
- `submitted.py`: the Slurm jobs of a batch: those that wait are cancelled when nothing is left
- `results.py`: the result of a command, and the error of a failed one
- `outputs.py`: the output files of commands, and one archive for many small ones
- `requests.py`: requests of users, and their answers, as files
- `graph.py`: the order of commands: which may start, which are skipped after a failure, the chain behind each
"""
