"""dagster-ray: its options of `ray.data`, set here and in a task."""

import ray
from dagster_ray.configs import RayDataExecutionOptions

ray.init(num_cpus=2)
options = RayDataExecutionOptions(execution_options={"cpu": 3})
options.apply()
options.apply_remote()
print(ray.data.DataContext.get_current().execution_options.resource_limits.cpu)
