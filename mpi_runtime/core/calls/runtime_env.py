"""`runtime_env`: the environment of calls: variables, a working directory, modules.

    ray.init(runtime_env={"working_dir": ".", "excludes": ["*.csv"]})             # for all calls of the job
    f.options(runtime_env={"env_vars": {"MODE": "fast"}}).remote()                 # for one
    Actor.options(runtime_env={"py_modules": ["../my_module"]}).remote()

A directory is packed when a call first names it in the job. Later changes have no effect, on any host. The copy goes
through the object store. Each host unpacks it once, into a directory that belongs to the job and is removed with it.
Calls made by a call inherit its environment. Keys of their own replace inherited ones; `env_vars` are merged by name.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from mpi_runtime.core import published
from mpi_runtime.core.client import current
from mpi_runtime.core.client.object_ref import ObjectRef, adopt, keep
from mpi_runtime.core.client.scope import Inherited
from mpi_runtime.core.client.submitting import put
from mpi_runtime.core.executor import setup_hooks
from mpi_runtime.core.executor.scratch import NSIGHT, PY_MODULES, WORKING_DIR
from mpi_runtime.core.objects import serialize, working_dirs
from mpi_runtime.errors.arguments import check_whole
from mpi_runtime.scheduler.protocol.ids import digest

_HASH_BYTES = 16
_INSTALL = "install it, before the job, into the environment of the Python that starts the program, on all hosts"
_NOT_HERE = {
    "pip": _INSTALL,
    "uv": _INSTALL,
    "conda": _INSTALL,
    "container": "start the ranks in the container: mpirun -n 8 apptainer exec IMAGE python app.py",
    "image_uri": "start the ranks in the container: mpirun -n 8 apptainer exec IMAGE python app.py",
    "py_executable": "start the program with that Python: all processes of a job run the same",
    "rocprof_sys": "start the profiler around the ranks: mpirun -n 8 rocprof-sys-run -- python app.py",
    "java_jars": "start Java from the task: only Python functions can be called",
}
"""Keys that only Ray has, and the alternatives."""
_KNOWN = ("env_vars", "working_dir", "py_modules", "excludes", "worker_process_setup_hook", "nsight", "config")


Stated = Mapping[str, Any]
"""A `runtime_env` as a user states it, or with archives in place of paths."""


@published("mpi_runtime.runtime_env")
class RuntimeEnv(dict[str, Any]):
    """A `runtime_env` as a dictionary whose keys are checked when they are set."""

    def __init__(self, **keys: object) -> None:
        """Make a runtime environment.

        Args:
            **keys: `env_vars`: variables, by name. `working_dir`: a directory or a zip file; calls start in a copy of
                it and import from it first. `py_modules`: directories, Python files or modules that calls can import.
                `excludes`: patterns as in `.gitignore`, for files to leave out. `worker_process_setup_hook`: a function
                without arguments, or its name as `"module.function"`, that each process calls before its first call.
                `nsight`: "default", or options of `nsys profile` by name, under which the processes run.
                `config`: accepted as in Ray, without effect.

        Raises:
            TypeError, ValueError: a key does not exist, its value is not allowed, or names no file of this host.
        """
        super().__init__({key: value for key, value in keys.items() if value is not None})
        check("runtime_env", self)
        if not self.get("excludes", True):
            del self["excludes"]  # as in Ray: nothing is left out
        for path in (self.get("working_dir"), *self.py_modules()):
            if isinstance(path, str | os.PathLike) and not os.path.exists(path):
                raise ValueError(
                    f"the runtime_env names {os.fspath(path)!r}, and there is no such file or directory here"
                )

    def __setitem__(self, key: str, value: object) -> None:
        check("runtime_env", {key: value})
        super().__setitem__(key, value)

    def set(self, name: str, value: object) -> None:
        """Set a key. The value is checked."""
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """Return it as a plain dictionary, a copy."""
        return {key: _copy(value) for key, value in self.items()}

    def serialize(self) -> str:
        """Return it as JSON.

        Raises:
            TypeError: it has something that JSON has not, such as a function or a module.
        """
        return json.dumps(self, sort_keys=True)

    @classmethod
    def deserialize(cls, text: str) -> RuntimeEnv:
        """Make the one that `serialize` has written, perhaps on another host with other files."""
        made = cls()
        for key, value in json.loads(text).items():
            made[key] = value
        return made

    def env_vars(self) -> dict[str, str]:
        """Return the variables; empty if there are none."""
        found: dict[str, str] = self.get("env_vars") or {}
        return found

    def working_dir(self) -> str:
        """Return the directory; empty if none is set."""
        return str(self.get("working_dir") or "")

    def py_modules(self) -> list[Any]:
        """Return the modules; empty if there are none."""
        return list(self.get("py_modules") or [])

    def has_working_dir(self) -> bool:
        """Whether there is a directory."""
        return bool(self.get("working_dir"))

    def has_pip(self) -> bool:
        """Whether packages of pip are to be installed: never, nothing is installed here. So with the next methods."""
        return False

    has_uv = has_conda = has_py_container = has_pip


def _copy(value: Any) -> Any:
    """A copy whose changes do not change a runtime environment. Functions and modules stay what they are."""
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else value


class Archive(NamedTuple):
    """A packed directory or file: its hash, and a reference to it in the object store."""

    hash: str
    ref: ObjectRef[object]


def check(name: str, value: object) -> None:
    """Check that a value is a `runtime_env`. Files are checked later, when a call is made."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {value!r}")
    for key, given in value.items():
        key = key.removeprefix("_") if key == "_nsight" else key  # a name that Ray has for it
        if key in _NOT_HERE:
            raise ValueError(
                f"{name}[{key!r}] is not supported: a job uses what its hosts have, and installs nothing. "
                f"Instead, {_NOT_HERE[key]}."
            )
        if key not in _KNOWN:
            raise ValueError(f"{name} has no {key!r}; there are: {', '.join(_KNOWN)}")
        if key in _CHECKS and given is not None:
            _CHECKS[key](f"{name}[{key!r}]", given)


