"""What the object store has, and who keeps it."""

from __future__ import annotations

from mpi_runtime.calls import running
from mpi_runtime.tables import Table
from mpi_runtime.util.state import Entry


def memory_summary() -> Table[Entry]:
    """List what the object store of each node has. A notebook shows the list as a table.

    Keys, sizes in bytes: `node_id`, `hostname`; `capacity`, `used` and `objects` of shared memory; `on_disk` and
    `objects_on_disk`; `in_flight`, which is on its way into shared memory, from other nodes or from disk;
    `being_written` to disk; `wanted`, for which processes wait. `largest` lists the 20 largest values with `object_id`,
    `size`, `in_memory`, `on_disk`, `made_by` and `held_by`: processes with references, and calls that have it as an
    argument. `made_by` is the line that has put it, such as "app.py:12 in main", or the function that has returned it
    and where that begins, "load (app.py:5)"; it is empty if that is not known.
    """
    return Table([Entry(one) for one in running.client().questions.query("store", b"")])
