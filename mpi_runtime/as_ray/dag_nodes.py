"""The classes of nodes of Ray's `dag` from which libraries derive their own."""

from collections.abc import Mapping
from typing import Any

import mpi_runtime
from mpi_runtime.as_ray.dag import ActorNode, DAGNode, InputNode


class FunctionNode(DAGNode):
    """A bound call of a function, by Ray's arguments."""

    def __init__(
        self, func_body: Any, func_args: tuple[Any, ...], func_kwargs: dict[str, Any], func_options: Mapping[str, Any]
    ) -> None:
        remote = mpi_runtime.remote(func_body).options(**func_options).remote
        super().__init__(remote, func_args, func_kwargs, func_options)


class ClassNode(ActorNode):
    """A bound creation of an actor, by Ray's arguments."""

    def __init__(
        self, cls: Any, cls_args: tuple[Any, ...], cls_kwargs: dict[str, Any], cls_options: Mapping[str, Any]
    ) -> None:
        methods = {name for name in dir(cls) if callable(getattr(cls, name))}
        super().__init__(
            mpi_runtime.remote(cls).options(**cls_options).remote,
            cls_args,
            cls_kwargs,
            methods,
            cls_options,
            cls.__name__,
        )


class ClassMethodNode(DAGNode):
    """A bound call of a method: `node.method.bind(...)` makes it."""


class InputAttributeNode(InputNode):
    """A part of the input: `given[key]` or `given.name` makes it."""


__all__ = ["ClassMethodNode", "ClassNode", "FunctionNode", "InputAttributeNode"]
