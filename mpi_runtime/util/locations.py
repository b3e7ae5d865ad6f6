"""Where values and nodes are: the functions of Ray's module `experimental`, and the address of this node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from mpi_runtime import ObjectRef, is_initialized
from mpi_runtime.errors.arguments import check_whole
from mpi_runtime.extend import address_towards, ask, job
from mpi_runtime.scheduler.protocol.effects import Ready, ReadyError, ReadyStored
from mpi_runtime.scheduler.protocol.questions import Objects

__all__ = ["get_local_object_locations", "get_object_locations"]


class Location(TypedDict):
    """Where a value is, as in Ray."""

    node_ids: list[str]
    object_size: int | None
    did_spill: bool


def get_object_locations(
    obj_refs: Sequence[ObjectRef[object]], timeout_ms: int = -1
) -> dict[ObjectRef[object], Location]:
    """Ask the scheduler where values are.

    Args:
        obj_refs: a list of references.
        timeout_ms: accepted as in Ray, without effect: the scheduler answers at once.

    Returns:
        A dictionary for each reference: "node_ids" (the nodes with a copy, in shared memory or on disk; empty for a
        small value), "object_size" in bytes (None before the call has ended), "did_spill" (whether one is on disk).

    Raises:
        TypeError: `obj_refs` is not a list of references.
        RuntimeError: no job runs.
        ObjectLostError: a reference belongs to a job that has ended.

    Example:
        ```python
        get_object_locations([ray.put(array)])
        ```
    """
    check_whole("timeout_ms", timeout_ms, -1)
    return {ref: _location(ref) for ref in _checked(obj_refs)}


def get_local_object_locations(obj_refs: Sequence[ObjectRef[object]]) -> dict[ObjectRef[object], Location]:
    """Return where values are as far as this process knows, without asking the scheduler.

    Args:
        obj_refs: a list of references.

    Returns:
        A dictionary as from `get_object_locations` for each reference. Of a value that has not arrived in this process
        nothing is known: "object_size" is None.

    Raises:
        TypeError: `obj_refs` is not a list of references.
        RuntimeError: no job runs.
        ObjectLostError: a reference belongs to a job that has ended.
    """
    found = {}
    refs = _checked(obj_refs)
    client = job()
    for ref in refs:
        entry = client.references.values.get(ref.binary())
        if isinstance(entry, ReadyStored):
            found[ref] = _as_in_ray([client.questions.node_id()], entry.size, False)
        else:
            size = len(entry.data) if isinstance(entry, (Ready, ReadyError)) else None
            found[ref] = _as_in_ray([], size, False)
    return found


def _checked(obj_refs: object) -> Sequence[ObjectRef[object]]:
    if not isinstance(obj_refs, (list, tuple)) or not all(isinstance(ref, ObjectRef) for ref in obj_refs):
        raise TypeError(f"the locations of values need a list of ObjectRef, not {obj_refs!r}")
    if not is_initialized():
        raise RuntimeError("values are somewhere only while a job runs: call init() first")
    for ref in obj_refs:
        ref.check_job()
    return obj_refs


def _location(ref: ObjectRef[object]) -> Location:
    for entry in ask(Objects(ref.binary())):
        return _as_in_ray(entry.node_ids, entry.object_size or None, entry.is_spilled)
    return _as_in_ray([], None, False)


def _as_in_ray(node_ids: list[str], size: int | None, is_spilled: bool) -> Location:
    return {"node_ids": node_ids, "object_size": size, "did_spill": is_spilled}


def get_node_ip_address(address: str = "") -> str:
    """Return the address by which this node reaches others: by default on its route to the outside, else 127.0.0.1.

    This runtime does not listen there.

    Args:
        address: a host to reach; a port after a colon is ignored.
    """
    if not isinstance(address, str):
        raise TypeError(f"address must be the name or the address of a host, not {address!r}")
    host = address.partition(":")[0]
    return address_towards(host) if host else address_towards()
