"""`ray.job_config.JobConfig`: settings of a job, for `init(job_config=...)`."""

from __future__ import annotations

from typing import Any

_LIFETIMES = ("detached", "non_detached")


class JobConfig:
    """Settings of a job. Those for other languages are accepted, without effect."""

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        **_: object,
    ) -> None:
        """Make settings.

        Args:
            jvm_options: without effect, as is `code_search_path`.
            code_search_path: a list.
            runtime_env: the environment of all calls.
            metadata: texts for the program itself.
            ray_namespace: the namespace of names.
            default_actor_lifetime: "detached": actors live without handles, unless their options say otherwise.

        Raises:
            TypeError: `code_search_path` is not a list.
            ValueError: the lifetime is neither "detached" nor "non_detached".
        """
        if not isinstance(code_search_path or [], list | tuple):
            raise TypeError(f"code_search_path must be a list, not {code_search_path!r}")
        self.jvm_options = jvm_options or []
        self.code_search_path = code_search_path or []
        self.metadata = dict(metadata or {})
        self.ray_namespace = ray_namespace
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    @classmethod
    def from_json(cls, job_config_json: dict[str, Any]) -> JobConfig:
        """Make settings from those of a dictionary that exist."""
        names = ("jvm_options", "code_search_path", "runtime_env", "metadata", "ray_namespace")
        return cls(**{name: job_config_json[name] for name in names if name in job_config_json})

    def set_metadata(self, key: str, value: str) -> None:
        """Note a text."""
        self.metadata[key] = value

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Set the namespace of names."""
        self.ray_namespace = ray_namespace

    def set_runtime_env(self, runtime_env: dict[str, Any] | None, validate: bool = False) -> None:
        """Set the environment of all calls. `init` checks it."""
        self.runtime_env = runtime_env

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Set the lifetime of actors whose options have none.

        Raises:
            ValueError: it is neither "detached" nor "non_detached".
        """
        if default_actor_lifetime not in _LIFETIMES:
            raise ValueError(f"default_actor_lifetime must be one of {_LIFETIMES}, not {default_actor_lifetime!r}")
        self.default_actor_lifetime = default_actor_lifetime

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of `init()`: those given, and these settings for what they do not state."""
        stated = {name: value for name, value in given.items() if value is not None}
        own = {"namespace": self.ray_namespace, "runtime_env": self.runtime_env}
        own = {name: value for name, value in own.items() if value}
        return {**own, **stated, "_default_actor_lifetime": self.default_actor_lifetime}
