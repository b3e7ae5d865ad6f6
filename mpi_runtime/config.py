"""The configuration of a job, and the environment: the only module that reads `os.environ`.

`Config` has the arguments of `init()`. Rank 0 checks them once and sends them to the other ranks.

docs/guides/start.md says what each variable means.
"""

import mmap
import os
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

from mpi_runtime.errors.arguments import WHOLE_MAX, check_amount, check_number, check_path, check_text

LAUNCHER = "MPI_RUNTIME_LAUNCHER"
NUM_CPUS = "MPI_RUNTIME_NUM_CPUS"
START_TIMEOUT_S = "MPI_RUNTIME_START_TIMEOUT_S"
HEARTBEAT_TIMEOUT_S = "MPI_RUNTIME_HEARTBEAT_TIMEOUT_S"
MEMORY_USAGE_THRESHOLD = "MPI_RUNTIME_MEMORY_USAGE_THRESHOLD"
LABELS = "MPI_RUNTIME_LABELS"
RESOURCES = "MPI_RUNTIME_RESOURCES"
SCRATCH_DIR = "MPI_RUNTIME_SCRATCH_DIR"
FIND_GPUS = "MPI_RUNTIME_FIND_GPUS"
QUIET = "MPI_RUNTIME_QUIET"
IGNORE_UNHANDLED_ERRORS = "MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS"
RECORD = "MPI_RUNTIME_RECORD"
JOURNAL = "MPI_RUNTIME_JOURNAL"
ADDRESS = "MPI_RUNTIME_ADDRESS"
RAY_ADDRESS = "RAY_ADDRESS"
GANG_PROTOCOL = "MPI_RUNTIME_GANG_PROTOCOL"
OF_BATCH_JOB = (
    *("nodes", "time", "gpus_per_node", "cpus_per_node", "ranks_per_node", "partition", "account", "qos"),
    *("profile", "queue_timeout_s"),
)
"""The arguments of `init()` for a session of its own in a batch job. `Config` has none of them."""
OF_THIS_JOB = (JOURNAL, RECORD, ADDRESS)
"""Variables that name files of this job, or its address. Programs that calls start do not inherit them: they would
write there too, or wait for calls of their own while they hold their CPU."""
RANKS_TAKEN = "_MPI_RUNTIME_RANKS_TAKEN"
"""Set by ourselves: see `launchers.offer_ranks`."""
PLAIN_OUTPUT = "_MPI_RUNTIME_PLAIN_OUTPUT"
"""Set by `mpi-runtime run` unless it writes to a terminal. Open MPI gives rank 0 one of its own."""
COMMAND_OF = "_MPI_RUNTIME_COMMAND_OF"
"""Set for commands of batches: the process id of their executor, by which they are found if it is killed."""
GPU_RESERVE_MB = "MPI_RUNTIME_GPU_RESERVE_MB"
GPU_PIN_MB = "MPI_RUNTIME_GPU_PIN_MB"
MACHINE_ROOT = "_MPI_RUNTIME_MACHINE_ROOT"
"""Set by tests: the directory that stands for / where drivers are looked for. It ends with a slash."""
DIRECT_LINES = "MPI_RUNTIME_DIRECT_LINES"
RAY_VERSION = "MPI_RUNTIME_RAY_VERSION"
RAY_LOGGING = "RAY_LOGGING_CONFIG_ENCODING"
NOT_STRICT = "TUNE_DISABLE_STRICT_METRIC_CHECKING"
NOT_DATED = "TUNE_DISABLE_DATED_SUBDIR"
IN_DIRECTORY = "RAY_CHDIR_TO_TRIAL_DIR"
NO_FILES = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"
RESTORES = "TUNE_RESTORE_RETRY_NUM"
"""Variables of Ray Tune."""

