"""What a call can ask about where it runs, in the module from which programs written for Ray import it."""

from mpi_runtime.context import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
