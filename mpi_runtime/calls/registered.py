"""What `@remote` makes of a function or a class, as far as the job knows it: its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi_runtime.calls import specs
from mpi_runtime.calls.code import Code
from mpi_runtime.client.client import Client
from mpi_runtime.client.inherited import Inherited
from mpi_runtime.executor.scratch import held
from mpi_runtime.scheduler.events import Spec, Where


class Registered:
    """Has its spec registered with the job before the first call, and again where calls inherit something else."""

    def __init__(self, code: Code, options: Mapping[str, Any]) -> None:
        self._code = code
        self._options = dict(options)
        self._spec: Spec | None = None
        self._inherited: Inherited | None = None
        """For which job, and which call that runs, the spec was made."""
        self._where: Where | None = None
        self._holds: list[bytes] = []
        """Objects that each call needs for its environment."""

    def _new_spec(self, where: Where | None, environment: dict[str, str]) -> Spec:
        """The spec of calls that inherit this place, and whose `runtime_env` comes to this environment."""
        raise NotImplementedError

    def _registered_spec(self, client: Client) -> Spec:
        """The spec for calls that are submitted now."""
        inherited = client.inherited
        if self._spec is None or inherited is not self._inherited or inherited.where is not self._where:
            environment = specs.environment(inherited, self._options)
            self._spec = self._new_spec(inherited.where, environment)
            self._holds = held(environment)
            client.register(self._spec)
            self._inherited, self._where = inherited, inherited.where
        return self._spec
