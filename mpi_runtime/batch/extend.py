"""What `whatif` uses of batches, beside their public names: finished commands, their order, what they ask."""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    ".cli.views": "NoBatchError directory_of",
    ".file.model": "Asked Command Demand call_options",
    ".history.graph": "Graph Paths",
    ".history.batch_history": "History planned_history",
}
"""The names of each module, which is loaded when one of them is used."""

__all__ = [
    "Asked", "Command", "Demand", "Graph", "History", "NoBatchError", "Paths", "call_options", "directory_of",
    "planned_history",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.batch.cli.views import NoBatchError, directory_of
    from mpi_runtime.batch.file.model import Asked, Command, Demand, call_options
    from mpi_runtime.batch.history.batch_history import History, planned_history
    from mpi_runtime.batch.history.graph import Graph, Paths
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
