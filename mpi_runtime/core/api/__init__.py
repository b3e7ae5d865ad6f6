"""The functions that users call. `mpi_runtime` exports them on first use.

They check arguments and leave the work to `calls`, `job` and the client of this process.

- `job.py`: `init`, `shutdown`, `is_initialized`, and the context that `init` returns
- `calls.py`: `remote`, `kill`, `cancel`, `explain`
- `values.py`: `get`, `put`, `wait`
- `context.py`: `get_runtime_context`, `get_gpu_ids`, `get_gpus`
- `cluster.py`: `nodes`, `cluster_resources`, `available_resources`
- `timeline.py`: `timeline()`: finished calls as events for Perfetto and Chrome's tracing view
"""
