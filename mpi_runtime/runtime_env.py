"""`RuntimeEnv`, where programs written for Ray import it."""

from __future__ import annotations

from typing import Any

from mpi_runtime.core.calls.runtime_env import RuntimeEnv, check_config

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
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=list(log_files or ())
        )
        check_config("RuntimeEnvConfig", self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a plain dictionary."""
        return dict(self)
