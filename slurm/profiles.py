"""Profiles: options for jobs that a user needs often, in a small TOML file.

    [default]                       # applies to all jobs
    partition = "gpu"
    account = "physics"
    modules = ["gcc/13", "openmpi/5.0"]
    setup = ["source ~/venv/bin/activate"]

    [default.environment]
    OMP_NUM_THREADS = "1"

    [long]
    partition = "long"
    time = "2-00:00:00"

The names are those of `Request`. A profile adds to `[default]`, and the arguments of `submit` add to both. Lists are
joined, tables of variables are merged, and of any other option the last value counts.
"""

import sys
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from mpi_runtime.slurm.request import Request

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "MPI_RUNTIME_PROFILES"
"""The environment variable that names another file."""
FILE_CHARS_MAX = 1 << 20


def path(env: Mapping[str, str]) -> Path:
    """Return the path of the file of profiles. The file need not exist."""
    if env.get(FILE):
        return Path(env[FILE])
    base = env.get("XDG_CONFIG_HOME") or f"{env.get('HOME', '~')}/.config"
    return Path(base, "mpi-runtime", "slurm.toml")


def read(file: Path, name: str | None) -> dict[str, Any]:
    """Return the fields of `Request` in `[default]`, if the file has it, and in the profile of this name.

    Raises:
        ValueError: the file or the profile does not exist or is not valid. The message says what is wrong.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(FILE_CHARS_MAX + 1)
        if len(text) > FILE_CHARS_MAX:
            raise ValueError(f"it has more than {FILE_CHARS_MAX} letters")
        profiles = tomllib.loads(text)
    except FileNotFoundError:
        if name is None:
            return {}
        raise ValueError(f"there is no profile {name!r}: the file {file} does not exist") from None
    except OSError as error:
        raise ValueError(f"the file of profiles, {file}, cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # of the syntax, of bytes that are not UTF-8, or of its depth
        raise ValueError(f"{file} is not TOML: {error}") from None
    if name is not None and name not in profiles:
        raise ValueError(f"there is no profile {name!r} in {file}; there are: {', '.join(profiles) or 'none'}")
    found: dict[str, Any] = {}
    for one in dict.fromkeys(("default", name or "default")):
        if one in profiles:
            found = merged(found, _fields(profiles[one], one, file))
    return found


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return both together: lists are joined, tables are merged, of other values that of `more` counts."""
    found = {**base, **more}
    for name in base.keys() & more.keys():
        if isinstance(base[name], tuple) and isinstance(more[name], (tuple, list)):
            found[name] = (*base[name], *more[name])
        elif isinstance(base[name], dict) and isinstance(more[name], Mapping):
            found[name] = {**base[name], **more[name]}
    return found


def _fields(profile: object, name: str, file: Path) -> dict[str, Any]:
    if not isinstance(profile, dict):
        raise ValueError(f"{file}: {name} must be a table, [{name}], not {profile!r}")
    given = cast(dict[str, str | list[str]], profile)  # other values are possible too: `Request` checks each
    check_names(given, f"{file}: [{name}]")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


def check_names(given: Mapping[str, Any], where: str) -> None:
    """Raise ValueError if a name is not a field of `Request`."""
    known = [field.name for field in fields(Request)]
    for key in given:
        if key not in known:
            near = get_close_matches(key.replace("-", "_"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            raise ValueError(f"{where} has {key!r}, which is not an option of a job; {hint}")
