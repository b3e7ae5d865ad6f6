"""The resources of a trial, in one or several bundles, and how many such trials fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from mpi_runtime.core import published
from mpi_runtime.errors import InfeasibleResourceError
from mpi_runtime.extend import check_selector, meets
from mpi_runtime.tune.trial import Values


@published("mpi_runtime.tune")
@dataclass(frozen=True)
class PlacementGroupFactory:
    """The resources of a trial that starts tasks or actors: bundles that are reserved together.

    The trial itself runs in the first bundle, its tasks and actors in any of them.
    """

    bundles: Sequence[Mapping[str, float]]
    """Amounts by name ("CPU", "GPU", "memory", custom resources), for each bundle."""
    strategy: str = "PACK"
    """One of "PACK", "SPREAD", "STRICT_PACK" and "STRICT_SPREAD"."""
    head_bundle_is_empty: bool = field(default=False, init=False)
    """Whether the first bundle was empty: it is left out, and the trial itself needs nothing."""

    def __post_init__(self) -> None:
        if not self.bundles or not all(isinstance(bundle, Mapping) for bundle in self.bundles):
            raise ValueError("PlacementGroupFactory needs at least one bundle, such as [{'CPU': 1}, {'CPU': 2}]")
        if type(self) is not PlacementGroupFactory:
            return
        try:
            found = [{name: float(value) for name, value in one.items() if value} for one in self.bundles]
        except (TypeError, ValueError):
            raise ValueError(f"PlacementGroupFactory({self.bundles!r}): amounts must be numbers") from None
        is_empty = len(found) > 1 and not found[0]
        object.__setattr__(self, "head_bundle_is_empty", is_empty)
        object.__setattr__(self, "bundles", found[is_empty:])

    def __eq__(self, other: object) -> bool:
        """Whether it is the same request, or the dictionary that a report has of it."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        if isinstance(other, Mapping):
            return own == dict(other)
        return type(other) is type(self) and own == {one.name: getattr(other, one.name) for one in fields(self)}

    def __hash__(self) -> int:
        return hash((self.strategy, *(frozenset(bundle.items()) for bundle in self.bundles)))

    @property
    def head_cpus(self) -> float:
        """The CPUs of the trial itself."""
        return float(self.head.get("CPU", 0))

    @property
    def head(self) -> Mapping[str, float]:
        """The amounts of the trial itself."""
        return {} if self.head_bundle_is_empty else self.bundles[0]

    @property
    def is_group(self) -> bool:
        """Whether its bundles are reserved together."""
        return len(self.bundles) > 1 or self.head_bundle_is_empty

    @property
    def required_resources(self) -> dict[str, float]:
        """The amounts of all bundles together."""
        return _total(self.bundles)


@published("mpi_runtime.tune")
@dataclass(frozen=True)
class GangRequest(PlacementGroupFactory):
    """The resources of a trial that runs on a gang: a bundle for each member, all equal."""

    label_selector: Mapping[str, str] | None = None
    """Conditions on the labels of the nodes."""
    runtime_env: Mapping[str, object] | None = None
    """The environment of the members."""

    @property
    def options(self) -> dict[str, object]:
        """The request as options of a call, without the amounts of a member."""
        found: dict[str, object] = {"num_ranks": len(self.bundles), "_starts_mpi": False}
        if self.strategy.startswith("STRICT_"):
            found["ranks_per_node"] = len(self.bundles) if self.strategy == "STRICT_PACK" else 1
        elif self.strategy == "SPREAD":
            found["scheduling_strategy"] = "SPREAD"
        if self.label_selector:
            found["label_selector"] = dict(self.label_selector)
        if self.runtime_env:
            found["runtime_env"] = dict(self.runtime_env)
        return found


Resources = Mapping[str, object] | PlacementGroupFactory


