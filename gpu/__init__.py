"""GPUs: finding them, choosing some for a request, arrays on them. Imports nothing else of mpi_runtime.

`device.py`, `topology.py` and `ledger.py` are pure, and the scheduler uses them.

- `device.py`: records of GPUs, links and processes
- `nvidia.py`: asks NVIDIA's driver through NVML, in a helper process
- `visibility.py`: applies CUDA_VISIBLE_DEVICES and the launcher's limits
- `ledger.py`: the devices of a host, and the choice for a request: whole ones, or a share of one
- `topology.py`: chooses the devices with the best links
- `caps.py`: limits the memory pools of cupy and torch to the granted amount
- `faults.py`: which exceptions are CUDA errors, and which of them make CUDA unusable in their process
- `cuda_context.py`: asks the driver whether CUDA still works here; pins memory
- `arrays.py`: arrays of cupy and torch: describe, copy, rebuild
- `staging.py`: copies between device and host through pinned buffers
"""

if __name__ != "mpi_runtime.gpu":
    raise ImportError("import this package as mpi_runtime.gpu, not by its folder's name")
