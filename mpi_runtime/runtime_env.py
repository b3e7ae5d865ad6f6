"""`RuntimeEnv`, where programs written for Ray import it."""

from typing import Any

from mpi_runtime.calls.runtime_env import RuntimeEnv

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]


class RuntimeEnvConfig(dict[str, Any]):
    """How long Ray may take to set up an environment: accepted as `config`, and without meaning."""
