"""How many workers a training has, and what each of them has."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpi_runtime.core import published
from mpi_runtime.errors.arguments import check_bool
from mpi_runtime.extend import check_selector
from mpi_runtime.scheduler.protocol.events import BUNDLES_MAX, STRATEGIES
from mpi_runtime.tune.extend import GangRequest, advised

OF_TYPE = 0.001
"""The amount of the resource of a type of GPU that asks for this type."""


@published("mpi_runtime.train")
@advised
@dataclass(frozen=True)
class ScalingConfig:
    """The number of workers, and the resources of each."""

    num_workers: int = 1
    """The number of processes that run the function together."""
    use_gpu: bool = False
    """Whether each has a GPU, or as many as `resources_per_worker` states."""
    resources_per_worker: Mapping[str, float] | None = None
    """Amounts for each, by name ("CPU", "GPU", "memory", custom resources); None: a CPU, or a GPU with `use_gpu`."""
    placement_strategy: str = "PACK"
    """"PACK" (few nodes), "SPREAD" (many), "STRICT_PACK" (one node) or "STRICT_SPREAD" (a worker on each node)."""
    trainer_resources: Mapping[str, float] | None = None
    """Accepted for programs written for Ray: what runs beside the workers here needs nothing."""
    accelerator_type: str | None = None
    """The type of the GPUs, such as "H100"; None: any. `cluster_resources()` has those of the job."""
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    """Conditions on the labels of the nodes of all workers, such as `{"zone": "in(a,b)"}`; None: any nodes. A list has
    the same for each worker."""

    def __post_init__(self) -> None:
        if isinstance(self.num_workers, tuple):
            raise TypeError(
                f"num_workers={self.num_workers!r}: the number of workers stays the same here, so pass one number, and "
                "after a failure the training starts when there is room for that many"
            )
        if not isinstance(self.num_workers, numbers.Integral) or isinstance(self.num_workers, bool):
            raise TypeError(f"num_workers must be a whole number, not {self.num_workers!r}")
        if self.num_workers < 1:
            raise ValueError(
                f"num_workers={self.num_workers}: a training needs a worker at least; with 1 the function runs in "
                "one process"
            )
        if self.num_workers > BUNDLES_MAX:
            raise ValueError(f"num_workers must be at most {BUNDLES_MAX}, not {self.num_workers}")
        check_bool("use_gpu", self.use_gpu)
        given = self.resources_per_worker
        if not isinstance(given, Mapping | None):
            raise TypeError(f"resources_per_worker must be amounts by name, such as {{'CPU': 2}}, not {given!r}")
        for name, amount in (given or {}).items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
                raise ValueError(f"resources_per_worker[{name!r}]={amount!r} must be a number, 0 or more")
        if self.use_gpu and (given or {}).get("GPU", 1) == 0:
            raise ValueError("use_gpu=True and resources_per_worker={'GPU': 0} contradict each other")
        if not self.use_gpu and (given or {}).get("GPU"):
            raise ValueError("resources_per_worker has GPUs: set use_gpu=True too")
        check_selector("label_selector", self._selector)
        if not isinstance(self.accelerator_type, str | None) or self.accelerator_type == "":
            raise TypeError(f"accelerator_type must be the name of a type of GPU, not {self.accelerator_type!r}")
        if self.placement_strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ValueError(f"placement_strategy must be one of {known}, not {self.placement_strategy!r}")

    @property
    def _own(self) -> dict[str, float]:
        """The resources of each worker, by name."""
        model = {f"accelerator_type:{self.accelerator_type}": OF_TYPE} if self.accelerator_type else {}
        given = self.resources_per_worker
        if given is None:
            given = {} if self.use_gpu else {"CPU": 1}
        return {**({"GPU": 1} if self.use_gpu else {}), **model, **given}

    @property
    def _selector(self) -> dict[str, str]:
        """The conditions on the labels of all nodes."""
        given = self.label_selector or {}
        if isinstance(given, Mapping):
            return dict(given)
        if len(given) != self.num_workers:
            raise ValueError(
                f"label_selector has {len(given)} dictionaries for {self.num_workers} workers: pass one for each, or "
                "one dictionary for all"
            )
        if any(one != given[0] for one in given):
            raise ValueError("label_selector has different dictionaries: workers have the same conditions here")
        return dict(given[0])

    @property
    def request(self) -> GangRequest:
        """The resources of all workers together."""
        return GangRequest([self._own] * int(self.num_workers), self.placement_strategy, self._selector)

    @property
    def num_cpus_per_worker(self) -> float:
        """The number of CPUs of each worker."""
        return self._own.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """The number of GPUs of each worker."""
        return self._own.get("GPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """The amounts of each worker without CPUs and GPUs, by name."""
        return {name: amount for name, amount in self._own.items() if name not in ("CPU", "GPU")}

    @property
    def total_resources(self) -> dict[str, float]:
        """The amounts of all workers together, by name."""
        return self.request.required_resources
