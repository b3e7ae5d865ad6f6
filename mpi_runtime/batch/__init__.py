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

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "file.parameters": "product rows zipped",
    "history.results": "CommandError CommandResult",
    "run.submission": "array command",
}

__all__ = ["CommandError", "CommandResult", "array", "command", "product", "rows", "zipped"]

if TYPE_CHECKING:
    from mpi_runtime.batch.file.parameters import product, rows, zipped
    from mpi_runtime.batch.history.results import CommandError, CommandResult
    from mpi_runtime.batch.run.submission import array, command
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
