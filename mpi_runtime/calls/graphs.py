"""Graphs of bound calls: `f.bind(g.bind(1)).execute()` submits them all, each once.

Bound calls of one actor run in the order in which they were bound, whether or not their results are used: a call
submits those before it first.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any


class Node:
    """A call that `execute` submits, with the nodes that it needs."""

    def __init__(
        self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], before: Node | None = None
    ) -> None:
        self._make = make
        self._args = args
        self._kwargs = kwargs
        self._before = before
        """The call of the same actor that was bound before this one."""

    def execute(self) -> Any:
        """Submit the call and all nodes that it needs. Returns the result of `.remote`."""
        return _resolved(self, {})


def _resolved(value: Any, made: dict[int, Any]) -> Any:
    """An argument with results in place of nodes, also inside lists, tuples and dictionaries. `made` keeps them."""
    if type(value) in (list, tuple):
        return type(value)([_resolved(one, made) for one in value])
    if type(value) is dict:
        return {key: _resolved(one, made) for key, one in value.items()}
    if not isinstance(value, Node):
        return value
    chain: list[Node] = []
    node: Node | None = value
    while node is not None and id(node) not in made:
        chain.append(node)
        node = node._before
    for one in reversed(chain):
        args, kwargs = _resolved(one._args, made), _resolved(one._kwargs, made)
        if id(one) not in made:  # an argument may have needed it
            made[id(one)] = one._make(*args, **kwargs)
    return made[id(value)]


class ActorNode(Node):
    """An actor that `execute` creates. Its methods can be bound."""

    def __init__(
        self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], methods: Container[str]
    ) -> None:
        super().__init__(make, args, kwargs)
        self._methods = methods
        self._last: Node | None = None
        """The call that was bound last."""

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_") or name not in self._methods:
            raise AttributeError(f"the actor of this node has no method {name!r}")
        return _Method(self, name)


class _Method:
    """A method of an actor that `execute` creates."""

    def __init__(self, actor: ActorNode, name: str) -> None:
        self._actor = actor
        self._name = name

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """Make a node for a call of the method."""

        def make(actor: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(actor, self._name).remote(*args, **kwargs)

        node = self._actor._last = Node(make, (self._actor, *args), kwargs, self._actor._last)
        return node
