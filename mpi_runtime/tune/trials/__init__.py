"""One trial in the process of its task: the user's code, its reports, its checkpoints. It decides nothing.

- `trainable.py`: what a trial runs: functions and classes, with their parameters and resources
- `runner.py`: the task of a trial: runs a function or steps of a class
- `reporting.py`: `report`, `get_checkpoint`, `get_context`
- `storage.py`: the directory of an experiment, as a trial has it
- `output.py`: copies of what a trial prints
- `json_values.py`: values of reports and configurations, as the journal holds them
- `bundles.py`: the resources of a trial, and how many trials have room
- `checkpoint.py`: checkpoints: a directory, or a dictionary in shared memory
"""
