"""The job: `init`, `shutdown`, `is_initialized`."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from mpi_runtime import config as configuration
from mpi_runtime import listings
from mpi_runtime.core import published
from mpi_runtime.core.calls import options as option_rules
from mpi_runtime.core.calls import specs
from mpi_runtime.core.client import current
from mpi_runtime.core.driver import running, session
from mpi_runtime.core.host.launchers import heed_plain_output
from mpi_runtime.errors import arguments as checks
from mpi_runtime.errors.remote import show_errors
from mpi_runtime.scheduler.protocol.questions import Nodes
from mpi_runtime.show import log

_WITHOUT_MEANING = frozenset((
    "include_dashboard", "dashboard_host", "dashboard_port", "configure_logging", "logging_format", "job_config",
    "local_mode", "allow_multiple", "enable_resource_isolation", "system_reserved_cpu",
    "system_reserved_memory", "_driver_object_store_memory", "_enable_object_reconstruction", "_memory",
    "_metrics_export_port", "_node_ip_address", "_skip_env_hook", "_tracing_startup_hook",
    "_node_name", "_plasma_directory", "_redis_password", "_redis_username", "_system_config", "_temp_dir",
))  # fmt: skip
"""Arguments of Ray's `init()` for processes, directories and ports that do not exist here."""


LEVEL_MAX = 1_000_000
"""The largest level of logging."""


@published()
class Context(Mapping[str, Any]):
    """The result of `init()`: a mapping with facts about the job, and a context manager that ends it.

    The keys are "address" ("local" or "session:NAME"), "ranks" (the number of MPI ranks), "node_id" and
    "node_ip_address" (the address by which this host reaches others; nothing listens there).
    """

    dashboard_url = ""
    """Always empty, without a dashboard. Libraries print it."""
    python_version = platform.python_version()

    def __init__(self, facts: dict[str, object]) -> None:
        self.address_info = facts

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __repr__(self) -> str:
        ranks = self.address_info["ranks"]
        ranks = "1 rank" if ranks == 1 else f"{ranks} ranks"
        if (address := self.address_info["address"]) != "local":
            return f"<driver of {address}, of {ranks}: what belongs to it ends with shutdown() or with the program>"
        return f"<job of {ranks}: it ends with shutdown(), with the block of `with`, or with the program>"

    def _repr_html_(self) -> str:
        from mpi_runtime.core.api.cluster import nodes
        from mpi_runtime.show.tables import html_table, in_html

        if current.client_or_none() is None:
            return f"<p>{in_html(repr(self))}</p><p>It has ended.</p>"
        names = ("NodeName", "Resources", "Available", "ranks")
        rows = [[one[name] for name in names] for one in list(nodes())[:20]]
        return f"<p>{in_html(repr(self))}</p>{html_table(names, rows)}"

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        shutdown()

    def disconnect(self) -> None:
        """End the job, like `shutdown()`."""
        shutdown()


@published()
def init(
    address: str | None = None,
    *,
    ignore_reinit_error: bool = False,
    runtime_env: dict[str, Any] | None = None,
    logging_config: LoggingSettings | None = None,
    **arguments: object,
) -> Context:
    """Start the job. On ranks above 0 it does not return: they become workers.

    Functions that need a job call `init()` without arguments if no job runs.

    Args:
        address: "session:NAME" connects to the session of this name, "slurm:JOB" to that in this batch job, "auto" to
            the only one of this user on this host; "local" starts a job. None: the variable `MPI_RUNTIME_ADDRESS` or
            `RAY_ADDRESS`, if one is set; else as "local".
        ignore_reinit_error: do not raise if the job is running already. Arguments that differ from those of the running
            job are ignored, and a warning names them.
        runtime_env: environment of all calls, unless they have their own: variables, a directory to start in,
            modules. The keys are those of `RuntimeEnv`. The driver itself is not changed.
        logging_config: a `LoggingConfig` of Ray, with `--as-ray`: how this process and all executors log.
        **arguments: the fields of `Config`, such as `num_cpus`, `num_gpus` and `resources`. `logging_level` is the
            level of the logger `mpi_runtime`. With `nodes`, `time` and others of `slurm.Request` the program gets a
            session in a batch job of its own, for whose start it waits, at most `queue_timeout_s`. Ray's other
            arguments for its dashboard and its logging are accepted, without effect.

    Returns:
        A mapping with facts about the job. As a context manager it ends the job.

    Raises:
        RuntimeError: the job is running already.
        ConnectionError: there is no such session, or several; or it refuses this program.
        LaunchError: the ranks were started in a way that cannot work. The message names the cure.
        TypeError, ValueError: an argument is not allowed. The message says which and why.

    Example:
        ```python
        ray.init(num_cpus=4, runtime_env={"working_dir": ".", "env_vars": {"MODE": "fast"}})
        ```
    """
    show_errors()
    if not isinstance(address, str | None):
        raise TypeError(f"address must be a string such as 'session:NAME', or None, not {address!r}")
    if (level := arguments.pop("logging_level", None)) is not None:
        _set_logging_level(level)
    lifetime = arguments.pop("_default_actor_lifetime", None)  # of a `JobConfig` of Ray, with `--as-ray`
    batch = _of_batch_job(address, arguments)
    config = configuration.from_init(
        **{name: value for name, value in arguments.items() if name not in _WITHOUT_MEANING}
    )
    if runtime_env is not None:
        option_rules.check({"runtime_env": runtime_env}, ("runtime_env",), "init()")
    if logging_config is not None and not callable(getattr(logging_config, "apply", None)):
        raise TypeError(f"logging_config must be a LoggingConfig, not {logging_config!r}")
    heed_plain_output()
    with session.changing:
        is_running = current.client_or_none() is not None
        if not is_running:
            _start(config, runtime_env, logging_config, address or "", arguments, batch)
            _set_lifetime(lifetime)
    if is_running and not ignore_reinit_error:
        raise RuntimeError(
            "init() was called, but the job is running already. Call shutdown() first, or pass "
            "ignore_reinit_error=True."
        )
    if is_running:
        _log_ignored(config, {"runtime_env": runtime_env, **arguments})
    return Context(_facts())


