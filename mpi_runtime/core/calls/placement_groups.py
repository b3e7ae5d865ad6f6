"""Placement groups: resources reserved together, for tasks and actors that run in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpi_runtime import errors
from mpi_runtime.core import published
from mpi_runtime.core.calls.labels import check_selector
from mpi_runtime.core.client import current
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.client.submitting import create_group, new_ref, put_written
from mpi_runtime.core.client.typed_ids import PlacementGroupID
from mpi_runtime.core.driver import running
from mpi_runtime.core.objects import serialize
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.errors.arguments import check_amount, check_text, seconds
from mpi_runtime.scheduler.protocol.amounts import Request, custom_of
from mpi_runtime.scheduler.protocol.entries import GroupEntry
from mpi_runtime.scheduler.protocol.events import (
    BUNDLES_MAX,
    PACK,
    STRATEGIES,
    BundleSpec,
    GroupRemovalRequested,
    Label,
)
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.questions import Group, Groups, NamedGroup


@published("mpi_runtime.util.placement_group")
class PlacementGroup:
    """A handle of a placement group. It can be an argument or part of a value.

    The group lives until `remove_placement_group()` or the end of the job, with or without handles.
    """

    def __init__(
        self,
        ref: ObjectRef[Any] | PlacementGroupID,
        bundle_specs: list[dict[str, float]] | None = None,
        strategy: str = "",
        name: str = "",
    ) -> None:
        """Not called by programs, except with the id of a group, which `placement_group_table()` lists.

        Raises:
            ValueError: no group has this id, or it was removed.
        """
        known = None
        if not isinstance(ref, ObjectRef):
            known = _group_of(ref)  # the other arguments are Ray's cache
            ref = known._ref
        self._ref: ObjectRef[Any] = ref
        self.bundle_specs: list[dict[str, float]] = known.bundle_specs if known else bundle_specs or []
        """What each bundle reserves: amounts by name."""
        self.strategy: str = known.strategy if known else strategy
        self.name: str = known.name if known else name

    @property
    def id(self) -> PlacementGroupID:
        """The id of the group, with `hex()` and `binary()`."""
        return PlacementGroupID(self._ref.binary())

    @property
    def is_empty(self) -> bool:
        """Whether this is `PlacementGroup.empty()`, which stands for no group."""
        return self._ref.is_nil()

    @classmethod
    def empty(cls) -> PlacementGroup:
        """A handle that stands for no group."""
        return cls(ObjectRef.nil(), [], "PACK", "")

    @property
    def bundle_count(self) -> int:
        """`len(bundle_specs)`; 0 for `empty()`."""
        return len(self.bundle_specs)

    def ready(self) -> ObjectRef[PlacementGroup]:
        """A reference that is ready as soon as all bundles are reserved. Its value is the group.

        When the group has been removed, `get` of the reference raises `PlacementGroupRemovedError`; if no node or
        combination of nodes can ever hold its bundles, `InfeasibleResourceError`.
        """
        self.check_job()
        client = running.client()
        error: errors.MpiRuntimeError
        if client.waiting.wait([self._ref.binary()], 1, 0)[0]:
            if not self._was_removed_when_ready():
                return self._ref
            error = self._removed()
        else:
            found = client.questions.ask(Groups(self._ref.binary()))
            if not found or found[0].scheduling != "INFEASIBLE":
                return self._ref
            error = errors.InfeasibleResourceError(f"Placement group {self.id.hex()} cannot be placed. {found[0].why}")
        serialized = serialize.Serialized(remote_errors.to_bytes(error), [], [])
        return put_written(client, client.store.write(serialized, is_error=True))

    def _was_removed_when_ready(self) -> bool:
        """Whether the group was removed after all its bundles were reserved."""
        client, id = running.client(), self._ref.binary()
        was_ready = client.waiting.wait([id], 1, 0)[0] and not client.waiting.may_be_error(id)
        return was_ready and not client.questions.ask(Groups(id))

    def _removed(self) -> errors.PlacementGroupRemovedError:
        return errors.PlacementGroupRemovedError(f"The placement group {self.id.hex()} was removed.")

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Wait at most `timeout_seconds` until all bundles are reserved. Return whether they are.

        Raises:
            PlacementGroupRemovedError: the group was removed.
        """
        self.check_job()
        client = running.client()
        if not client.waiting.wait([self._ref.binary()], 1, seconds(timeout_seconds, "timeout_seconds"))[0]:
            return False
        client.waiting.get([self._ref.binary()], None)  # or its error
        if self._was_removed_when_ready():
            raise self._removed()
        return True

    def check_job(self) -> None:
        """Raise `ObjectLostError` if the job of this group has ended."""
        self._ref.check_job()

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()}, {self.strategy}, {self.bundle_specs})"

    def __hash__(self) -> int:
        return hash(self._ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self._ref == other._ref

    def __reduce__(self) -> tuple[object, ...]:
        return PlacementGroup, (self._ref, self.bundle_specs, self.strategy, self.name)


def _group_of(id: PlacementGroupID) -> PlacementGroup:
    """The group with this id."""
    if not isinstance(id, PlacementGroupID):
        raise TypeError(f"PlacementGroup() needs a PlacementGroupID, not {id!r}; placement_group() makes a group")
    found = None if id.is_nil() else running.client().questions.ask(Group(id.binary()))
    if found is None:
        raise ValueError(f"There is no placement group with the id {id.hex()}: it was never created, or was removed.")
    group: PlacementGroup = serialize.loads(found)
    return group


@published("mpi_runtime.util.placement_group")
def placement_group(
    bundles: Sequence[Mapping[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    *,
    bundle_label_selector: Sequence[Mapping[str, str]] | None = None,
) -> PlacementGroup:
    """Reserve resources together, all or none. Returns a handle at once; the group waits until it can be placed.

    A group that can never be placed waits too, but `get(group.ready())` raises `InfeasibleResourceError` at once.

    Args:
        bundles: a list of dictionaries. Each has the amounts by name ("CPU", "GPU", "memory" in bytes, custom
            resources) to reserve on one node.
        strategy: "PACK" or None (on as few nodes as possible), "SPREAD" (on as many as possible), "STRICT_PACK" (on one
            node), "STRICT_SPREAD" (each bundle on a node of its own).
        name: the name by which `get_placement_group()` finds the group, in the namespace of the job.
        lifetime: None or "detached". The group lives until it is removed or the job ends. In a session one that is not
            detached ends with its driver too.
        bundle_label_selector: a label selector for each bundle: conditions on the labels of its node, such as
            `{"zone": "in(a,b)"}`; empty: any node.

    Raises:
        ValueError, TypeError: an argument is not allowed, or the name is taken; says which and why.

    Example:
        ```python
        group = placement_group([{"CPU": 2}, {"CPU": 2}], strategy="STRICT_SPREAD")
        mpi_runtime.get(group.ready())
        f.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
        ```
    """
    strategy = PACK if strategy is None else strategy
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise ValueError(f"Invalid strategy {strategy!r} of a placement group; there are: {', '.join(STRATEGIES)}")
    if lifetime is not None and not (isinstance(lifetime, str) and lifetime == "detached"):
        raise ValueError(f"lifetime must be 'detached' or None, not {lifetime!r}")
    check_text("name", name)
    if not isinstance(bundles, (list, tuple)) or not bundles:
        raise ValueError(f"bundles must be a list with at least one bundle, not {bundles!r}")
    if len(bundles) > BUNDLES_MAX:
        raise ValueError(f"bundles must be at most {BUNDLES_MAX}, not {len(bundles)}: make several groups")
    specs = [bundle_spec(bundle) for bundle in bundles]
    for spec, labels in zip(specs, _labels_of(specs, bundle_label_selector), strict=True):
        spec.labels = labels
    client = running.client()
    ref = new_ref(client)
    group = PlacementGroup(
        ref, [{name: float(amount) for name, amount in bundle.items()} for bundle in bundles], strategy, name
    )
    # The value of the reference is the group itself. It holds no counted reference to itself, or it would never be
    # freed; a process that reads it gets a reference of its own.
    data = serialize.dumps(group).inline()
    if not create_group(client, ref, specs, strategy, data, name, lifetime is not None):
        raise ValueError(
            f"The name {name!r} is taken by another placement group. Choose another name, get that group with "
            "get_placement_group(), or remove it first."
        )
    return group


def _labels_of(specs: list[BundleSpec], selectors: Sequence[Mapping[str, str]] | None) -> list[tuple[Label, ...]]:
    """The conditions of each bundle."""
    if selectors is None:
        return [()] * len(specs)
    if not isinstance(selectors, (list, tuple)) or len(selectors) != len(specs):
        raise ValueError(
            f"bundle_label_selector must be a list with a label selector for each of the {len(specs)} bundle(s), not "
            f"{selectors!r}; {{}} is that of a bundle which may be on any node"
        )
    return [check_selector(f"bundle_label_selector[{index}]", one) for index, one in enumerate(selectors)]


def bundle_spec(bundle: Mapping[str, float]) -> BundleSpec:
    """Check a bundle, and return it in the units of the scheduler."""
    if not isinstance(bundle, dict) or not bundle:
        raise ValueError(f"a bundle must be a dictionary with at least one amount, not {bundle!r}")
    for name, amount in bundle.items():
        _check_in_bundle(name, amount)
    if not any(bundle.values()):
        raise ValueError(f"a bundle must reserve something: all amounts of {bundle!r} are 0")
    known = ("CPU", "GPU", "memory")
    custom = {name: round(amount * UNIT) for name, amount in bundle.items() if name not in known and amount}
    cpu, gpu = (round(bundle.get(name, 0) * UNIT) for name in ("CPU", "GPU"))
    return BundleSpec(Request(cpu, gpu, int(bundle.get("memory", 0)), custom_of(custom)))


def _check_in_bundle(name: object, amount: float) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"a bundle has names of resources as keys, not {name!r}")
    check_text("a name in a bundle", name)
    if name == "object_store_memory":
        raise ValueError("a bundle cannot reserve object_store_memory: it is shared by the whole node")
    check_amount(f"{name} of a bundle", amount)
    if name == "gpu_memory":
        raise ValueError("a bundle cannot reserve gpu_memory by itself: it has that of its GPUs")
    if name == "GPU" and amount > 1 and amount != int(amount):
        raise ValueError(f"GPU of a bundle must be a share below 1 or a whole number, not {amount!r}")


@published("mpi_runtime.util.placement_group")
def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Remove a group. Tasks and actors that run in it are killed; calls that wait for it fail.

    Tasks raise `PlacementGroupRemovedError`, calls of actors `ActorDiedError`. The resources of the group become free
    when the processes that used them are gone.

    Raises:
        TypeError: `placement_group` is not a placement group.
    """
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"remove_placement_group() needs a PlacementGroup, not {placement_group!r}")
    placement_group.check_job()
    client = running.client()
    client.outbox.post(GroupRemovalRequested(placement_group._ref.binary()))
    client.outbox.flush()


@published("mpi_runtime.util.placement_group")
def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Find a group by its name, in the namespace of the job.

    Raises:
        ValueError: no group has this name.
    """
    if not isinstance(placement_group_name, str) or not placement_group_name:
        raise ValueError(f"get_placement_group() needs a name that is not empty, not {placement_group_name!r}")
    check_text("placement_group_name", placement_group_name)
    client = running.client()
    found = client.questions.ask(NamedGroup(client.inherited.namespace, placement_group_name))
    if found is None:
        raise ValueError(
            f"There is no placement group with the name {placement_group_name!r}: it was never created, or it has "
            "been removed since."
        )
    group: PlacementGroup = serialize.loads(found)
    return group


@published("mpi_runtime.util.placement_group")
def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """Facts about one group, or about all groups.

    The facts are a dictionary with "state" ("PENDING", "CREATED" or "REMOVED"), "bundles", "bundles_to_node_id", "why"
    (the reason of the state, in words) and others.

    Args:
        placement_group: the group; None: all groups that have not been removed.

    Returns:
        The facts of the group, or a dictionary of facts by the hexadecimal ids of the groups.

    Raises:
        ObjectLostError: the group belongs to a job that has ended.
        TypeError: `placement_group` is not a placement group.
    """
    client = running.client()
    if placement_group is None:
        return {entry.placement_group_id: _facts(entry) for entry in client.questions.ask(Groups())}
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"placement_group_table() needs a PlacementGroup or None, not {placement_group!r}")
    placement_group.check_job()
    found = client.questions.ask(Groups(placement_group._ref.binary()))
    if found:
        return _facts(found[0])
    removed = GroupEntry(
        placement_group_id=placement_group.id.hex(),
        name=placement_group.name,
        bundles=placement_group.bundle_specs,
        nodes=[],
        strategy=placement_group.strategy,
        state="REMOVED",
        scheduling="REMOVED",
        why="It was removed.",
    )
    return _facts(removed)


def _facts(entry: GroupEntry) -> dict[str, object]:
    return {
        **{name: getattr(entry, name) for name in ("placement_group_id", "name", "strategy", "state", "why")},
        "bundles": dict(enumerate(entry.bundles)),
        "bundles_to_node_id": dict(enumerate(entry.nodes)),
        "stats": {"scheduling_state": entry.scheduling},
    }


@published("mpi_runtime.util.placement_group")
def get_current_placement_group() -> PlacementGroup | None:
    """The group of the running task or actor; None if it has none, or the group was removed."""
    client = current.client_or_none()
    where = client.executor.where if client is not None and client.executor is not None else None
    if client is None or where is None or not where.group:
        return None
    found = client.questions.ask(Group(where.group))
    group: PlacementGroup | None = None if found is None else serialize.loads(found)
    return group
