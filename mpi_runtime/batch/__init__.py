"""Shell commands as tasks: one at a time, arrays of them, and whole files of them by `mpi-runtime batch FILE`."""

from mpi_runtime.batch.launching import array, command
from mpi_runtime.batch.parameters import product, rows, zipped
from mpi_runtime.batch.results import CommandError, CommandResult

__all__ = ["CommandError", "CommandResult", "array", "command", "product", "rows", "zipped"]
