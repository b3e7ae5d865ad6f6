"""`get_runtime_context`, where programs written for Ray import it."""

from mpi_runtime.core.api.context import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
