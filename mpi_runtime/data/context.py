"""Settings of data sets in this process."""

from __future__ import annotations

from mpi_runtime.core import published

MIB = 1 << 20


@published("mpi_runtime.data")
class ExecutionResources:
    """Amounts of resources: how much a stream may use."""

    def __init__(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> None:
        """`object_store_memory` is the budget of a stream in bytes; the others have no effect."""
        self.cpu = cpu
        self.gpu = gpu
        self.object_store_memory = object_store_memory
        self.memory = memory

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Amounts that are limits."""
        return cls(cpu, gpu, object_store_memory, memory)


@published("mpi_runtime.data")
class ExecutionOptions:
    """Settings of a stream."""

    def __init__(
        self,
        resource_limits: ExecutionResources | None = None,
        preserve_order: bool = False,
        verbose_progress: bool = False,
        **unused: object,
    ) -> None:
        """`preserve_order`: rows keep their order, also where nobody asks for it. Others are Ray's, without effect."""
        del unused
        self.resource_limits = resource_limits or ExecutionResources()
        self.preserve_order = preserve_order
        self.verbose_progress = verbose_progress


@published("mpi_runtime.data")
class DataContext:
    """The settings of this process: `DataContext.get_current()`. Others that programs written for Ray set are kept."""

    _current: DataContext | None = None

    def __init__(self, **given: object) -> None:
        """Settings with these values."""
        self.execution_options = ExecutionOptions()
        self.target_max_block_size: int | None = 128 * MIB
        """Larger blocks are cut, if they have several rows."""
        self.max_errored_blocks = 0
        """The number of blocks that may fail without ending the stream; -1: any number."""
        self.enable_progress_bars = True
        """Whether a stream shows its stages in a terminal."""
        for name, value in given.items():
            setattr(self, name, value)

    @classmethod
    def get_current(cls) -> DataContext:
        """The settings of this process."""
        if DataContext._current is None:
            DataContext._current = DataContext()
        return DataContext._current
