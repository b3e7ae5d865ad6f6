"""Names of Ray's `dag` with code of their own: classes of nodes that are made by Ray's arguments, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import mpi_runtime
from mpi_runtime.as_ray import dag


class _Kind(type):
    """What `bind` has made is an instance too, although these classes are made by Ray's arguments."""

    def __instancecheck__(cls, one: object) -> bool:
        return super().__instancecheck__(one) or (cls.__module__ == __name__ and isinstance(one, cls.__base__ or cls))


class FunctionNode(dag.FunctionNode, metaclass=_Kind):
    """A bound call of a function, by Ray's arguments."""

    def __init__(
        self, func_body: Any, func_args: tuple[Any, ...], func_kwargs: dict[str, Any], func_options: Mapping[str, Any]
    ) -> None:
        remote = mpi_runtime.remote(func_body).options(**func_options).remote
        super().__init__(remote, func_args, func_kwargs, func_options)


class ClassNode(dag.ClassNode, metaclass=_Kind):
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


@dataclass
class DAGContext:
    """Ray's settings of compiled graphs, without effect: there are no channels."""

    submit_timeout: int = 10
    get_timeout: int = 10
    teardown_timeout: int = 30
    read_iteration_timeout: float = 0.1
    buffer_size_bytes: int = 1_000_000
    max_inflight_executions: int = 10
    max_buffered_results: int = 1000
    overlap_gpu_communication: bool = False

    _of_process: ClassVar[DAGContext | None] = None

    @staticmethod
    def get_current() -> DAGContext:
        """Return the settings of this process."""
        if DAGContext._of_process is None:
            DAGContext._of_process = DAGContext()
        return DAGContext._of_process


__all__ = ["ClassNode", "DAGContext", "FunctionNode"]
