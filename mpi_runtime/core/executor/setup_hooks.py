"""Functions that an executor calls once, before its first call: `worker_process_setup_hook`, and settings of logging.

They travel as text in the environment of calls, so executors with one hook serve only calls with that hook.
"""

from __future__ import annotations

import base64
import importlib
import pickle
import traceback
from collections.abc import Callable, Mapping

from mpi_runtime.core.executor import output
from mpi_runtime.core.executor.scratch import HOOKS
from mpi_runtime.errors import RuntimeEnvSetupError

LOGGING, SETUP = HOOKS


def packed(hook: Callable[[], object] | str) -> str:
    """Return a function as text. A string names it: "module.function".

    Raises:
        RuntimeEnvSetupError: it cannot be pickled.
    """
    import cloudpickle  # not at the top: executors need it only for values

    try:
        data = cloudpickle.dumps(hook, protocol=5)
    except Exception as error:
        raise RuntimeEnvSetupError(
            f"Failed to export the setup function. worker_process_setup_hook cannot be pickled: {error}"
        ) from error
    return base64.b64encode(data).decode()


def run(environment: Mapping[str, str]) -> str:
    """Call the functions that an environment names. Return the error of one; empty: there was none."""
    if LOGGING in environment:
        output.show_plain()
    try:
        for key in HOOKS:
            if key in environment:
                _function(pickle.loads(base64.b64decode(environment[key])))()
    except BaseException:
        return f"Failed to execute the setup hook method.\n{traceback.format_exc().strip()}"
    return ""


def _function(hook: Callable[[], object] | str) -> Callable[[], object]:
    if not isinstance(hook, str):
        return hook
    module, _, name = hook.rpartition(".")
    found: Callable[[], object] = getattr(importlib.import_module(module), name)
    return found
