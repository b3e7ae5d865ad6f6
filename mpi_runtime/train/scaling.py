"""How many workers a training has, and what each of them has."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.errors.arguments import check_bool
from mpi_runtime.extend import check_selector
from mpi_runtime.scheduler.protocol.events import BUNDLES_MAX, STRATEGIES
from mpi_runtime.tune.extend import AbsentArgumentError, GangRequest, advised, most_members, slots_for

_MAIN = ("CPU", "GPU")
OF_TYPE = 0.001
"""The amount of the resource of a type of GPU that asks for this type."""


@published("mpi_runtime.train")
@advised
@dataclass(frozen=True)
class ScalingConfig:
    """The number of workers, and the resources of each."""

    num_workers: int | tuple[int, int] = 1
    """The number of processes that run the function together; the least and the most: as many as fit whenever the
    training starts, or starts again; 0: the function runs in the process of the program."""
    use_gpu: bool = False
    """Whether each has a GPU, or as many as `resources_per_worker` states."""
    resources_per_worker: Mapping[str, float] | None = None
    """Amounts for each, by name ("CPU", "GPU", "memory", custom resources); None: a CPU, or a GPU with `use_gpu`."""
    placement_strategy: str = "PACK"
    """"PACK" (few nodes), "SPREAD" (many), "STRICT_PACK" (one node) or "STRICT_SPREAD" (a worker on each node)."""
    trainer_resources: Mapping[str, float] | None = None
    """Must be None, as in Ray: what runs beside the workers needs nothing."""
    accelerator_type: str | None = None
    """The type of the GPUs, such as "H100"; None: any. `cluster_resources()` has those of the job."""
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    """Conditions on the labels of the nodes of all workers, such as `{"zone": "in(a,b)"}`; None: any nodes. A list has
    the same for each worker."""
    use_tpu: bool = False
    """Whether each has 1 of the resource "TPU", or as much as `resources_per_worker` states. The job must have been
    started with such a resource: nothing here finds TPUs."""
    elastic_resize_monitor_interval_s: float = 60.0
    """Accepted for programs written for Ray: the number of workers changes only when the training starts again."""

    def __post_init__(self) -> None:
        if self.trainer_resources is not None:
            raise AbsentArgumentError(
                "ScalingConfig(trainer_resources=...) is not here: what runs beside the workers needs nothing. The "
                "resources of each worker are resources_per_worker"
            )
        least, most = self.min_workers, self.max_workers
        for number in (least, most):
            if not isinstance(number, numbers.Integral) or isinstance(number, bool):
                raise ValueError(
                    f"num_workers must be a whole number, or the least and the most of them, not {self.num_workers!r}"
                )
        if least < 0 or not least <= most <= BUNDLES_MAX or (self.elasticity_enabled and not least):
            raise ValueError(
                f"num_workers={self.num_workers!r}: the numbers must be 1 to {BUNDLES_MAX}, the least before the most; "
                "with 0 alone the function runs in the process of the program"
            )
        if self.elastic_resize_monitor_interval_s < 0:
            raise ValueError(f"elastic_resize_monitor_interval_s={self.elastic_resize_monitor_interval_s} is negative")
        check_bool("use_gpu", self.use_gpu)
        given = self.resources_per_worker
        if not isinstance(given, Mapping | None):
            raise TypeError(f"resources_per_worker must be amounts by name, such as {{'CPU': 2}}, not {given!r}")
        for name, amount in (given or {}).items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
                raise ValueError(f"resources_per_worker[{name!r}]={amount!r} must be a number, 0 or more")
        check_bool("use_tpu", self.use_tpu)
        if self.use_gpu and self.use_tpu:
            raise ValueError("Cannot specify both `use_gpu=True` and `use_tpu=True`: a worker has one kind")
        for option, name in (("use_gpu", "GPU"), ("use_tpu", "TPU")):
            is_wanted, own = getattr(self, option), (given or {}).get(name)
            if is_wanted and own == 0:
                raise ValueError(
                    f"`{option}` is True but `{name}` is set to 0 in `resources_per_worker`: they contradict each other"
                )
            if not is_wanted and own:
                raise ValueError(
                    f"`{option}` is False but `{name}` was found in `resources_per_worker`: set {option}=True too"
                )
        check_selector("label_selector", self._selector)
        if not isinstance(self.accelerator_type, str | None) or self.accelerator_type == "":
            raise TypeError(f"accelerator_type must be the name of a type of GPU, not {self.accelerator_type!r}")
        if self.placement_strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ValueError(f"placement_strategy must be one of {known}, not {self.placement_strategy!r}")

    @property
    def _resources_per_worker_not_none(self) -> dict[str, float]:
        """The resources of each worker, by name."""
        model = {f"accelerator_type:{self.accelerator_type}": OF_TYPE} if self.accelerator_type else {}
        given = self.resources_per_worker
        if given is None:
            given = {} if self.use_gpu or self.use_tpu else {"CPU": 1}
        device = {"GPU": 1} if self.use_gpu else {"TPU": 1} if self.use_tpu else {}
        return {**device, **model, **given}

    @property
    def _selector(self) -> dict[str, str]:
        """The conditions on the labels of all nodes."""
        given = self.label_selector or {}
        if isinstance(given, Mapping):
            return dict(given)
        if len(given) != self.max_workers:
            raise ValueError(
                "If `label_selector` is a list, it must be the same length as `max_workers` (or `num_workers`): it has "
                f"{len(given)} dictionaries for {self.max_workers} workers. Pass one for each, or one for all"
            )
        if any(one != given[0] for one in given):
            raise ValueError("label_selector has different dictionaries: workers have the same conditions here")
        return dict(given[0])

    @property
    def elasticity_enabled(self) -> bool:
        """Whether the number of workers may differ each time."""
        return isinstance(self.num_workers, tuple) and len(self.num_workers) == 2

    @property
    def min_workers(self) -> int:
        """The least number of workers."""
        return self.num_workers[0] if self.elasticity_enabled else self.num_workers  # type: ignore[index, return-value]

    @property
    def max_workers(self) -> int:
        """The most workers."""
        return self.num_workers[1] if self.elasticity_enabled else self.num_workers  # type: ignore[index, return-value]

    @property
    def request(self) -> GangRequest:
        """The resources of all workers together: of the most, if the number is not fixed."""
        return self.request_of(max(1, self.max_workers))

    def request_of(self, count: int) -> GangRequest:
        """The resources of this number of workers together."""
        return GangRequest([self._resources_per_worker_not_none] * count, self.placement_strategy, self._selector)

    @property
    def num_cpus_per_worker(self) -> float:
        """The number of CPUs of each worker."""
        return self._resources_per_worker_not_none.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """The number of GPUs of each worker."""
        return self._resources_per_worker_not_none.get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        """The amount of the resource "TPU" of each worker."""
        return self._resources_per_worker_not_none.get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """The amounts of each worker without CPUs and GPUs, by name."""
        return {name: amount for name, amount in self._resources_per_worker_not_none.items() if name not in _MAIN}

    @property
    def total_resources(self) -> dict[str, float]:
        """The amounts of all workers together, by name."""
        return self.request.required_resources


@published("mpi_runtime.train")
@dataclass(frozen=True)
class Workers:
    """The resources of a training, when it starts."""

    scaling: ScalingConfig
    runtime_env: Mapping[str, object] | None

    def __call__(self, config: Mapping[str, object]) -> GangRequest:
        """Those of all workers: of as many as fit on the nodes now, if the number is not fixed."""
        least, most = max(1, self.scaling.min_workers), max(1, self.scaling.max_workers)
        if least < most:
            nodes = [node for node in mpi_runtime.nodes() if node["Alive"]]
            slots_for(self.scaling.request_of(least), nodes)  # an error if there never is room
            most = max(least, min(most, most_members(self.scaling.request_of(1), nodes)))
        return replace(self.scaling.request_of(most), runtime_env=self.runtime_env)
