"""Graphs of bound calls: `f.bind(g.bind(1)).execute()` submits them all, each once.

Bound calls of one actor run in the order in which they were bound, whether or not their results are used: a call
submits those before it first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, NoReturn, TypeVar

PARENT, PREVIOUS = "parent_class_node", "prev_class_method_call"
"""Keys of `get_other_args_to_resolve`."""
_NUMBERS = itertools.count()


N = TypeVar("N", bound="Node")


class MisuseError(AssertionError, TypeError):
    """A graph is used in a way that has no meaning. Ray asserts."""


class Node:
    """A call that `execute` submits, with the nodes that it needs."""

    def __init__(
        self,
        make: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        options: Mapping[str, object] | None = None,
        actor: ClassNode | None = None,
    ) -> None:
        self._make = make
        self._args = args
        self._kwargs = kwargs
        self._options = options or {}
        self._actor = actor
        """The actor whose method it calls, if `execute` creates it."""
        self._before = actor._last if actor is not None else None
        """The call of the same actor that was bound before this one."""
        self._number = next(_NUMBERS)
        """Its place in the order in which this process has bound calls."""
        self._users: list[Node] = []
        """The nodes that take its value."""
        for needed in _nodes_in([*args, kwargs]):
            needed._users.append(self)

    def __repr__(self) -> str:
        return (
            f"({type(self).__name__}, args: {len(self._args)}, kwargs: {list(self._kwargs)}, options: {self._options})"
        )

    def execute(self, *args: object, **kwargs: object) -> Any:
        """Submit the call and all nodes that it needs. Returns the result of `.remote`.

        The arguments are the values for an `InputNode` of the graph.
        """
        return _resolved(self, {}, (args, kwargs))

    def experimental_compile(self, **options: object) -> CompiledGraph:
        """Check the graph once, for many executions, as Ray's compiled graphs.

        Args:
            options: those of Ray, without effect: there are no channels whose sizes could be chosen.

        Raises:
            ValueError: the graph cannot be compiled; `execute` takes it as it is.
        """
        return CompiledGraph(self)

    def with_tensor_transport(self: N, *args: object, **kwargs: object) -> N:
        """Return the node itself: Ray's hints how a tensor may travel have no effect, and values are the same."""
        return self

    with_type_hint = with_tensor_transport

    def get_args(self) -> tuple[object, ...]:
        """Return the positional arguments of `bind`."""
        return self._args

    def get_kwargs(self) -> dict[str, object]:
        """Return the keyword arguments of `bind`."""
        return dict(self._kwargs)

    def get_options(self) -> dict[str, object]:
        """Return the options that were stated for the call."""
        return dict(self._options)

    def get_other_args_to_resolve(self) -> dict[str, object]:
        """Return the actor whose method it calls, and its call that was bound before, by the names of Ray."""
        return {} if self._actor is None else {PARENT: self._actor, PREVIOUS: self._before}

    def get_stable_uuid(self) -> str:
        """Return a name that no other node of this process has, but its copies by `apply_recursive`."""
        return f"{self._number:032x}"

    def apply_recursive(self, fn: Callable[[Node], object] | _Once) -> object:
        """Call a function for each node of the graph, once, what it needs first, and return its value for this one.

        It gets a copy of the node, with what it has returned for other nodes in their places.
        """
        once = fn if isinstance(fn, _Once) else _Once(fn, {})
        if id(self) not in once.made:
            own = self._apply_and_replace_all_child_nodes(lambda node: node.apply_recursive(once))
            once.made[id(self)] = once.function(own)
        return once.made[id(self)]

    def _get_toplevel_child_nodes(self) -> list[Node]:
        """Return the nodes among its arguments, without those inside containers."""
        own = (*self._args, *self._kwargs.values(), *self.get_other_args_to_resolve().values())
        return list(dict.fromkeys(one for one in own if isinstance(one, Node)))

    def _get_all_child_nodes(self) -> list[Node]:
        """Return the nodes in its arguments, each once."""
        return list(dict.fromkeys(_nodes_in([*self._args, self._kwargs, self.get_other_args_to_resolve()])))

    def _apply_and_replace_all_child_nodes(self, fn: Callable[[Node], object]) -> Node:
        """Return a copy with what a function returns for each node in its arguments."""
        made = {one: fn(one) for one in self._get_all_child_nodes()}
        copy: Node = object.__new__(type(self))
        changed = {name: _replaced(vars(self)[name], made) for name in ("_args", "_kwargs", "_actor", "_before")}
        vars(copy).update(vars(self), **changed, _users=[])
        return copy

    def __reduce__(self) -> NoReturn:
        raise ValueError("A node of a graph cannot be pickled: pass the result of its execute().")

    def __getattr__(self, name: str) -> Any:
        if name in ("remote", "bind"):
            raise AttributeError(f".{name}() cannot be used on a bound call: execute() submits it.")
        raise AttributeError(f"a node of a graph has no attribute {name!r}")


