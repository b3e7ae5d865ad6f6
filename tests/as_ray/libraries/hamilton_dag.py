"""Hamilton: `RayGraphAdapter` with options of nodes; `RayTaskExecutor` with `Parallelizable`."""

import ray.cloudpickle
from hamilton import base, driver
from hamilton.ad_hoc_utils import create_temporary_module
from hamilton.execution import executors
from hamilton.function_modifiers.metadata import ray_remote_options
from hamilton.htypes import Collect, Parallelizable
from hamilton.plugins import h_ray


def double(base_number: int) -> int:
    return base_number * 2


@ray_remote_options(num_cpus=1)
def squared(double: int) -> int:
    return double**2


def total(double: int, squared: int) -> int:
    return double + squared


def number(until: int) -> Parallelizable[int]:
    yield from range(until)


def cubed(number: int) -> int:
    return number**3


def added(cubed: Collect[int]) -> int:
    return sum(cubed)


graph = create_temporary_module(double, squared, total, module_name="graph")
ray.cloudpickle.register_pickle_by_value(graph)  # no executor can import it
adapter = h_ray.RayGraphAdapter(base.DictResult(), ray_init_config={"num_cpus": 2}, shutdown_ray_on_completion=True)
plan = driver.Builder().with_modules(graph).with_adapters(adapter).build()
print(plan.execute(["total", "squared"], inputs={"base_number": 3}))

parallel = create_temporary_module(number, cubed, added, module_name="parallel")
ray.cloudpickle.register_pickle_by_value(parallel)
plan = (
    driver.Builder()
    .enable_dynamic_execution(allow_experimental_mode=True)
    .with_modules(parallel)
    .with_local_executor(executors.SynchronousLocalTaskExecutor())
    .with_remote_executor(h_ray.RayTaskExecutor(num_cpus=2))
    .build()
)
print(plan.execute(["added"], inputs={"until": 5}))