GPUS_MAX = 1000
"""The most GPUs of a host: the head compares each with each."""
RESERVED_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory", "object_store_memory": "the argument"}
_GPU_RESERVE_MB = 512
_WAYS_TO_FIND = ("auto", "always", "never", "nvidia", "amd", "intel")
_CHOICES = {
    FIND_GPUS: _WAYS_TO_FIND,
    GANG_PROTOCOL: ("pmi1", "pmix"),
    **dict.fromkeys((QUIET, IGNORE_UNHANDLED_ERRORS, DIRECT_LINES), ("0", "1")),
}
"""What variables may be, if they are not empty."""
_PATHS = ("object_spilling_directory", "report", "metrics", "journal")
_OWN_LABELS = ("ray.io/node-id", "hostname")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `init()`. Amounts are those of each node (host). A stated amount may exceed the real one."""

    num_cpus: float | None = None
    """CPUs to schedule; None: the processors that the ranks may use, by their affinity mask, the control group's quota
    and Slurm. Default: the variable `MPI_RUNTIME_NUM_CPUS`."""
    num_gpus: float | None = None
    """GPUs to schedule; None: those that are found. If GPUs are found, the first `num_gpus` of them are used, and fewer
    are an error. Without any sign of a driver the number is used as it is."""
    memory: int | None = None
    """Bytes of memory that calls can request; None: the memory of the host or of its control group."""
    resources: dict[str, float] = {}
    """Amounts of custom resources, by name. The variable `MPI_RUNTIME_RESOURCES` states those of one host."""
    labels: dict[str, str] = {}
    """Labels of every node, by name. The variable `MPI_RUNTIME_LABELS` states labels of one host."""
    object_store_memory: int | None = None
    """Bytes of shared memory for values on each host; None: 30 % of the memory."""
    object_spilling_directory: str | None = None
    """A directory on a disk of each host, for values without room in its shared memory. None: `SLURM_TMPDIR`,
    `TMPDIR` or `/tmp`, the first of them that is not in memory itself. Empty: values are not written to disk."""
    inline_bytes_max: int = 65536
    """Values up to this many bytes are sent in messages. Larger values go to shared memory."""
    log_to_driver: bool = True
    """Whether the program shows the standard output and error of tasks."""
    namespace: str = ""
    """The namespace of names of actors and placement groups."""
    start_timeout_s: float = 60.0
    """Seconds that `init()` waits for all ranks. Default: the variable `MPI_RUNTIME_START_TIMEOUT_S`."""
    quiet: bool = False
    """Log only warnings and errors about the job: no lines about its start, its waits and its end. Default: the
    variable `MPI_RUNTIME_QUIET`."""
    waiting_line_s: float = 60.0
    """Seconds without progress in `get` or `wait` after which the driver logs what it waits for, then twice as many,
    and so on; 0: never."""
    reconnect_s: float = 600.0
    """Seconds for which a program that is connected to a session on another host may be cut off from it. Then what
    belongs to it ends."""
    ignore_unhandled_errors: bool = False
    """Do not log errors of calls whose values no process has read. Default: the variable
    `MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS`."""
    heartbeat_timeout_s: float = 30.0
    """Seconds without a message after which a rank on another host counts as lost, and the job ends; 0: never. Default:
    the variable `MPI_RUNTIME_HEARTBEAT_TIMEOUT_S`."""
    memory_usage_threshold: float = 0.95
    """The share of a host's memory, or of its control group's, above which it starts nothing more, and then ends calls;
    0: never."""
    memory_limit: int | None = None
    """The most bytes of memory of all executors of one rank together; None: no such limit."""

    progress: bool = False
    """Show a line with the progress of the calls below the output, if standard error is a terminal."""
    report: str = ""
    """A file for a page about the job, written at its end: what ran where and when, failures, a table of all calls.
    Empty: none."""
    metrics: str = ""
    """A file for the numbers of the job as OpenMetrics text, which Prometheus reads, written as often as the
    report. Empty: none."""
    report_every_s: float = 0.0
    """Seconds between writings of the files of `report` and `metrics` while the job runs; 0: only at its end. A job
    that is killed leaves the last ones. Each time costs the head about a microsecond for each of the last 100 000
    calls."""
    journal: str = ""
    """A directory shared by all hosts for the record of finished calls, which the next run of the program does not
    repeat. Default: the variable `MPI_RUNTIME_JOURNAL`; empty: none."""
    journal_sync_s: float = 1.0
    """Seconds until a finished call is on disk, where a failure of the host does not lose it; 0: at once, with a sync
    for each."""
    journal_required: bool = False
    """Whether the job ends if its journal can no longer be written, for example to a full disk. Otherwise it continues
    without the journal and logs an error."""
    requeue: bool = False
    """In a job of Slurm with a journal: whether the job is queued again shortly before the end of its time, to continue
    from the journal. Elsewhere without effect."""
    requeue_before_s: float = 60.0
    """Seconds before the end of the time at which `requeue` acts; at most half of what is left at `init()`. Actors save
    their states in them."""
    drain_s: float = 0.0
    """In a job of a batch system: calls that cannot end this many seconds before the end of its time are not started.
    With `requeue`, `requeue_before_s` counts."""

    def __post_init__(self) -> None:
        _check(self)


def from_init(**arguments: Any) -> Config:
    """Return the configuration for these arguments of `init()`, with defaults from the environment.

    Raises:
        TypeError: an argument does not exist, or its value is of the wrong type.
        ValueError: a value is out of bounds.
    """
    names = Config.__struct_fields__
    for name in arguments:
        if name not in names:
            from difflib import get_close_matches  # not at the top: every process loads this module, and none needs it

            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
            raise TypeError(f"init() has no argument {name!r}; {hint}")
    given = {name: value for name, value in arguments.items() if value is not None}
    if given.get("namespace") == "":
        raise ValueError("namespace must not be empty; omit it for the default namespace")
    env = environment()
    for name, variable in (
        ("num_cpus", NUM_CPUS),
        ("start_timeout_s", START_TIMEOUT_S),
        ("heartbeat_timeout_s", HEARTBEAT_TIMEOUT_S),
        ("memory_usage_threshold", MEMORY_USAGE_THRESHOLD),
    ):
        if name not in given and env.get(variable):
            try:
                given[name] = float(env[variable])
            except ValueError:
                raise ValueError(f"the variable {variable} is {env[variable]!r}, which is not a number") from None
            check_number(f"the variable {variable}", given[name])
    for name in ("memory", "object_store_memory", "memory_limit"):
        if isinstance(given.get(name), float) and given[name].is_integer():  # 300e6
            given[name] = int(given[name])
    for name, variable in (("quiet", QUIET), ("ignore_unhandled_errors", IGNORE_UNHANDLED_ERRORS)):
        if name not in given and env.get(variable) == "1":
            given[name] = True
    for variable in (JOURNAL, RECORD, SCRATCH_DIR):
        check_path(f"the variable {variable}", env.get(variable, ""))
    given["journal"] = given.get("journal") or env.get(JOURNAL, "")
    for name in _PATHS:
        if isinstance(given.get(name), os.PathLike):
            given[name] = os.fspath(given[name])
        if isinstance(given.get(name), str):
            check_path(name, given[name])
    if isinstance(given["journal"], str) and given["journal"]:
        given["journal"] = os.path.abspath(given["journal"])
    for name in ("report", "metrics"):
        if isinstance(given.get(name), str):
            given[name] = _place_of_file(name, given[name])
    config = Config(**given)
    for name in names:
        _check_can_be_sent(name, getattr(config, name))
    labels(config, env)  # to report mistakes here
    resources(config, env)
    folder = os.path.dirname(record_file(env)) or "."
    if record_file(env) and not os.path.isdir(folder):
        raise ValueError(f"the variable {RECORD} is {env[RECORD]!r}, but the directory {folder} does not exist")
    for variable in (GPU_RESERVE_MB, GPU_PIN_MB):
        text = env.get(variable) or "0"
        if not text.isdecimal() or int(text) > WHOLE_MAX >> 20:
            raise ValueError(
                f"the variable {variable} is {text!r}; it must be a number of MiB, at most {WHOLE_MAX >> 20}"
            )
    for variable, allowed in _CHOICES.items():
        if env.get(variable) and env[variable] not in allowed:
            raise ValueError(f"the variable {variable} is {env[variable]!r}; it may be {', '.join(allowed)}")
    return config


def _check_can_be_sent(name: str, value: object) -> None:
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name}={value!r} cannot be sent to other processes: {error}") from None


def _place_of_file(name: str, path: str) -> str:
    """The full path of a file.

    Raises:
        ValueError: it cannot be created there.
    """
    path, suffix = os.path.abspath(path) if path else "", "html" if name == "report" else "prom"
    if path and os.path.isdir(path):
        raise ValueError(f"{name}={path!r} is a directory; name a file in it, such as {name}='job.{suffix}'")
    if path and not os.access(os.path.dirname(path), os.W_OK):
        raise ValueError(f"{name}={path!r}: its directory does not exist or cannot be written; create it first")
    return path


def labels(config: Config, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the labels of this host: those of all nodes, and those of its environment.

    Raises:
        ValueError: the variable is not a list of names and values.
    """
    stated = {}
    for name, value in _named(env.get(LABELS, "")):
        if not name or not value or name in _OWN_LABELS:
            raise ValueError(
                f"the variable {LABELS} must be like zone=a,disk=ssd; '{name}={value}' is not a label: it needs a name "
                f"and a value, and {' and '.join(map(repr, _OWN_LABELS))} are reserved"
            )
        stated[name] = value
    return {**config.labels, **stated}


