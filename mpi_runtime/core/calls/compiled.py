"""Compiled graphs, as Ray has them for graphs of methods of actors that exist.

Ray gives them channels of their own. Here they are calls as others are: a graph is checked once, and each execution
submits its calls in the order in which they were bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpi_runtime.core.calls.graphs import InputNode, MultiOutputNode, Node


class CompiledGraph:
    """A graph that is executed again and again: `node.experimental_compile()` makes it."""

    def __init__(self, root: Node) -> None:
        """Check the graph.

        Raises:
            ValueError: it has no input, a call in it needs nothing of the graph, or a node is inside a container.
        """
        nodes = _needed(root)
        if not any(isinstance(node, InputNode) for node in nodes):
            raise ValueError("No InputNode found in the DAG: let a call take the InputNode, or use execute().")
        calls = [node for node in nodes if not isinstance(node, InputNode)]
        for node in calls:
            _check(node)
        self._root = root
        self._calls = sorted(calls, key=Node.number)
        self._has_parts = any(isinstance(node, InputNode) and node.is_part() for node in nodes)
        self._is_ended = False

    def execute(self, *args: object, **kwargs: object) -> Any:
        """Submit the calls in the order in which they were bound. Returns the reference of the last one, or a list."""
        if self._is_ended:
            raise RuntimeError("teardown() has ended this graph: compile another one")
        if self._has_parts and not kwargs:  # a part is always one of the arguments, as in Ray, also of an only one
            args = (args,)
        made: dict[int, object] = {}
        for node in self._calls:
            node.submit(made, (args, kwargs))
        return made[id(self._root)]

    async def execute_async(self, *args: object, **kwargs: object) -> Any:
        """As `execute`. What it returns can be awaited."""
        return self.execute(*args, **kwargs)

    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph. Its actors stay.

        Args:
            kill_actors: refused: `kill` ends an actor.
        """
        if kill_actors:
            raise ValueError("teardown(kill_actors=True) is not here: end the actors with kill()")
        self._is_ended = True


def _needed(root: Node) -> list[Node]:
    """The node and all that it needs, each once."""
    found = {id(root): root}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        new = {id(one): one for one in _nodes_in([*node.get_args(), node.get_kwargs()]) if id(one) not in found}
        found |= new
        waiting += new.values()
    return list(found.values())


def _nodes_in(values: object) -> Iterator[Node]:
    if isinstance(values, Node):
        yield values
    elif isinstance(values, dict):
        yield from _nodes_in(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _nodes_in(value)


def _check(node: Node) -> None:
    """ValueError: Ray cannot compile this call."""
    args, kwargs = node.get_args(), node.get_kwargs()
    if any(_nodes_in(kwargs)):
        raise ValueError(
            "Compiled DAG currently does not support binding to other DAG nodes as kwargs: pass them by position."
        )
    for arg in args:
        if not isinstance(arg, Node) and (inside := list(_nodes_in(arg))):
            raise ValueError(
                f"Found {len(inside)} DAGNodes from the arg {arg!r} in a bound call. Please ensure that the argument "
                "is a single DAGNode and that a DAGNode is not allowed to be placed inside any type of container."
            )
    if not isinstance(node, MultiOutputNode) and not any(_nodes_in(args)):
        raise ValueError(
            "Compiled DAGs require each task to take a ray.dag.InputNode or at least one other DAGNode as an input: "
            "give this call one, or use execute()."
        )