def as_bundles(wanted: object) -> PlacementGroupFactory:
    """Check the resources of a trial, and return them as bundles: a single one unless it starts tasks or actors."""
    if isinstance(wanted, PlacementGroupFactory):
        return wanted
    if wanted is None:
        return PlacementGroupFactory([{"CPU": 1}])
    if not isinstance(wanted, Mapping):
        raise TypeError(f"resources={wanted!r}: pass amounts by name, such as {{'cpu': 2, 'gpu': 0.25}}")
    amounts: dict[str, float] = {}
    extra: dict[str, float] = {}
    for name, value in {**wanted, **(wanted.get("custom_resources") or {})}.items():
        if name == "custom_resources":
            continue
        if not isinstance(name, str):
            raise TypeError(f"resources has {name!r}: names of resources are strings")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ValueError(f"resources[{name!r}]={value!r} must be a number, 0 or more")
        own = {"cpu": "CPU", "gpu": "GPU", "extra_cpu": "CPU", "extra_gpu": "GPU"}.get(name, name)
        if value:
            (extra if name.startswith("extra_") else amounts)[own] = value
    return PlacementGroupFactory([amounts, extra] if extra else [amounts])


def amounts(bundle: Mapping[str, float]) -> dict[str, object]:
    """A bundle as options of a task."""
    custom = {name: value for name, value in bundle.items() if name not in ("CPU", "GPU", "memory")}
    found: dict[str, object] = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0)}
    if custom:
        found["resources"] = custom
    if "memory" in bundle:
        found["memory"] = bundle["memory"]
    return found


def slots_for(request: PlacementGroupFactory, nodes: Sequence[Values]) -> int:
    """How many trials with this request fit: at least one, or it raises InfeasibleResourceError."""
    if isinstance(request, GangRequest):
        found = _gangs_for(request, _members(request, nodes))
    elif len(request.bundles) > 1:
        found = _fit(request.required_resources, _total([node["Resources"] for node in nodes]))
    else:
        found = sum(_fit(request.bundles[0], node["Resources"]) for node in nodes)
    if not found:
        how = f" by {request.strategy}" if request.strategy.startswith("STRICT_") else ""
        if isinstance(request, GangRequest) and request.label_selector:
            how += f" on nodes with the labels {dict(request.label_selector)}"
        raise InfeasibleResourceError(
            f"A trial needs {[dict(bundle) for bundle in request.bundles]}{how}, and no trial of this size fits: the "
            f"nodes have {[node['Resources'] for node in nodes]}. Ask for less, or start the job with more."
        )
    return found


def most_members(request: GangRequest, nodes: Sequence[Values]) -> int:
    """How many members of such a gang fit, if it has the nodes for itself."""
    members = _members(request, nodes)
    if request.strategy == "STRICT_PACK":
        return max(members, default=0)
    return sum(map(bool, members)) if request.strategy == "STRICT_SPREAD" else sum(members)


def _members(request: GangRequest, nodes: Sequence[Values]) -> list[int]:
    """How many members fit on each node with the labels."""
    if request.label_selector:
        conditions = check_selector("label_selector", dict(request.label_selector))
        nodes = [node for node in nodes if meets(node["Labels"], conditions)]
    return [_fit(request.bundles[0], node["Resources"]) for node in nodes]


def _gangs_for(request: GangRequest, members: Sequence[int]) -> int:
    """How many gangs fit, given how many members fit on each node. Members that need no resources fit anywhere."""
    size = len(request.bundles)
    if request.strategy == "STRICT_PACK":
        found = sum(count // size for count in members)
    elif request.strategy == "STRICT_SPREAD" and sum(map(bool, members)) < size:
        return 0
    else:
        found = sum(members) // size
    return found or int(not any(request.bundles[0].values()))


def _total(bundles: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _fit(wanted: Mapping[str, float], there: Mapping[str, float]) -> int:
    counts = []
    for name, amount in wanted.items():
        has = there.get(name, 0)
        if not amount:
            continue
        if name == "GPU" and amount < 1:
            counts.append(int(has) * int(1 / amount + 1e-9))  # shares of one device each
        else:
            counts.append(int(has / amount + 1e-9))
    return min(counts) if counts else max(1, int(there.get("CPU", 1)))