def resources(config: Config, env: Mapping[str, str] = os.environ) -> dict[str, float]:
    """Return the custom resources of this host: those of all nodes, and those of its environment.

    Raises:
        ValueError: the variable is not a list of names and amounts.
    """
    text = env.get(RESOURCES, "")
    try:
        stated = {name: _amount(name, value) for name, value in _named(text)}
        _check_resources(stated)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the variable {RESOURCES} must be like licence=3,ssd=1, not {text!r}: {error}") from None
    return {**config.resources, **stated}


def _amount(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"the amount of {name!r} is {value!r}, which is not a number") from None


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Read `name=value,name=value`, without blanks around each. A missing value is empty."""
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, value = part.partition("=")[::2]
        yield name.strip(), value.strip()


def find_gpus(env: Mapping[str, str] = os.environ) -> str:
    """Return whether to look for GPUs ("auto", "always", "never"), or the key of the vendor to look for."""
    found = env.get(FIND_GPUS) or "auto"
    return found if found in _WAYS_TO_FIND else "auto"


def machine_root() -> str:
    """Return the directory below which the files of drivers are: that of the machine, except in tests."""
    return os.environ.get(MACHINE_ROOT) or "/"


def gang_protocol() -> str:
    """Return the protocol by which gangs are started, `pmi1` or `pmix`; empty: that of the MPI library of mpi4py."""
    return os.environ.get(GANG_PROTOCOL, "")


def record_file(env: Mapping[str, str] = os.environ) -> str:
    """Return the path of the file in which to record the job; empty: the job is not recorded."""
    return env.get(RECORD, "")


def gpu_reserve() -> int:
    """Return the bytes of a GPU that each process needs for itself, beside the memory that programs request."""
    text = os.environ.get(GPU_RESERVE_MB, "")
    return (int(text) if text.isdecimal() else _GPU_RESERVE_MB) << 20


def gpu_pin() -> int:
    """Return the bytes of the object store that each process may pin for copies from and to GPUs; 0: none."""
    text = os.environ.get(GPU_PIN_MB, "")
    return (int(text) if text.isdecimal() else 0) << 20


def direct_lines(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether executors on the host of rank 0 may have direct lines to the head."""
    return env.get(DIRECT_LINES, "1") != "0"


