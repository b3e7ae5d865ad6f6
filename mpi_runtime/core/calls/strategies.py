"""Scheduling strategies: where a task or an actor may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mpi_runtime.core import published
from mpi_runtime.core.calls.labels import check_selector, meets
from mpi_runtime.core.calls.options import Options
from mpi_runtime.core.calls.placement_groups import PlacementGroup, bundle_spec, get_current_placement_group
from mpi_runtime.core.client.typed_ids import NodeID
from mpi_runtime.core.driver import running
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import ABSENT, EXISTS, IN, NODE_ID, NOT_IN, Label, Where
from mpi_runtime.scheduler.protocol.questions import Nodes
from mpi_runtime.scheduler.protocol.resources import fits, pool_for


@published("mpi_runtime.util.scheduling_strategies")
@dataclass(frozen=True)
class PlacementGroupSchedulingStrategy:
    """Run in a placement group: in one of its bundles and nowhere else."""

    placement_group: PlacementGroup | None
    """The group; None: no group, even if the caller runs in a group that captures its calls."""
    placement_group_bundle_index: int = -1
    """The index of the bundle; -1: any bundle that has room."""
    placement_group_capture_child_tasks: bool | None = False
    """Whether tasks and actors that the call makes run in the same group, unless they state a strategy."""

    def __post_init__(self) -> None:
        group, index = self.placement_group, self.placement_group_bundle_index
        if group is None:
            return
        if not isinstance(group, PlacementGroup):
            raise TypeError(f"placement_group must be a PlacementGroup or None, not {group!r}")
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"placement_group_bundle_index must be a whole number, not {index!r}")
        if not -1 <= index < group.bundle_count:
            raise ValueError(
                f"placement group bundle index {index} is invalid: it may be 0 to {group.bundle_count - 1}, or -1"
            )


@published("mpi_runtime.util.scheduling_strategies")
@dataclass(frozen=True)
class NodeAffinitySchedulingStrategy:
    """Run on one node and nowhere else."""

    node_id: str
    """The "NodeID" of one of `nodes()`."""
    soft: bool
    """True: any node will do if the node does not exist or is too small. False: the call then fails with
    `InfeasibleResourceError`."""
    _spill_on_unavailable: bool = False
    """With `soft`: any node will do also while the node has no room."""

    def __post_init__(self) -> None:
        if isinstance(self.node_id, NodeID):  # as the old `get_runtime_context().node_id` gives it
            object.__setattr__(self, "node_id", self.node_id.hex())
        if not isinstance(self.node_id, str) or not self.node_id:
            raise TypeError(f"node_id must be the 'NodeID' of one of nodes(), not {self.node_id!r}")
        if not isinstance(self.soft, bool):
            raise TypeError(f"soft must be True or False, not {self.soft!r}")
        if self._spill_on_unavailable and not self.soft:
            raise ValueError("_spill_on_unavailable needs soft=True: without it only the node itself will do")


class _Condition:
    operator: ClassVar[int]
    values: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.values))})"


class _OneOf(_Condition):
    def __init__(self, *values: str) -> None:
        if not values:
            raise ValueError(f"{type(self).__name__}() needs at least one value")
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"{type(self).__name__}() takes values of labels, which are strings, not {value!r}")
        self.values = values


@published("mpi_runtime.util.scheduling_strategies")
class In(_OneOf):
    """Condition on a label: it has one of these values."""

    operator = IN


@published("mpi_runtime.util.scheduling_strategies")
class NotIn(_OneOf):
    """Condition on a label: it has none of these values, or the node lacks the label."""

    operator = NOT_IN


@published("mpi_runtime.util.scheduling_strategies")
class Exists(_Condition):
    """Condition on a label: the node has the label."""

    operator = EXISTS


@published("mpi_runtime.util.scheduling_strategies")
class DoesNotExist(_Condition):
    """Condition on a label: the node lacks the label."""

    operator = ABSENT


@published("mpi_runtime.util.scheduling_strategies")
@dataclass(frozen=True)
class NodeLabelSchedulingStrategy:
    """Run on nodes whose labels meet conditions: `In(...)`, `NotIn(...)`, `Exists()` or `DoesNotExist()`."""

    hard: Mapping[str, object] | None = None
    """Conditions that must hold, by label."""
    soft: Mapping[str, object] | None = None
    """Conditions that should hold, by label: nodes that meet them and have room now are preferred."""

    def __post_init__(self) -> None:
        _labels("hard", self.hard)
        _labels("soft", self.soft)
        if not self.hard and not self.soft:
            raise ValueError("NodeLabelSchedulingStrategy needs a condition: hard={'zone': In('a')}, or soft=...")


def _labels(name: str, conditions: Mapping[str, object] | None) -> tuple[Label, ...]:
    if conditions is not None and not isinstance(conditions, Mapping):
        raise TypeError(f"{name} must be a dictionary of labels and conditions, not {conditions!r}")
    labels = []
    for key, condition in (conditions or {}).items():
        if not isinstance(key, str) or not key:
            raise TypeError(f"{name} must have names of labels as keys, not {key!r}")
        if not isinstance(condition, _Condition):
            raise TypeError(
                f"{name}[{key!r}] must be In(...), NotIn(...), Exists() or DoesNotExist(), not {condition!r}"
            )
        labels.append(Label(key, condition.operator, condition.values))
    return tuple(labels)


def check_fallbacks(name: str, fallbacks: object) -> list[tuple[Label, ...]]:
    """Check a `fallback_strategy`, and return the conditions of each part."""
    if not isinstance(fallbacks, (list, tuple)):
        raise TypeError(f"{name} must be a list of dictionaries with a label_selector each, not {fallbacks!r}")
    found = []
    for one in fallbacks:
        if not isinstance(one, dict) or set(one) != {"label_selector"}:
            raise ValueError(f"{name} must be like [{{'label_selector': {{'zone': 'a'}}}}]; {one!r} is not like that")
        found.append(check_selector(name, one["label_selector"]))
    return found


def _first_that_a_node_has(choices: Sequence[tuple[Label, ...]]) -> tuple[Label, ...]:
    """The first list of conditions that some node meets; else the first list. Nodes never join later."""
    nodes = [node.labels for node in running.client().questions.ask(Nodes())]
    for choice in choices:
        if any(meets(labels, choice) for labels in nodes):
            return choice
    return choices[0]


def check_strategy(name: str, strategy: object) -> None:
    """Refuse what the option `scheduling_strategy` cannot be. `name`: of the option."""
    kinds = (PlacementGroupSchedulingStrategy, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy)
    if strategy not in ("DEFAULT", "SPREAD") and not isinstance(strategy, kinds):
        raise ValueError(
            f"{name} must be 'DEFAULT', 'SPREAD', or one of {', '.join(kind.__name__ for kind in kinds)}, "
            f"not {strategy!r}"
        )


def where(name: str, options: Mapping[str, object], request: Request, inherited: Where | None) -> Where | None:
    """Where the calls of a function or class may run, with the resources of `request`; None: anywhere.

    `inherited`: the place of calls without a strategy, if their caller captures them. A bundle that cannot serve the
    request, and options that contradict each other, are errors.
    """
    strategy = _strategy_of(options)
    selector = check_selector("label_selector", options.get("label_selector") or {})
    fallbacks = check_fallbacks("fallback_strategy", options.get("fallback_strategy") or [])
    if fallbacks:
        selector = _first_that_a_node_has([selector, *fallbacks])
    if strategy is None and not selector:
        return inherited
    if isinstance(strategy, PlacementGroupSchedulingStrategy) and strategy.placement_group is not None:
        if selector:
            raise ValueError(
                f"{name} has a label_selector and a placement group: it runs where its bundle is. Omit one of them."
            )
        return _in_group(name, strategy.placement_group, strategy, request)
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        if strategy._spill_on_unavailable:
            return Where(labels=selector, preferred=(Label(NODE_ID, IN, (strategy.node_id,)),))
        return Where(node=strategy.node_id, soft=strategy.soft, labels=selector)
    if isinstance(strategy, NodeLabelSchedulingStrategy):
        return Where(labels=selector + _labels("hard", strategy.hard), preferred=_labels("soft", strategy.soft))
    return Where(spread=strategy == "SPREAD", labels=selector) if selector or strategy == "SPREAD" else None


def _strategy_of(options: Options) -> object:
    """The strategy in options; that of the old options for placement groups, as in Ray; None: that of the caller."""
    strategy, group = options.get("scheduling_strategy"), options.get("placement_group", "default")
    index, captures = options.get("placement_group_bundle_index"), options.get("placement_group_capture_child_tasks")
    index = -1 if index is None else index
    if strategy is not None or (group == "default" and captures is None and index == -1):
        return strategy
    if group == "default":
        group = get_current_placement_group() if captures else None
    if group is None and index != -1:
        raise ValueError(f"placement_group_bundle_index must be -1 without a placement_group, not {index}")
    return "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, index, captures)


def _in_group(name: str, group: PlacementGroup, strategy: PlacementGroupSchedulingStrategy, request: Request) -> Where:
    group.check_job()
    index = strategy.placement_group_bundle_index
    bundles = group.bundle_specs if index < 0 else [group.bundle_specs[index]]
    if not any(fits(request, pool_for(bundle_spec(bundle).asks)) for bundle in bundles):
        which = "any bundle" if index < 0 else f"bundle {index}"
        raise ValueError(
            f"Cannot schedule {name} with the placement group: it requests {request}, which cannot fit into {which} "
            f"of {bundles}. Request less (a call needs 1 CPU by default), or make larger bundles."
        )
    return Where(group=bytes(group.id), bundle=index, captures=bool(strategy.placement_group_capture_child_tasks))
