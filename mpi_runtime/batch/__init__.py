"""Shell commands as tasks: one at a time, arrays of them, and whole files of them by `mpi-runtime batch FILE`.

A batch file is parsed into commands (`file/`). The loop of a batch submits those that may start (`run/`), and records
each start and end in a journal (`history/`), from which a later run and all views (`show/`) read.

- `cli/`: the verb `batch`
- `__main__.py`: what ranks and the scripts of submitted batches start
- `extend.py`: what `whatif` uses, beside the public names
- `allocate/`: submits jobs while commands of a batch wait
- `file/`: batch files and the options of commands
- `elastic/`: several jobs on one batch: who may start what, and their files
- `history/`: the history of a batch, results, outputs, and which commands may start
- `show/`: the live view, the overview, the report
- `run/`: runs commands: the loop of a batch, the task of a command, its process
"""

from mpi_runtime.batch.file.parameters import product, rows, zipped
from mpi_runtime.batch.history.results import CommandError, CommandResult
from mpi_runtime.batch.run.submission import array, command

__all__ = ["CommandError", "CommandResult", "array", "command", "product", "rows", "zipped"]

for _kind in (CommandResult, CommandError):
    _kind.__module__ = __name__  # journals of programs contain them: the modules here may move