class _Once(NamedTuple):
    """A function that is applied to each node once, and what it has returned, by the `id` of the node."""

    function: Callable[[Node], object]
    made: dict[int, object]


def _replaced(value: object, made: Mapping[Node, object]) -> object:
    """A value with others in place of its nodes, also inside lists, tuples and dictionaries."""
    if isinstance(value, Node):
        return made[value]
    if type(value) is list:
        return [_replaced(one, made) for one in value]
    if type(value) is tuple:
        return tuple(_replaced(one, made) for one in value)
    return {key: _replaced(one, made) for key, one in value.items()} if type(value) is dict else value


class FunctionNode(Node):
    """A bound call of a function."""


class ClassMethodNode(Node):
    """A bound call of a method, or one of its several values."""

    _end: Callable[[], object] | None = None
    """Ends the actor, if that is one with a handle."""


def bound(
    remote: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    count: int,
    end: Callable[[], object] | None = None,
) -> Any:
    """Return the node of a method call; of one with several return values a node for each. `end` ends the actor."""
    node = ClassMethodNode(remote, args, kwargs)
    node._end = end
    return node if count <= 1 else tuple(ClassMethodNode(itemgetter(index), (node,), {}) for index in range(count))


class _Given(Node):
    """Stands for the arguments of `execute`, or for a part of them."""

    _root: InputNode
    _read: Callable[[object], object] | None = None
    """Reads the part of the only argument; None: all of it."""
    _key: object = None

    def _value(self, made: dict[int, object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if not self._root._is_entered:
            raise MisuseError(
                "InputNode is a singleton instance that should be only used in context manager: "
                "with InputNode() as given"
            )
        if made.setdefault(_INPUT, self._root) is not self._root:
            raise MisuseError("Each DAG should only have one unique InputNode: this one has two.")
        if len(args) == 1 and not kwargs:
            return args[0] if self._read is None else self._read(args[0])
        given: dict[Any, object] = {**dict(enumerate(args)), **kwargs}
        if self._key not in given:
            wanted = "one argument" if self._read is None else f"an argument {self._key!r}"
            kind = KeyError if isinstance(self._key, str) else TypeError
            raise kind(f"The graph has an InputNode for {wanted}, and execute() was given {list(given) or 'none'}")
        return given[self._key]


class InputNode(_Given):
    """Stands for the arguments of `execute`: for the only one itself, or for one of several.

        with InputNode() as given:
            graph = add.bind(given[0], given.by)
        graph.execute(1, by=2)

    Of an only argument `given[key]` and `given.name` are its items and attributes. A graph has one input.
    """

    def __init__(self, *args: object, input_type: object = None, **kwargs: object) -> None:
        if args or kwargs:
            raise ValueError("InputNode should not take any args or kwargs: execute() gets them.")
        super().__init__(_nothing, (), {})
        self._root = self
        self._is_entered = False
        self._parts: dict[int | str, InputAttributeNode] = {}

    def __enter__(self) -> InputNode:
        self._is_entered = True
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: int | str) -> InputAttributeNode:
        if not isinstance(key, int | str):
            raise MisuseError(f"Please only use int index or str as first-level key of an InputNode, not {key!r}")
        return self._part(key, itemgetter(key))

    def __getattr__(self, name: str) -> InputAttributeNode:
        if name.startswith("_"):
            raise AttributeError(f"an InputNode has no attribute {name!r}")
        return self._part(name, attrgetter(name))

    def _part(self, key: int | str, read: Callable[[Any], object]) -> InputAttributeNode:
        self._parts[key] = part = InputAttributeNode(self, key, read)
        return part


class InputAttributeNode(_Given):
    """A part of the input: `given[key]` or `given.name`."""

    def __init__(self, root: InputNode, key: int | str, read: Callable[[Any], object]) -> None:
        super().__init__(_nothing, (), {})
        self._root, self._key, self._read = root, key, read

    def __getitem__(self, key: object) -> NoReturn:
        raise AttributeError(f"{key!r} is a part of a part of the input: let the function take the part")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r} is a part of a part of the input: let the function take the part")


