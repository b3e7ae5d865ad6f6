"""Graphs of calls, as Ray's `dag`."""

from mpi_runtime.core.calls.graphs import DAGNode, InputNode, MultiOutputNode

__all__ = ["DAGNode", "InputNode", "MultiOutputNode"]
