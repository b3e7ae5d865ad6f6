"""How many workers a training has, and what each of them has."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass

from mpi_runtime.core import published
from mpi_runtime.errors.arguments import check_bool
from mpi_runtime.extend import check_selector
from mpi_runtime.scheduler.protocol.events import BUNDLES_MAX, STRATEGIES
from mpi_runtime.tune.extend import GangRequest, advised


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
    """Amounts for each, by name ("CPU", "GPU", "memory", custom resources); None: a CPU, and a GPU with `use_gpu`."""
    placement_strategy: str = "PACK"
    """"PACK" (few nodes), "SPREAD" (many), "STRICT_PACK" (one node) or "STRICT_SPREAD" (a worker on each node)."""
    trainer_resources: Mapping[str, float] | None = None
    """Accepted for programs written for Ray: what runs beside the workers here needs nothing."""
    label_selector: Mapping[str, str] | None = None
    """Conditions on the labels of the nodes of all workers, such as `{"zone": "in(a,b)"}`; None: any nodes."""

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
        if isinstance(self.label_selector, list):
            raise TypeError(
                "label_selector must be one dictionary, for all workers: here they have no lists of their own"
            )
        check_selector("label_selector", self.label_selector or {})
        if self.placement_strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ValueError(f"placement_strategy must be one of {known}, not {self.placement_strategy!r}")

    @property
    def _own(self) -> dict[str, float]:
        """The resources of each worker, by name."""
        gpu = {"GPU": 1.0} if self.use_gpu else {}
        return {**gpu, **({"CPU": 1} if self.resources_per_worker is None else self.resources_per_worker)}

    @property
    def request(self) -> GangRequest:
        """The resources of all workers together."""
        return GangRequest([self._own] * int(self.num_workers), self.placement_strategy, self.label_selector)

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
