"""dask: `ray_dask_get`, `enable_dask_on_ray`, `disable_dask_on_ray`."""

import dask
import dask.array as da
import ray
from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get

ray.init(num_cpus=2)
x = da.arange(1000, chunks=100)
print(x.sum().compute(scheduler=ray_dask_get))
enable_dask_on_ray()
print(dask.compute(x.max(), x.min()))
disable_dask_on_ray()
print(x.mean().compute())
