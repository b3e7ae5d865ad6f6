"""Graphs of bound calls: `f.bind(g.bind(1)).execute()` submits them all, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Node:
    """A call that `execute` submits, with the nodes that it needs."""

    def __init__(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._make = make
        self._args = args
        self._kwargs = kwargs

    def execute(self) -> Any:
        """Submit the call and all nodes that it needs. Returns the result of `.remote`."""
        return self._made({})

    def _made(self, made: dict[int, Any]) -> Any:
        """The result of the call, which is submitted once in an execution."""
        if id(self) not in made:
            args = [one._made(made) if isinstance(one, Node) else one for one in self._args]
            kwargs = {name: one._made(made) if isinstance(one, Node) else one for name, one in self._kwargs.items()}
            made[id(self)] = self._make(*args, **kwargs)
        return made[id(self)]


class ActorNode(Node):
    """An actor that `execute` creates. Its methods can be bound."""

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self, name)


class _Method:
    """A method of an actor that `execute` creates."""

    def __init__(self, actor: ActorNode, name: str) -> None:
        self._actor = actor
        self._name = name

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """A node for a call of the method."""
        return Node(lambda actor, *a, **k: getattr(actor, self._name).remote(*a, **k), (self._actor, *args), kwargs)