def _facts() -> dict[str, object]:
    """What `init` returns."""
    questions = running.client().questions
    here, nodes = questions.node_id(), questions.ask(Nodes())
    facts: dict[str, object] = {"address": session.address(), "ranks": sum(len(node.ranks) for node in nodes)}
    return facts | {"node_id": here, "node_ip_address": next((node.address for node in nodes if node.id == here), "")}


def _of_batch_job(address: str | None, arguments: dict[str, object]) -> dict[str, object]:
    """Take the options of a batch job out of the arguments of `init()`."""
    stated = {name: arguments.pop(name, None) for name in configuration.OF_BATCH_JOB}
    found = {name: value for name, value in stated.items() if value is not None}
    if found and address is not None:
        raise ValueError(f"init({address!r}, {next(iter(found))}=...): a session that runs already has its batch job")
    return found


class LoggingSettings(Protocol):
    """How processes log."""

    def apply(self) -> None:
        """Set the loggers of this process."""


def _start(
    config: configuration.Config,
    runtime_env: Mapping[str, object] | None,
    logging_config: LoggingSettings | None,
    address: str,
    arguments: Mapping[str, object],
    batch: Mapping[str, object],
) -> None:
    if logging_config is not None:
        logging_config.apply()  # first: lines about the start have its form too
    with listings.for_all:
        inherited = session.start(config, address, arguments, batch).client.inherited
    try:
        inherited.environment = specs.environment(inherited, {"runtime_env": runtime_env})
        if logging_config is not None:
            from mpi_runtime.core.executor import setup_hooks  # not at the top: few jobs have them

            hook = setup_hooks.packed(logging_config.apply)
            inherited.environment = {**inherited.environment, setup_hooks.LOGGING: hook}
    except BaseException:
        session.stop()
        raise


def _set_lifetime(lifetime: object) -> None:
    """Have actors whose options have no lifetime get this one, if there is one."""
    if isinstance(lifetime, str):
        inherited = running.client().inherited
        inherited.environment = {**inherited.environment, option_rules.LIFETIME: lifetime}


def _set_logging_level(level: object) -> None:
    import logging  # not at the top: it is slow to load

    if isinstance(level, str):
        number = logging.getLevelName(level.upper())
        if not isinstance(number, int):
            raise ValueError(f"logging_level must be DEBUG, INFO, WARNING, ERROR, CRITICAL or a number, not {level!r}")
        level = number
    checks.check_whole("logging_level", level, 0, LEVEL_MAX)
    logging.getLogger(log.NAME).setLevel(level)  # type: ignore[arg-type]  # a whole number


def _log_ignored(config: configuration.Config, arguments: Mapping[str, object]) -> None:
    """Log the arguments of a repeated `init()` that the running job does not have."""
    running_job = session.running_config()
    ignored = [
        f"{name}={value!r}"
        for name, value in arguments.items()
        if value is not None
        and name not in _WITHOUT_MEANING
        and (not hasattr(config, name) or getattr(config, name) != getattr(running_job, name, None))
    ]
    if ignored:
        text = f"init() was called again: the job is running, so these are ignored: {', '.join(ignored)}"
        log.say(log.line(log.WARNING, log.START, text), quiet=False)


@published()
def shutdown() -> None:
    """End the job, with all its tasks and actors. Without a job it does nothing.

    The end of the program ends the job too. `init()` may be called again.
    """
    session.stop()


@published()
def is_initialized() -> bool:
    """Whether the job is running, seen from this process."""
    return current.client_or_none() is not None
