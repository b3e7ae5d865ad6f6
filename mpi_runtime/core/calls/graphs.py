"""Graphs of bound calls: `f.bind(g.bind(1)).execute()` submits them all, each once.

Bound calls of one actor run in the order in which they were bound, whether or not their results are used: a call
submits those before it first.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any


class Node:
    """A call that `execute` submits, with the nodes that it needs."""

    def __init__(
        self,
        make: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        before: Node | None = None,
    ) -> None:
        self._make = make
        self._args = args
        self._kwargs = kwargs
        self._before = before
        """The call of the same actor that was bound before this one."""

    def execute(self, *args: object, **kwargs: object) -> Any:
        """Submit the call and all nodes that it needs. Returns the result of `.remote`.

        The arguments are the values for an `InputNode` of the graph.
        """
        return _resolved(self, {}, (args, kwargs))


class InputNode:
    """Stands for the arguments of `execute`: for the only one itself, or for one of several.

        with InputNode() as given:
            graph = add.bind(given[0], given.by)
        graph.execute(1, by=2)

    Of an only argument `given[key]` and `given.name` are its items and attributes.
    """

    def __init__(self) -> None:
        self._read: Callable[[object], object] | None = None
        """Reads a part of the only argument; None: all of it."""
        self._key: object = None

    def __enter__(self) -> InputNode:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: int | str) -> InputNode:
        if not isinstance(key, int | str):
            raise TypeError(f"an InputNode has numbers and names as keys, not {key!r}")
        return self._part(key, itemgetter(key))

    def __getattr__(self, name: str) -> InputNode:
        if name.startswith("_"):
            raise AttributeError(f"an InputNode has no attribute {name!r}")
        return self._part(name, attrgetter(name))

    def _part(self, key: int | str, read: Callable[[Any], object]) -> InputNode:
        if self._read is not None:
            raise TypeError(f"{key!r} is a part of a part of the input: let the function take the part")
        part = InputNode()
        part._key, part._read = key, read
        return part

    def _value(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if len(args) == 1 and not kwargs:
            return args[0] if self._read is None else self._read(args[0])
        given: dict[Any, object] = {**dict(enumerate(args)), **kwargs}
        if self._key not in given:
            wanted = "one argument" if self._read is None else f"an argument {self._key!r}"
            raise TypeError(f"The graph has an InputNode for {wanted}, and execute() was given {list(given) or 'none'}")
        return given[self._key]


class MultiOutputNode(Node):
    """Several nodes, as one: `execute` returns the list of their results."""

    def __init__(self, outputs: Iterable[object]) -> None:
        super().__init__(lambda *made: list(made), tuple(outputs), {})


def _resolved(value: Any, made: dict[int, object], given: tuple[tuple[object, ...], dict[str, object]]) -> Any:
    """An argument with results in place of nodes, also inside lists, tuples and dictionaries. `made` keeps them."""
    if type(value) in (list, tuple):
        return type(value)([_resolved(one, made, given) for one in value])
    if type(value) is dict:
        return {key: _resolved(one, made, given) for key, one in value.items()}
    if isinstance(value, InputNode):
        return value._value(*given)
    if not isinstance(value, Node):
        return value
    chain: list[Node] = []
    node: Node | None = value
    while node is not None and id(node) not in made:
        chain.append(node)
        node = node._before
    for one in reversed(chain):
        args, kwargs = _resolved(one._args, made, given), _resolved(one._kwargs, made, given)
        if id(one) not in made:  # an argument may have needed it
            made[id(one)] = one._make(*args, **kwargs)
    return made[id(value)]


class ActorNode(Node):
    """An actor that `execute` creates. Its methods can be bound."""

    def __init__(
        self, make: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], methods: Container[str]
    ) -> None:
        super().__init__(make, args, kwargs)
        self._methods = methods
        self._last: Node | None = None
        """The call that was bound last."""

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_") or name not in self._methods:
            raise AttributeError(f"the actor of this node has no method {name!r}")
        return _Method(self, name, {})


class _Method:
    """A method of an actor that `execute` creates."""

    def __init__(self, actor: ActorNode, name: str, options: Mapping[str, object]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def options(self, **options: object) -> _Method:
        """The same method with other options."""
        return _Method(self._actor, self._name, {**self._options, **options})

    def bind(self, *args: object, **kwargs: object) -> Node:
        """Make a node for a call of the method."""

        def make(actor: object, *args: object, **kwargs: object) -> object:
            return getattr(actor, self._name).options(**self._options).remote(*args, **kwargs)

        node = self._actor._last = Node(make, (self._actor, *args), kwargs, self._actor._last)
        return node


DAGNode = Node

__all__ = ["DAGNode", "InputNode", "MultiOutputNode"]
