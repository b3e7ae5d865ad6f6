"""Settings of `ray.data`, which programs set and nothing here reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class ExecutionResources(SimpleNamespace):
    """Amounts of resources."""

    def __init__(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> None:
        super().__init__(cpu=cpu, gpu=gpu, object_store_memory=object_store_memory, memory=memory)

    @classmethod
    def for_limits(cls, *args: Any, **kwargs: Any) -> ExecutionResources:
        """Amounts that are limits."""
        return cls(*args, **kwargs)


class ExecutionOptions(SimpleNamespace):
    """Settings of an execution."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"resource_limits": ExecutionResources(), "verbose_progress": False, **given})


class DataContext(SimpleNamespace):
    """The settings of this process."""

    _current: DataContext | None = None

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"execution_options": ExecutionOptions(), "verbose_progress": False, **given})

    @classmethod
    def get_current(cls) -> DataContext:
        """The only context of this process."""
        if DataContext._current is None:
            DataContext._current = DataContext()
        return DataContext._current


DatasetContext = DataContext

__all__ = ["DataContext", "DatasetContext", "ExecutionOptions", "ExecutionResources"]
