"""The common part of remote functions and actor classes: their registration with the job."""

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
    """Registers its spec with the job before the first call, and again if what calls inherit changes."""

    def __init__(self, code: Code, options: Mapping[str, Any]) -> None:
        self._code = code
        self._options = dict(options)
        self._spec: Spec | None = None
        self._inherited: Inherited | None = None
        """The inherited settings for which the spec was made."""
        self._where: Where | None = None
        self._holds: list[bytes] = []
        """Ids of objects that each call needs for its environment."""

    def _new_spec(self, where: Where | None, environment: dict[str, str]) -> Spec:
        """Make the spec of calls that inherit this place and have this environment."""
        raise NotImplementedError

    def _registered_spec(self, client: Client) -> Spec:
        """The spec of calls that are submitted now."""
        inherited = client.inherited
        if self._spec is None or inherited is not self._inherited or inherited.where is not self._where:
            environment = specs.environment(inherited, self._options)
            self._spec = self._new_spec(inherited.where, environment)
            self._holds = held(environment)
            client.register(self._spec)
            self._inherited, self._where = inherited, inherited.where
        return self._spec
