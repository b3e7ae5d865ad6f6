"""Graphs of calls, as Ray's `dag`."""

from mpi_runtime.core.calls.graphs import ActorNode, DAGNode, InputNode, MultiOutputNode

__all__ = ["ActorNode", "DAGNode", "InputNode", "MultiOutputNode"]
