"""Graphs of calls, as Ray's `dag`."""

from mpi_runtime.core.calls import graphs
from mpi_runtime.core.calls.graphs import (
    ClassMethodNode,
    ClassNode,
    DAGNode,
    FunctionNode,
    InputAttributeNode,
    InputNode,
    MultiOutputNode,
)

PARENT_CLASS_NODE_KEY = graphs.PARENT
PREV_CLASS_METHOD_CALL_KEY = graphs.PREVIOUS

__all__ = [
    "PARENT_CLASS_NODE_KEY",
    "PREV_CLASS_METHOD_CALL_KEY",
    "ClassMethodNode",
    "ClassNode",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
]
