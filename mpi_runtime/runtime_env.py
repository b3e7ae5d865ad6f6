"""`RuntimeEnv`, where programs written for Ray import it."""

from __future__ import annotations

from typing import Any

from mpi_runtime.core.calls.runtime_env import RuntimeEnv
from mpi_runtime.errors.arguments import check_whole

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]


class RuntimeEnvConfig(dict[str, Any]):
    """Ray's settings of the set-up of an environment: accepted as `config`, without effect."""

    def __init__(
        self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None
    ) -> None:
        """Make settings, with the values that Ray has.

        Raises:
            TypeError, ValueError: a value is not one that Ray accepts.
        """
        check_whole("setup_timeout_seconds", setup_timeout_seconds, -1)
        if setup_timeout_seconds == 0:
            raise ValueError("setup_timeout_seconds must be positive, or -1 for no limit, not 0")
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be True or False, not {eager_install!r}")
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=list(log_files or ())
        )