class MultiOutputNode(Node):
    """Several nodes, as one: `execute` returns the list of their results."""

    def __init__(self, outputs: Sequence[object]) -> None:
        if not isinstance(outputs, list | tuple):
            raise ValueError(f"MultiOutputNode needs a list of nodes, not {outputs!r}")
        super().__init__(lambda *made: list(made), tuple(outputs), {})


_INPUT = 0
"""The key of the graph's input in `made`, which no `id()` is."""


def _nothing() -> None:
    pass


def _has_input(values: object) -> bool:
    """Whether an InputNode is among these arguments, or is needed by them."""
    if isinstance(values, list | tuple):
        return any(map(_has_input, values))
    if isinstance(values, dict):
        return any(map(_has_input, values.values()))
    if isinstance(values, _Given):
        return True
    return isinstance(values, Node) and (_has_input(values._args) or _has_input(values._kwargs))


def _resolved(value: Any, made: dict[int, object], given: tuple[tuple[object, ...], dict[str, object]]) -> Any:
    """An argument with results in place of nodes, also inside lists, tuples and dictionaries. `made` keeps them."""
    if type(value) in (list, tuple):
        return type(value)([_resolved(one, made, given) for one in value])
    if type(value) is dict:
        return {key: _resolved(one, made, given) for key, one in value.items()}
    if isinstance(value, _Given):
        return value._value(made, *given)
    if not isinstance(value, Node):
        return value
    chain: list[Node] = []
    node: Node | None = value
    while node is not None and id(node) not in made:
        chain.append(node)
        node = node._before
    for one in reversed(chain):
        own = () if one._actor is None else (one._actor,)
        args, kwargs = _resolved((*own, *one._args), made, given), _resolved(one._kwargs, made, given)
        if id(one) not in made:  # an argument may have needed it
            made[id(one)] = one._make(*args, **kwargs)
    return made[id(value)]


class ClassNode(Node):
    """An actor that `execute` creates. Its methods can be bound."""

    def __init__(
        self,
        make: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        methods: Container[str],
        options: Mapping[str, object] | None = None,
        kind: str = "Actor",
    ) -> None:
        if _has_input((args, kwargs)):
            raise ValueError(
                "InputNode handles user dynamic input the DAG, and cannot be used as args, kwargs, or "
                "other_args_to_resolve in ClassNode constructor because it is not available at class construction or "
                "binding time: let a method of the actor take it."
            )
        super().__init__(make, args, kwargs, options)
        self._methods, self._kind = methods, kind
        self._last: Node | None = None
        """The call that was bound last."""

    def __getattr__(self, name: str) -> _Method:
        if name == "bind" and name not in self._methods:
            raise AttributeError(".bind() cannot be used again on a bound actor: bind its methods.")
        if name.startswith("_") or name not in self._methods:
            why = f"the actor of this node has no method {name!r}"
            raise AttributeError(f"type object '{self._kind}' has no attribute {name!r}: {why}")
        return _Method(self, name, {})


