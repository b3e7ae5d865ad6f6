"""This runtime under Ray's name: `import ray` gives it, so that libraries written for Ray's core run here unchanged.

`names.py` says which modules of Ray there are and what they are made of, `modules.py` makes them, and importing
`installed.py` installs them. Executors import it too, if the driver has, before they run anything.
"""

import importlib
import sys


def install_as_ray() -> None:
    """Have `import ray` give this runtime, here and in all processes of the jobs that this program starts.

    To be called before `init()` and before anything imports `ray`. The modules `ray`, `ray.util`, `ray.actor`,
    `ray.exceptions` and their like are there; Ray's libraries (`ray.data`, `ray.train` ...) are not, as with a plain
    `pip install ray`. What is not there raises an error that names it when it is used.

    Raises:
        RuntimeError: Ray itself has been imported, or the job is running already.

    Example:
        ```python
        import mpi_runtime
        mpi_runtime.install_as_ray()
        import modin.pandas as pd
        ```
    """
    name = "mpi_runtime.as_ray.installed"
    if name in sys.modules:
        return
    if "ray" in sys.modules:
        raise RuntimeError(
            "install_as_ray() comes too late: Ray itself has been imported. Call it before the first `import ray`, "
            "also before libraries that import it, or start the program with `python -m mpi_runtime --as-ray app.py`."
        )
    from mpi_runtime.api import is_initialized

    if is_initialized():
        raise RuntimeError(
            "install_as_ray() comes too late: the job is running, and its executors know nothing of it. Call it before "
            "init(), or start the program with `python -m mpi_runtime --as-ray app.py`."
        )
    importlib.import_module(name)