def _check(config: Config) -> None:
    """Raise TypeError or ValueError for the first argument that is not allowed."""
    for name in ("num_cpus", "num_gpus"):
        if getattr(config, name) is not None:
            check_amount(name, getattr(config, name))
    if (config.num_gpus or 0) > GPUS_MAX:
        raise ValueError(f"num_gpus must be at most {GPUS_MAX} for each host, not {config.num_gpus!r}")
    for name, least in (("memory", 0), ("object_store_memory", 0), ("memory_limit", 1), ("inline_bytes_max", 0)):
        value = getattr(config, name)
        if value is None and name != "inline_bytes_max":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number of bytes, not {value!r}")
        if value < least:
            raise ValueError(f"{name} must be {least} or more bytes, not {value}")
        if value > WHOLE_MAX:
            raise ValueError(f"{name} must be at most {WHOLE_MAX} bytes, not {value}")
    if config.object_store_memory and config.object_store_memory < mmap.PAGESIZE:
        raise ValueError(
            f"object_store_memory must be 0, for a share of the memory, or at least {mmap.PAGESIZE} bytes, not "
            f"{config.object_store_memory}"
        )
    _check_resources(config.resources)
    _check_names("labels", config.labels)
    for name, label in config.labels.items():
        if not isinstance(label, str):
            raise TypeError(f"labels[{name!r}] must be a string, not {label!r}")
        if name in _OWN_LABELS:
            raise ValueError(f"labels must not name {name!r}: every node has it already")
    for name in ("log_to_driver", "quiet", "ignore_unhandled_errors", "journal_required", "requeue", "progress"):
        if not isinstance(getattr(config, name), bool):
            raise TypeError(f"{name} must be True or False, not {getattr(config, name)!r}")
    if not isinstance(config.object_spilling_directory, str | None):
        raise TypeError(f"object_spilling_directory must be a path, not {config.object_spilling_directory!r}")
    check_text("namespace", config.namespace)
    for name, what in (("report", "file"), ("metrics", "file"), ("journal", "directory")):
        if not isinstance(getattr(config, name), str):
            raise TypeError(f"{name} must be the path of a {what}, not {getattr(config, name)!r}")
    for name in _PATHS:
        if "\0" in (getattr(config, name) or ""):
            raise ValueError(f"{name} must be a path, and no path has a zero byte: {getattr(config, name)!r}")
    for name in (
        *("journal_sync_s", "requeue_before_s", "drain_s", "waiting_line_s", "start_timeout_s", "heartbeat_timeout_s"),
        "reconnect_s",
        *("memory_usage_threshold", "report_every_s"),
    ):
        check_number(name, getattr(config, name))
    if config.requeue and not config.journal:
        raise ValueError(
            "requeue=True needs a journal, or each start would begin from scratch: init(journal=DIR, requeue=True), or "
            "the variable MPI_RUNTIME_JOURNAL"
        )
    if config.start_timeout_s == 0:
        raise ValueError("start_timeout_s must be more than 0 seconds")
    if config.memory_usage_threshold > 1:
        raise ValueError(
            "memory_usage_threshold must be a share of the memory between 0 (never) and 1, not "
            f"{config.memory_usage_threshold!r}"
        )