class _Method:
    """A method of an actor that `execute` creates."""

    def __init__(self, actor: ClassNode, name: str, options: Mapping[str, object]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def options(self, **options: object) -> _Method:
        """The same method with other options."""
        return _Method(self._actor, self._name, {**self._options, **options})

    def bind(self, *args: object, **kwargs: object) -> ClassMethodNode:
        """Make a node for a call of the method."""

        def make(actor: object, *args: object, **kwargs: object) -> object:
            return getattr(actor, self._name).options(**self._options).remote(*args, **kwargs)

        node = self._actor._last = ClassMethodNode(make, args, kwargs, self._options, self._actor)
        return node

    def __getattr__(self, name: str) -> NoReturn:
        if name == "remote":
            raise AttributeError(
                ".remote() cannot be used on ClassMethodNodes, the methods of a bound actor. Use .bind() instead."
            )
        raise AttributeError(f"a method of a bound actor has no attribute {name!r}")


class CompiledGraph:
    """A graph that is executed again and again: `node.experimental_compile()` makes it.

    Ray gives such graphs channels of their own. Here they are checked once, and submit their calls as others are.
    """

    def __init__(self, root: Node) -> None:
        """Check the graph.

        Raises:
            ValueError: it has no input, nothing uses a part of its input or a call, a call in it needs nothing of the
                graph, or a node is inside a container.
        """
        nodes = _needed(root)
        given = [node for node in nodes if isinstance(node, _Given)]
        if not given:
            raise ValueError("No InputNode found in the DAG: let a call take the InputNode, or use execute().")
        calls = [node for node in nodes if not isinstance(node, _Given)]
        for node in calls:
            _check(node)
        self._root = root
        self._calls = sorted(calls, key=lambda node: node._number)
        parts = {node._key: node._root for node in given if node._read is not None}
        if parts and any(node._read is None for node in given):
            raise ValueError(
                "All tasks must either use InputNode() directly, or they must index to specific args or kwargs. This "
                f"graph takes the whole input, and its parts {_listed([*parts])}."
            )
        self._has_parts = bool(parts)
        self._positional = max((key + 1 for key in parts if isinstance(key, int)), default=0) if parts else 1
        self._named = [key for key in parts if isinstance(key, str)]
        unused = [key for root in parts.values() for key in root._parts if key not in parts]
        if unused:
            raise ValueError(
                f"the parts {_listed([*parts, *unused])} of the input were named, but {_listed(unused)} is unused: "
                "have the output need each of them, or do not name it."
            )
        if leaves := _leaves(nodes):
            raise ValueError(
                "Compiled DAG doesn't support leaf nodes, i.e., nodes that don't have downstream nodes and are not "
                f"output nodes. There are {len(leaves)} leaf nodes in the DAG. Please add the outputs of these calls "
                f"to the MultiOutputNode, or do not bind them: {leaves}"
            )
        self._is_ended = False

    def execute(self, *args: object, **kwargs: object) -> Any:
        """Submit the calls in the order in which they were bound. Returns the reference of the last one, or a list.

        Raises:
            ValueError: the arguments are not those that the graph has a use for.
            RayChannelError: `teardown` has ended the graph.
        """
        if self._is_ended:
            from mpi_runtime.errors.ray import RayChannelError

            raise RayChannelError("Channel closed: teardown() has ended this graph. Compile another one.")
        how = "dag.execute() or dag.execute_async() must be called with"
        if len(args) != self._positional:
            raise ValueError(f"{how} {self._positional} positional args, got {len(args)}")
        for name in self._named:
            if name not in kwargs:
                raise ValueError(f"{how} kwarg `{name}`, got {list(kwargs)}")
        if self._has_parts and not kwargs:  # a part is always one of the arguments, as in Ray, also of an only one
            args = (args,)
        made: dict[int, object] = {}
        for node in self._calls:
            _resolved(node, made, (args, kwargs))
        return made[id(self._root)]

    async def execute_async(self, *args: object, **kwargs: object) -> Any:
        """As `execute`. What it returns can be awaited."""
        return self.execute(*args, **kwargs)

    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph. Its actors stay.

        Args:
            kill_actors: end its actors too.
        """
        self._is_ended = True
        for node in self._calls if kill_actors else ():
            if isinstance(node, ClassMethodNode) and node._end is not None:
                node._end()


def _leaves(nodes: list[Node]) -> list[Node]:
    """Calls that take values of these nodes, and whose own values none of these takes, nor any other call."""
    known, waiting, found = set(map(id, nodes)), list(nodes), []
    while waiting:
        for user in waiting.pop()._users:
            if id(user) not in known:
                known.add(id(user))
                waiting.append(user)
                if not isinstance(user, MultiOutputNode) and not user._users:
                    found.append(user)
    return found


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
    """The nodes in a value, also inside lists, tuples and dictionaries."""
    if isinstance(values, Node):
        yield values
    elif isinstance(values, dict):
        yield from _nodes_in(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _nodes_in(value)


def _listed(keys: Sequence[object]) -> str:
    return ", ".join(sorted({str(key) for key in keys}))


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


DAGNode = Node

__all__ = ["DAGNode", "InputNode", "MultiOutputNode"]
