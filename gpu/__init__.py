"""GPUs: finding them, choosing some for a request, arrays on them. Imports nothing else of mpi_runtime.

`device.py`, `topology.py` and `ledger.py` are pure, and the scheduler uses them.

- `device.py`: records of GPUs, links and processes
- `vendor.py`: the variables of each vendor, and the signs of its driver
- `finding.py`: the helper processes that ask drivers
- `nvidia.py`: asks NVIDIA's driver through NVML
- `amd.py`: reads the files of AMD's driver
- `intel.py`: reads the files of Intel's drivers
- `sysfs.py`: what these files are like
- `visibility.py`: applies CUDA_VISIBLE_DEVICES and the launcher's limits
- `masks.py`: applies the variables of AMD and Intel
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