def _check_names(name: str, value: object) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {value!r}")
    for key in value:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{name} must have names (not empty strings) as keys, not {key!r}")


def _check_resources(value: dict[str, float]) -> None:
    """Raise TypeError or ValueError unless a node may have these custom resources."""
    _check_names("resources", value)
    for name, amount in value.items():
        if name in RESERVED_RESOURCES:
            raise ValueError(f"resources must not name {name!r}: use {RESERVED_RESOURCES[name]} of init() instead")
        check_amount(f"resources[{name!r}]", amount)


def environment() -> Mapping[str, str]:
    """Return a copy of the environment of this process."""
    return dict(os.environ)


def take_plain_output() -> bool:
    """Return whether `mpi-runtime run` writes to something else than a terminal. Its processes do not inherit that."""
    return bool(os.environ.pop(PLAIN_OUTPUT, ""))


def address() -> tuple[str, str]:
    """Return the variable with an address for `init()`, and the address; both are empty if none is set."""
    for name in (ADDRESS, RAY_ADDRESS):
        if os.environ.get(name):
            return name, os.environ[name]
    return "", ""


def is_own_address(address: str) -> bool:
    """Whether an address is one of ours, and not that of a cluster of Ray."""
    return address in ("auto", "local") or address.startswith(("session:", "slurm:"))


def with_addresses() -> tuple[str, ...]:
    """Return the names of the variables that may have an address of ours. Neither calls nor sessions inherit them."""
    return (ADDRESS, RAY_ADDRESS) if is_own_address(os.environ.get(RAY_ADDRESS, "")) else (ADDRESS,)


def state_directory() -> str:
    """Return the directory for files of this user that outlive a program, as XDG names it."""
    stated = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(stated):
        return stated
    found = os.path.expanduser(
        "~/.local/state"
    )  # "~" stays if HOME is not set and the user is not in the list of users
    return found if os.path.isabs(found) else os.path.join(temporary_directory(), f"mpi_runtime-state-{os.getuid()}")


def cluster() -> str:
    """Return the name of the cluster of this process's batch job; empty: it has none."""
    name = os.environ.get("SLURM_CLUSTER_NAME", "")
    return name if name not in (".", "..") and "/" not in name else ""


def temporary_directory() -> str:
    """Return the directory for temporary files, as Open MPI finds it."""
    return os.environ.get("TMPDIR") or os.environ.get("TEMP") or os.environ.get("TMP") or "/tmp"


def is_batch_job() -> bool:
    """Whether this process belongs to a job of a batch system."""
    return bool(batch_job_variables() or os.environ.get("MPI_RUNTIME_FLUX") or os.environ.get("PE_HOSTFILE"))


def batch_job() -> str:
    """Return the batch job of this process in words that follow others; empty: it has none."""
    return "".join(f", {name} {value}" for name, value in batch_job_variables())


def batch_job_variables() -> list[tuple[str, str]]:
    """Return the variables that name the batch job of this process, with their values."""
    names = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "FLUX_ENCLOSING_ID"]
    if os.environ.get("OAR_NODEFILE"):  # each of these names alone may be of another program
        names.append("OAR_JOB_ID")
    if os.environ.get("SGE_O_HOST"):
        names.append("JOB_ID")
    return [(name, os.environ[name]) for name in names if os.environ.get(name)]


def own_environment() -> MutableMapping[str, str]:
    """Return the environment of this process itself, for changes."""
    return os.environ


def scratch_directory() -> str:
    """Return the path of the directory on this host for the files of a running job.

    It should be local to the host, in memory or on a disk: each host unpacks its own copy.
    """
    return os.path.abspath(os.environ.get(SCRATCH_DIR) or os.environ.get("TMPDIR") or "/tmp")


def spill_directories(config: Config) -> list[str]:
    """Return the directories of this host for spilled values, the best first."""
    if config.object_spilling_directory is not None:
        return [os.path.abspath(config.object_spilling_directory)] if config.object_spilling_directory else []
    return [os.path.abspath(one) for one in (*map(os.environ.get, ("SLURM_TMPDIR", "TMPDIR")), "/tmp") if one]
