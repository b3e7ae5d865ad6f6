"""Placement groups, under the names from which programs written for Ray import them."""

from mpi_runtime.core.calls.placement_groups import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = [
    "PlacementGroup", "get_current_placement_group", "get_placement_group", "placement_group", "placement_group_table",
    "remove_placement_group",
]  # fmt: skip
