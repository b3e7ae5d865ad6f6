"""Strategies for `scheduling_strategy=`, under the names from which programs written for Ray import them."""

from mpi_runtime.core.calls.strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

__all__ = [
    "DoesNotExist", "Exists", "In", "NodeAffinitySchedulingStrategy", "NodeLabelSchedulingStrategy", "NotIn",
    "PlacementGroupSchedulingStrategy",
]  # fmt: skip
