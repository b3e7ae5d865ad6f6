"""`RuntimeEnv`, where programs written for Ray import it."""

from typing import Any

from mpi_runtime.core.calls.runtime_env import RuntimeEnv

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]


class RuntimeEnvConfig(dict[str, Any]):
    """Ray's settings of the set-up of an environment: accepted as `config`, without effect."""
