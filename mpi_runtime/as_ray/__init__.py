"""This runtime under Ray's name: `import ray` gives it, so that libraries written for Ray's core run unchanged.

`ray_names.py` lists the modules of Ray and their content, `import_system.py` makes them, and importing `install.py`
installs them. If the driver has imported that module, executors import it before they run anything.

- `dag.py`: graphs of calls, as Ray's `dag`
- `dag_nodes.py`: its classes of nodes, from which libraries derive their own, and its settings
- `data_context.py`: settings of `ray.data`
- `install.py`: its import makes `import ray` give this package in this process
- `import_system.py`: finds and makes the modules `ray`, `ray.util` and so on for Python's import system
- `ray_names.py`: tables of Ray's modules and names, and the modules here that stand behind them
- `top.py`: names of the module `ray` that have no meaning here, such as its version, languages and modes, and functions
  with other arguments or results: `get`, `wait`, `cancel`, `nodes`, `shutdown`
- `listed/`: `ray.util.state` with the arguments of Ray's functions
- `train_settings.py`: the settings of `ray.train`, without those of `ray.tune`
- `train_constants.py`: `ray.train.constants`
- `object_scanner.py`: `ray.dag.py_obj_scanner`: finds and replaces objects inside a value
- `private_state.py`: `ray._private.state`: the names that libraries read to place their workers, and constants
- `worker.py`: `ray._private.worker`: the few of its names that libraries read
- `logging_config.py`: `ray.LoggingConfig`
- `ray_logger.py`: the logger "ray", whose lines are shown from INFO on
- `job_config.py`: `ray.job_config.JobConfig`
- `renamed.py`: functions with `ray` in their name, `register_ray` and `disable_dask_on_ray`, and some with one answer
- `annotations.py`: decorators such as `PublicAPI`, which change nothing, and `Deprecated`, which may warn
- `tune_result.py`: `ray.tune.result`: names of reported values
- `tune_utils.py`: `ray.tune.utils`: functions for dictionaries; `pretty_print`
- `parallel_iterators.py`: `ray.util.iter`: iterators whose items are in actors
- `debug.py`: functions that log a line once per process
- `ray_client.py`: Ray's client, which is never connected
- `distribution.py`: the distribution "ray" for `importlib.metadata`
"""

import importlib
import sys


def install_as_ray() -> None:
    """Make `import ray` give this runtime, here and in all processes of the jobs that this program starts.

    Call it before `init()` and before anything imports `ray`. The modules `ray`, `ray.util`, `ray.actor`,
    `ray.exceptions` and others exist. Ray's libraries (`ray.data`, `ray.serve` ...) do not, as with a plain
    `pip install ray`. Use of a missing name raises an error that names it.

    Raises:
        RuntimeError: Ray itself has been imported, or the job is running already.

    Example:
        ```python
        import mpi_runtime
        mpi_runtime.install_as_ray()
        import modin.pandas as pd
        ```
    """
    name = "mpi_runtime.as_ray.install"
    if name in sys.modules:
        return
    if "ray" in sys.modules:
        raise RuntimeError(
            "install_as_ray() is too late: Ray itself has been imported. Call it before the first `import ray`, "
            "also before libraries that import it, or start the program with `python -m mpi_runtime --as-ray app.py`."
        )
    from mpi_runtime import is_initialized

    if is_initialized():
        raise RuntimeError(
            "install_as_ray() is too late: the job is running, and its executors have started without it. Call it "
            "before init(), or start the program with `python -m mpi_runtime --as-ray app.py`."
        )
    importlib.import_module(name)
