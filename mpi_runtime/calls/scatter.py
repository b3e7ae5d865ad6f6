"""Arguments of calls on gangs that are cut: each rank gets one item."""

from __future__ import annotations

from typing import Any

from mpi_runtime.client.client import Client
from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.client.submitting import put
from mpi_runtime.objects import serialize


class Scatter:
    """An argument with an item for each rank. `mpi.scatter` makes it."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def refs(self, client: Client, ranks: int, name: str) -> list[ObjectRef[Any]]:
        """References to the items, in the order of ranks: there must be one for each."""
        if len(self.items) != ranks:
            raise ValueError(
                f"{name}.remote(): mpi.scatter() has {len(self.items)} items, and the call has num_ranks={ranks}: pass "
                "one item for each rank"
            )
        what = f"an item of mpi.scatter() for {name}()"
        return [item if type(item) is ObjectRef else put(client, serialize.dumps(item, what)) for item in self.items]

    def __repr__(self) -> str:
        return f"mpi.scatter({len(self.items)} items)"

    def __reduce__(self) -> Any:
        raise TypeError(
            "mpi.scatter() must be an argument of a function with num_ranks, not a part of an argument. Methods and "
            "other functions do not cut it: pass the items, and let each rank take items[comm.rank]"
        )
