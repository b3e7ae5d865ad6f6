"""Settings of data sets in this process."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from mpi_runtime.core import published

MIB = 1 << 20


@published("mpi_runtime.data")
class ExecutionResources(Struct):
    """Amounts of resources: how much a stream may use. None is 0."""

    cpu: float | None = None
    """CPUs; without effect as a limit."""
    gpu: float | None = None
    """GPUs; without effect as a limit."""
    object_store_memory: float | None = None
    """As a limit: the budget of a stream in bytes."""
    memory: float | None = None
    """Bytes of other memory; without effect as a limit."""

    def __post_init__(self) -> None:
        self.cpu, self.gpu = self.cpu or 0.0, self.gpu or 0.0
        self.object_store_memory, self.memory = self.object_store_memory or 0.0, self.memory or 0.0

    @classmethod
    def zero(cls) -> ExecutionResources:
        """Nothing."""
        return cls()

    @classmethod
    def inf(cls) -> ExecutionResources:
        """No limits."""
        return cls.for_limits()

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Limits of amounts; an amount of None has no limit."""
        given = (cpu, gpu, object_store_memory, memory)
        return cls(*(math.inf if amount is None else amount for amount in given))

    def copy(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        memory: float | None = None,
        object_store_memory: float | None = None,
    ) -> ExecutionResources:
        """The same amounts, but for those that are given."""
        given = {"cpu": cpu, "gpu": gpu, "memory": memory, "object_store_memory": object_store_memory}
        return replace(self, **{name: amount for name, amount in given.items() if amount is not None})


@published("mpi_runtime.data")
class ExecutionOptions(Struct):
    """Settings of a stream."""

    resource_limits: ExecutionResources | None = None
    """Its `object_store_memory` is the budget in bytes; infinite: a share of the store."""
    exclude_resources: ExecutionResources | None = None
    """Accepted for programs written for Ray, without effect: a stream takes what nobody else has."""
    preserve_order: bool = False
    """Rows keep their order, also where nobody asks for it."""
    verbose_progress: bool = False
    """Accepted, without effect."""
    locality_with_output: object = False
    """Accepted, without effect."""
    actor_locality_enabled: bool = True
    """Accepted, without effect."""

    def __post_init__(self) -> None:
        self.resource_limits = self.resource_limits or ExecutionResources.for_limits()
        self.exclude_resources = self.exclude_resources or ExecutionResources.zero()

    def is_resource_limits_default(self) -> bool:
        """Whether nothing is limited."""
        return self.resource_limits == ExecutionResources.for_limits()

    @property
    def budget(self) -> int | None:
        """The budget of a stream in bytes, if it is limited."""
        limit = self.resource_limits.object_store_memory if self.resource_limits else None
        return int(limit) if limit and math.isfinite(limit) else None


_WITHOUT_EFFECT: dict[str, object] = {
    "actor_prefetcher_enabled": False, "actor_task_retry_on_errors": False, "decoding_size_estimation": True,
    "enable_auto_log_stats": False, "enable_fallback_to_arrow_object_ext_type": None,
    "enable_operator_progress_bars": True, "enable_pandas_block": True, "enable_tensor_extension_casting": True,
    "large_args_threshold": 50 * MIB,
    "min_parallelism": 200, "op_resource_reservation_enabled": True, "op_resource_reservation_ratio": 0.5,
    "print_on_execution_start": True, "raise_original_map_exception": False, "read_op_min_num_blocks": 200,
    "streaming_read_buffer_size": 32 * MIB, "target_min_block_size": MIB, "trace_allocations": False,
    "use_arrow_tensor_v2": True, "use_polars": False, "use_push_based_shuffle": False, "use_ray_tqdm": True,
    "verbose_stats_logs": False, "wait_for_min_actors_s": -1,
    "warn_on_driver_memory_usage_bytes": 2048 * MIB,
    "accurate_map_phase_timing": False, "actor_init_max_retries": 3, "actor_init_retry_on_errors": False,
    "batch_to_block_arrow_format": True, "default_hash_shuffle_parallelism": 200,
    "downstream_capacity_backpressure_ratio": 2.0, "enable_arrow_backed_pandas_conversion": True,
    "enable_get_object_locations_for_metrics": False, "enable_per_node_metrics": False,
    "enable_progress_bar_name_truncation": True, "enable_rich_progress_bars": False, "enforce_schemas": False,
    "execution_no_progress_timeout_s": 1800, "log_internal_stack_trace": False, "max_map_retries": 0,
    "max_tasks_in_flight_per_actor": None, "memory_usage_poll_interval_s": 1,
    "override_object_store_memory_limit_fraction": None, "pandas_block_ignore_metadata": False,
    "retried_io_errors": [], "retried_map_errors": False, "s3_try_create_dir": False, "scheduling_strategy": "SPREAD",
    "scheduling_strategy_large_args": "DEFAULT", "use_datasource_v2": True, "use_polars_sort": False,
    "write_file_retry_on_errors": [],
}  # fmt: skip
"""Settings of Ray that programs read, and put back after a change. They have no effect."""


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
        self._others: dict[str, object] = {}
        for name, value in given.items():
            setattr(self, name, value)

    @classmethod
    def get_current(cls) -> DataContext:
        """The settings of this process. Workers of a training begin with those of its program."""
        if DataContext._current is None:
            DataContext._current = DataContext()
        return DataContext._current

    @staticmethod
    @contextlib.contextmanager
    def current(context: DataContext) -> Iterator[None]:
        """Have other settings in this process inside a `with` block."""
        before, DataContext._current = DataContext._current, context
        try:
            yield
        finally:
            DataContext._current = before

    def __getattr__(self, name: str) -> object:
        if name not in _WITHOUT_EFFECT:
            raise AttributeError(f"DataContext has no setting {name!r}")
        value = copy.copy(_WITHOUT_EFFECT[name])  # a list may be extended
        setattr(self, name, value)
        return value

    def enter(self) -> None:
        """Become the settings of this process."""
        DataContext._current = self

    def copy(self) -> DataContext:
        """Settings with the same values."""
        return copy.deepcopy(self)

    def get_config(self, key: str, default: object = None) -> object:
        """A value of the program's own, which `set_config` has kept."""
        return self._others.get(key, default)

    def set_config(self, key: str, value: object) -> None:
        """Keep a value of the program's own."""
        self._others[key] = value

    def remove_config(self, key: str) -> None:
        """Forget a value of the program's own."""
        self._others.pop(key, None)
