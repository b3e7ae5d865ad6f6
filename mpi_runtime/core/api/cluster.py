"""Facts about the nodes of the job: `nodes`, `cluster_resources`, `available_resources`."""

from __future__ import annotations

from typing import Any

from mpi_runtime.core import published
from mpi_runtime.core.driver import running
from mpi_runtime.scheduler.protocol.entries import dictionaries
from mpi_runtime.scheduler.protocol.questions import AvailableResources, ClusterResources, Nodes
from mpi_runtime.show.tables import Table


@published()
def cluster_resources() -> dict[str, float]:
    """The resources of all nodes together: amounts by name, memory in bytes.

    "object_store_memory" is the shared memory for values.
    """
    return running.client().questions.ask(ClusterResources())


@published()
def available_resources() -> dict[str, float]:
    """The free resources of all nodes together: amounts by name, without names of which nothing is free."""
    return running.client().questions.ask(AvailableResources())


@published()
def available_resources_per_node() -> dict[str, dict[str, float]]:
    """The free resources of each node, by node id: amounts by name."""
    return {node.id: node.available for node in running.client().questions.ask(Nodes())}


@published()
def nodes() -> Table[dict[str, Any]]:
    """The nodes of the job: a list with a dictionary for each. A notebook shows it as a table.

    Keys are "NodeID", "NodeName" (the host), "Alive", "Resources" (all of the node) and "Available" (free), both as
    amounts by name with memory in bytes, "Labels", "ranks", "cpus" (the numbers of its processors), and for libraries
    "NodeManagerAddress" (the address by which the host reaches others; nothing listens there).
    """
    return Table(dictionaries(running.client().questions.ask(Nodes())))