def _check_variables(name: str, value: object) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be Dict[str, str], names and texts, not {value!r}")
    for variable, text in value.items():
        for what, kind, given in ((f"a key of {name}", "key", variable), (f"{name}[{variable!r}]", "value", text)):
            if not isinstance(given, str):
                raise TypeError(f"{name} must be Dict[str, str], but its {kind} {given!r} is of type {type(given)}")
            if "\0" in given:
                raise ValueError(f"{what} must not hold a null character: {given!r}")
        if not variable or "=" in variable:
            raise ValueError(f"a key of {name} must be the name of a variable, not {variable!r}")


def _check_path(name: str, value: object) -> None:
    if isinstance(value, Archive):
        return
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {value!r}")
    path = os.fspath(value)
    if "://" in str(path):
        raise ValueError(f"{name} must be a path, not {path!r}: a job downloads nothing. Download it before.")


def _check_modules(name: str, value: object) -> None:
    if isinstance(value, (str, os.PathLike)) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a list of paths or modules, not {value!r}")
    for one in value:
        if isinstance(one, ModuleType):
            continue
        _check_path(f"an entry of {name}", one)
        if not isinstance(one, Archive) and str(os.fspath(one)).endswith((".whl", ".zip")):
            raise ValueError(f"{name} must have directories, .py files or modules, not {one!r}: {_INSTALL}.")


