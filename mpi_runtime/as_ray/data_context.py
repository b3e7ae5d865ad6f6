"""Settings of `ray.data`, and their older name."""

from mpi_runtime.data import DataContext, ExecutionOptions, ExecutionResources

DatasetContext = DataContext

__all__ = ["DataContext", "DatasetContext", "ExecutionOptions", "ExecutionResources"]
