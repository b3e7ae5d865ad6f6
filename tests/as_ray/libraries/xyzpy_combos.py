"""xyzpy: `combo_runner_to_ds` on its `RayExecutor`."""

import xyzpy
from xyzpy.gen.ray_executor import RayExecutor


def total(a, b):
    return a + 10 * b


pool = RayExecutor(num_cpus=2)
found = xyzpy.combo_runner_to_ds(total, {"a": [1, 2, 3], "b": [4, 5]}, ["sum"], executor=pool, verbosity=0)
print(found["sum"].values.tolist())