def check_config(name: str, value: object) -> None:
    """Check the values of a `RuntimeEnvConfig`, or of a dictionary in its place."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict or a RuntimeEnvConfig, not {value!r}")
    seconds, eager = value.get("setup_timeout_seconds", -1), value.get("eager_install", True)
    check_whole(f"setup_timeout_seconds of {name}", seconds, -1)
    if seconds == 0:
        raise ValueError(f"setup_timeout_seconds of {name} must be positive, or -1 for no limit, not 0")
    if not isinstance(eager, bool):
        raise TypeError(f"eager_install of {name} must be True or False, not {eager!r}")


def _check_hook(name: str, value: object) -> None:
    if not callable(value) and not (isinstance(value, str) and "." in value.strip(".")):
        raise TypeError(f"{name} must be a function without arguments, or its name as 'module.function', not {value!r}")


def _check_nsight(name: str, value: object) -> None:
    if isinstance(value, dict) and all(isinstance(one, str) for pair in value.items() for one in pair):
        return
    if value != "default":
        raise ValueError(f'{name} must be "default", or options of nsys profile: {{"t": "cuda,nvtx"}}; not {value!r}')


def _check_patterns(name: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"{name} must be a list of patterns as in .gitignore, not {value!r}")


_CHECKS: dict[str, Callable[[str, object], None]] = {
    "env_vars": _check_variables,
    "working_dir": _check_path,
    "py_modules": _check_modules,
    "excludes": _check_patterns,
    "worker_process_setup_hook": _check_hook,
    "nsight": _check_nsight,
    "config": check_config,
}


# The environment of calls.


def environment(inherited: Inherited, given: Stated) -> dict[str, str]:
    """The environment of calls made here: that of this process, changed by `given`.

    Raises:
        ValueError: a directory does not exist, or cannot be read.
        ObjectStoreFullError: the object store has no room for its copy.
        RuntimeEnvSetupError: a directory is too large, or `worker_process_setup_hook` cannot be pickled.
    """
    found = {**inherited.environment, **(given.get("env_vars") or {})}
    packed = _packed(inherited, given)
    if packed.get("working_dir") is not None:
        found[WORKING_DIR] = _named(inherited, [packed["working_dir"]])
    if packed.get("py_modules") is not None:
        found[PY_MODULES] = _named(inherited, packed["py_modules"])
    if given.get("worker_process_setup_hook") is not None:
        found[setup_hooks.SETUP] = setup_hooks.packed(given["worker_process_setup_hook"])
    nsight = given.get("nsight") or given.get("_nsight")
    if nsight is not None:
        found[NSIGHT] = json.dumps(nsight)
    return found


def portable(given: Stated) -> Stated:
    """The `runtime_env` in a form that other processes can use: with archives instead of paths."""
    client = current.client_or_none()
    return given if client is None else _packed(client.inherited, given)


def _named(inherited: Inherited, packed: Sequence[Archive]) -> str:
    for archive in packed:
        _know(inherited, archive)
    return ",".join(f"{archive.hash}.{inherited.archives[archive.hash].hex()}" for archive in packed)


def _know(inherited: Inherited, archive: Archive) -> None:
    """Keep an archive for later calls, unless its content is kept already."""
    if archive.hash not in inherited.archives:
        keep(archive.ref)
        inherited.archives[archive.hash] = archive.ref.binary()


def _packed(inherited: Inherited, given: Stated) -> Stated:
    """The `runtime_env` with archives instead of paths and modules."""
    packed, excludes = dict(given), tuple(given.get("excludes") or ())
    if given.get("working_dir") is not None:
        packed["working_dir"] = _archive(inherited, given["working_dir"], excludes, _pack_working_dir)
    if given.get("py_modules") is not None:
        packed["py_modules"] = [_archive(inherited, one, excludes, _pack_module) for one in given["py_modules"]]
    return packed


def _archive(
    inherited: Inherited, given: Any, excludes: tuple[str, ...], pack: Callable[[str, Sequence[str]], bytes]
) -> Archive:
    """The archive of a path or module. A path is packed once in a job; equal contents are stored once."""
    if isinstance(given, Archive):
        given.ref.check_job()
        return given
    path = os.path.abspath(_path_of(given) if isinstance(given, ModuleType) else os.fspath(given))
    key = (path, excludes, pack.__name__)
    hash = inherited.packed.get(key)
    if hash is None:
        data = pack(path, excludes)
        hash = digest(data, _HASH_BYTES).hex()
        if hash not in inherited.archives:
            _know(inherited, Archive(hash, put(current.client(), serialize.dumps(pickle.PickleBuffer(data)))))
        inherited.packed[key] = hash
    return Archive(hash, adopt(inherited.archives[hash]))


def _path_of(module: ModuleType) -> str:
    """The directory of a package, or the file of a module."""
    places = list(getattr(module, "__path__", ()))
    if len(places) == 1:
        return str(places[0])
    file = getattr(module, "__file__", None)
    if places or file is None or not file.endswith(".py"):
        raise ValueError(
            f"runtime_env['py_modules'] cannot use {module.__name__}: it is neither one directory nor one .py file."
        )
    return str(file)


def _pack_working_dir(path: str, excludes: Sequence[str]) -> bytes:
    if os.path.isdir(path):
        return working_dirs.pack_directory(path, excludes)
    if path.endswith(".zip") and os.path.exists(path):
        return working_dirs.read_zip(path)
    raise ValueError(f"runtime_env['working_dir'] is {path!r}, which is neither a directory nor a zip file here.")


def _pack_module(path: str, excludes: Sequence[str]) -> bytes:
    if os.path.isdir(path):
        return working_dirs.pack_directory(path, excludes, inside=os.path.basename(path))
    if path.endswith(".py") and os.path.exists(path):
        return working_dirs.pack_file(path)
    raise ValueError(f"runtime_env['py_modules'] has {path!r}, which is neither a directory nor a .py file here.")
