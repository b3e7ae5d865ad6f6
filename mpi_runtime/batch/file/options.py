"""The options of a command, which files, flags and Python share: the reader of each, and what does not go together.

A reader returns what it has understood, or raises a ValueError that says why not.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from itertools import combinations
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, TypeVar

import msgspec

from mpi_runtime.batch.file.entries import unknown
from mpi_runtime.batch.file.model import ON_FAILURE, Command, Demand
from mpi_runtime.batch.file.raw_bytes import plain_text, without_raw
from mpi_runtime.batch.file.text import BUILT_IN, filled_length, in_text, launcher_of, names_in, wrong_with_launcher
from mpi_runtime.extend import check_resources, size_in_bytes
from mpi_runtime.scheduler.protocol.events import RETURNS_MAX

T = TypeVar("T")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_CLOCK = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,2}):(\d{2})")
SECONDS_MAX = 1e9
"""The longest duration: thirty years."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_NAME_MAX = 255 - len(".workdir")
"""Linux: NAME_MAX, less the longest suffix of our files."""
_SIGNALS_MAX = 64
TEXT_BYTES_MAX = 128 * 1024 - 1
"""How long one argument of a program may be in Linux (MAX_ARG_STRLEN), without the byte 0 at its end."""


def seconds(value: object) -> float:
    """Read a duration: a number of seconds, or a text such as "90", "10m", "1h30m", "500ms" or "2:00:00".

    Raises:
        ValueError: it is not a duration.
    """
    text = "" if isinstance(value, bool) else str(value).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        found = float(text)
    elif _DURATION.fullmatch(text):
        found = sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smhd])", text))
    elif clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(one or 0) for one in clock.groups())
        found = float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    else:
        raise ValueError(f"must be a duration such as 90 (seconds), '10m', '1h30m' or '2:00:00', not {value!r}")
    if found > SECONDS_MAX:
        raise ValueError(f"must be at most {SECONDS_MAX:g} seconds (thirty years), not {value!r}")
    return found


def amount(value: object) -> float:
    """A number, 0 or more."""
    found = -1.0
    if isinstance(value, (str, SupportsFloat, SupportsIndex)) and not isinstance(value, bool):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            found = float(value)
    if not 0 <= found < 1e9:
        raise ValueError(f"must be a number, 0 or more, not {value!r}")
    return found


def size(value: object) -> int:
    """A size in bytes."""
    try:
        return size_in_bytes("", value)
    except (TypeError, ValueError):
        raise ValueError(f"must be a number of bytes, or like '20GB' or '512MiB', not {value!r}") from None


def whole(value: object) -> int:
    """A whole number."""
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,9}", str(value).strip()):
        raise ValueError(f"must be a whole number, not {value!r}")
    return int(str(value))


def _checked(read: Callable[[object], T], is_right: Callable[[T], bool], what: str) -> Callable[[object], T]:
    """A reader that refuses some of the values of another one."""

    def reader(value: object) -> T:
        if not is_right(found := read(value)):
            raise ValueError(f"must be {what}, not {value!r}")
        return found

    return reader


positive_seconds = _checked(seconds, lambda found: found > 0, "more than 0 seconds")
gpus = _checked(amount, lambda found: found <= 1 or found == int(found), "0, a share below 1, or a whole number")
weight = _checked(amount, lambda found: 0 < found <= 1e6, "more than 0, and at most 1000000")
count = _checked(whole, lambda found: found >= 0, "0 or more")
ranks = _checked(whole, lambda found: found >= 1, "1 or more")
ranks = _checked(ranks, lambda found: found <= RETURNS_MAX, f"at most {RETURNS_MAX}")


def codes(value: object) -> tuple[int, ...]:
    """Exit codes, and signals as negative numbers."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    found = tuple(whole(part) for part in parts)
    if wrong := [code for code in found if not -_SIGNALS_MAX <= code <= 255]:
        raise ValueError(f"must be exit codes from 0 to 255, or -N for signal N, not {wrong[0]}")
    return found


def command_text(value: object) -> str:
    """The text of a command, which a shell can take."""
    text = plain_text(value, may_be_raw=True)
    if not text.strip():
        raise ValueError("must not be empty")
    if (size := len(text.encode(errors="replace"))) > TEXT_BYTES_MAX:
        raise ValueError(
            f"has {size} bytes, and the kernel takes {TEXT_BYTES_MAX} for a shell: run a script that has it"
        )
    return text


def file_name(value: object) -> str:
    """A name, after which files are named."""
    name = plain_text(value)
    if not _NAME.fullmatch(name):
        raise ValueError(f"must have letters, digits, and _ . + - alone (files are named after it), not {value!r}")
    if len(name) > _NAME_MAX:
        raise ValueError(f"must have at most {_NAME_MAX} letters, because files are named after it, not {len(name)}")
    return name


def file_names(value: object) -> tuple[str, ...]:
    """Names, each once."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise ValueError(f"must be a list of names, not {value!r}")
    return tuple(dict.fromkeys(file_name(part.strip() if isinstance(part, str) else part) for part in parts))


def paths(value: object) -> tuple[str, ...]:
    """Paths."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError(f"must be a list of paths, not {value!r}")
    return tuple(plain_text(part.strip()) for part in parts)


def flag(value: object) -> bool:
    """True or false."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError(f"must be true or false, not {value!r}")
    return words[str(value).lower()]


def shell(value: object) -> str:
    """A shell, by name or path."""
    path = plain_text(value)
    if not path or len(path.split()) != 1:
        raise ValueError(f"must be the path or the name of a shell such as 'bash', without options, not {value!r}")
    return path


def _pairs(value: object) -> Any:
    """`A=1,B=2` as a dictionary of texts; other values as they are."""
    return dict(part.partition("=")[::2] for part in value.split(",") if part) if isinstance(value, str) else value


def environment(value: object) -> dict[str, str]:
    """Variables and their texts."""
    value = _pairs(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"must be variables and their texts, not {value!r}")
    found = {without_raw(str(name)): without_raw(in_text(one)) for name, one in value.items()}
    if wrong := [name for name in found if not name or "=" in name or "\0" in name + found[name]]:
        raise ValueError(f"must be variables and their texts; {wrong[0]!r} cannot be the name of one")
    return found


def resources(value: object) -> dict[str, float]:
    """Custom resources and their amounts."""
    pairs = _pairs(value)
    try:
        found = {name.strip(): float(one) if isinstance(one, str) else one for name, one in pairs.items()}
        check_resources("resources", found)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"must be names and amounts, such as licence=1,scratch=20, not {value!r}: {error}") from None
    return found


def on_failure(value: object) -> str:
    """What a failure means."""
    if value not in ON_FAILURE:
        raise ValueError(f"must be {', '.join(map(repr, ON_FAILURE))}, not {value!r}")
    return str(value)


ALTERNATIVES_MAX = 100
"""The most requests of one command: each is compared with the others."""
Fields = dict[str, Any]
"""Fields of a `Command` by name, as the readers of options return them."""


def _alternatives(value: object) -> list[Fields]:
    """`num_cpus=4 | num_gpus=1 memory=2GB`, or a list of such tables, with the fields of each."""
    if isinstance(value, str):
        value = [dict(word.partition("=")[::2] for word in part.split()) for part in value.split("|")]
    if not isinstance(value, (list, tuple)) or len(value) < 2 or not all(isinstance(one, Mapping) for one in value):
        raise ValueError(
            "must be two or more requests, as in 'num_cpus=4 | num_gpus=1' or "
            f"[{{num_cpus = 4}}, {{num_gpus = 1}}], not {value!r}"
        )
    if len(value) > ALTERNATIVES_MAX:
        raise ValueError(f"must be at most {ALTERNATIVES_MAX} requests, not {len(value)}")
    found = []
    for one in value:
        if wrong := [name for name in one if name not in _DEMANDED]:
            raise ValueError(unknown("resource", str(wrong[0]), _DEMANDED))
        try:
            found.append({name: OPTIONS[name].read(amount) for name, amount in one.items()})
        except ValueError as error:
            raise ValueError(f"has a wrong request {dict(one)}: the value {error}") from None
    return found


class Option(NamedTuple):
    """One option of commands."""

    read: Callable[[object], object]
    help: str
    metavar: str = ""
    """What its value is, for help on the command line; empty: it is not for all commands, and has no flag."""


OPTIONS = {
    "name": Option(file_name, "its name, and the name of its files"),
    "num_cpus": Option(amount, "CPUs reserved for it; 1", "CPUS"),
    "num_gpus": Option(gpus, "GPUs reserved for it: a whole number, or a share below 1; 0", "GPUS"),
    "memory": Option(size, "memory reserved for it, which is also its limit, such as 4GB; no limit", "SIZE"),
    "resources": Option(resources, "custom resources reserved for it, such as licence=1; none", "NAME=AMOUNT,..."),
    "batch_resources": Option(
        resources, "resources that all jobs of the batch share, such as licence=3; none", "NAME=AMOUNT,..."
    ),
    "alternatives": Option(
        _alternatives,
        "requests of which it gets the first that fits, such as 'num_cpus=4 | num_gpus=1'",
        "REQUEST|REQUEST",
    ),
    "output_limit": Option(size, "the largest size of its output, such as 1GB; no limit", "SIZE"),
    "time_limit": Option(positive_seconds, "how long it may run, such as 10m; no limit", "TIME"),
    "expect": Option(positive_seconds, "how long it will take, as a guess until that is known; its time_limit", "TIME"),
    "grace": Option(seconds, "how long it has between SIGTERM and SIGKILL; 5s", "TIME"),
    "priority": Option(whole, "commands with a higher number start first; 0", "NUMBER"),
    "group": Option(file_name, "the name of a group: groups of equal priority get fair shares", "NAME"),
    "group_weight": Option(
        weight, "the weight of its group: with twice the weight it gets twice the share; 1", "WEIGHT"
    ),
    "group_limit": Option(count, "how many commands of its group run at a time; any number", "COUNT"),
    "after": Option(file_names, "commands or arrays that end before it starts"),
    "env": Option(environment, "variables of its environment", "NAME=TEXT,..."),
    "shell": Option(shell, "the shell that runs it: a path, or a name such as bash; /bin/sh", "SHELL"),
    "cwd": Option(plain_text, "the directory in which it starts; that of the batch", "DIR"),
    "stdin": Option(plain_text, "the file of its standard input; empty", "FILE"),
    "inputs": Option(paths, "files that it reads: it starts once they are there; none", "FILE,..."),
    "latency_wait": Option(
        seconds, "how long it waits for its inputs on a network file system before it fails; 5s", "TIME"
    ),
    "stdout": Option(plain_text, "the file of its standard output; NAME.out in the directory of the batch", "FILE"),
    "stderr": Option(plain_text, "the file of its standard error; that of its standard output", "FILE"),
    "rerun": Option(flag, "whether it may start again after a start whose end is not known; true", "true|false"),
    "retries": Option(count, "how often it is retried if it fails; 0", "COUNT"),
    "retry_codes": Option(codes, "codes after which it is retried; every code but those of success", "CODE,..."),
    "retry_delay": Option(seconds, "the time before a retry; 0", "TIME"),
    "success_codes": Option(codes, "exit codes that are a success; 0", "CODE,..."),
    "on_failure": Option(
        on_failure, "if it fails: skip the commands after it, continue, or stop the batch; skip", "skip|continue|stop"
    ),
    "pin": Option(flag, "bind it to processors that no other command uses; false", "true|false"),
    "keep_workdir": Option(flag, "keep its scratch directory beside its output if it fails; false", "true|false"),
    "ranks": Option(ranks, "how many MPI ranks it has, each with its own num_cpus, num_gpus and memory; 1"),
    "ranks_per_node": Option(ranks, "how many of its ranks run on each node; any number", "COUNT"),
    "mpi": Option(flag, "whether all its ranks must start MPI; true"),
    "launcher": Option(
        launcher_of, "what starts its ranks, such as 'srun --overlap' or mpiexec; the job itself", "COMMAND"
    ),
}
_DEMANDED = ("num_cpus", "num_gpus", "memory", "resources")
"""Options that alternatives may have."""
_TEXTS = ("text", "cwd", "stdin", "stdout", "stderr")
"""Fields that may have placeholders, besides `env`."""
Wrong = tuple[str, str]
"""A problem: the option (or "command" for the text, or a parameter), and a message."""


def read_command(
    text: object, options: Mapping[str, object], values: Mapping[str, object]
) -> tuple[Command | None, list[Wrong]]:
    """Make a command of a text and options; None, and all problems, if there are any."""
    wrong: list[Wrong] = []
    fields: Fields = {}
    for name, value in [("text", text), *options.items()]:
        reader = command_text if name == "text" else OPTIONS[name].read if name in OPTIONS else None
        label = "command" if name == "text" else name
        if reader is None:
            wrong.append((name, unknown("option", name, (*OPTIONS, "command"))))
            continue
        try:
            fields[name] = reader(value)
        except ValueError as error:
            wrong.append((label, f"{label} {error}"))
    wrong += wrong_placeholders(fields, values)
    if "alternatives" in fields and not wrong:
        wrong += _set_alternatives(fields)
    if not wrong and (fields.get("batch_resources") or not fields.get("rerun", True)):
        wrong += _set_batch_resources(fields)
        if fields.get("retries") and not fields.get("rerun", True):
            wrong.append(("retries", "retries start a command again, and rerun=false forbids that"))
    shown = [*(fields[name] for name in _TEXTS if name in fields), *fields.get("env", {}).values()]
    wrong += wrong_with_launcher(fields.get("launcher", ""), shown, fields.get("pin", False))
    texts = {name: in_text(value) for name, value in values.items()}
    if texts and not wrong:
        wrong += _too_long(fields, texts)
    if wrong:
        return None, wrong
    return Command(values=texts, **fields), []


def _too_long(fields: Fields, values: Mapping[str, str]) -> list[Wrong]:
    """Texts that have many of long values."""
    texts = {"command" if name == "text" else name: [fields.get(name, "")] for name in _TEXTS}
    texts |= {"inputs": fields.get("inputs", ()), "env": fields.get("env", {}).values()}
    longest = max(map(len, values.values()))
    return [
        (label, f"{label} has {length} letters with its values, and the kernel takes {TEXT_BYTES_MAX} bytes")
        for label, found in texts.items()
        for text in found
        if len(text) * (longest + 1) > TEXT_BYTES_MAX and (length := filled_length(text, values)) > TEXT_BYTES_MAX
    ]


def _set_alternatives(fields: Fields) -> list[Wrong]:
    """Complete alternatives by the options of the command, and make the first one its request."""
    common = {name: fields[name] for name in _DEMANDED if name in fields}
    demands = tuple(Demand(**{**common, **one}) for one in fields["alternatives"])
    if any(one == other for one, other in combinations(demands, 2)):
        return [("alternatives", "alternatives must differ")]
    if fields.get("ranks", 1) > 1 or fields.get("launcher"):
        return [("alternatives", "a command with several ranks has one request, for each rank")]
    fields |= {"alternatives": demands, **{name: getattr(demands[0], name) for name in _DEMANDED}}
    return []


def _set_batch_resources(fields: Fields) -> list[Wrong]:
    """Part the resources of a command into those of its node and those that all jobs of the batch share."""
    totals, ranks = fields.get("batch_resources", {}), fields.get("ranks", 1)
    demands = fields.get("alternatives", ())
    asked = [fields.get("resources", {}), *(one.resources for one in demands)]
    shares, *others = [{name: ranks * one[name] for name in one if name in totals} for one in asked]
    if any(one != shares for one in others):
        return [("alternatives", "alternatives must have the same amounts of batch_resources")]
    own, *of_demands = [{name: one[name] for name in one if name not in totals} for one in asked]
    fields |= {"resources": own, "shares": shares}
    if demands:
        pairs = zip(demands, of_demands, strict=True)
        fields["alternatives"] = tuple(msgspec.structs.replace(one, resources=rest) for one, rest in pairs)
    return [
        ("resources", f"resources: it needs {name} {amount:g}, and all jobs together have {totals[name]:g}")
        for name, amount in shares.items()
        if amount > totals[name]
    ]


def wrong_placeholders(fields: Fields, values: Mapping[str, object]) -> list[Wrong]:
    """Placeholders without a value, and values that no placeholder shows."""
    is_plain = not (values or "env" in fields or "inputs" in fields)
    if is_plain and not any("{" in fields[name] for name in _TEXTS if name in fields):
        return []  # as most commands of long lists
    texts = {"command" if name == "text" else name: fields.get(name, "") for name in _TEXTS}
    texts["inputs"] = "\n".join(fields.get("inputs", ()))
    texts["env"] = "\n".join(fields.get("env", {}).values())
    used = {label: names_in(text) for label, text in texts.items()}
    wrong = [
        (label, unknown("placeholder", name, (*values, *BUILT_IN)) + f"; {{{{{name}}}}} stands for {{{name}}} itself")
        for label, names in used.items()
        for name in sorted(names - values.keys() - set(BUILT_IN))
    ]
    if "text" in fields:
        unused = [name for name in values if not any(name in names for names in used.values())]
        wrong += [
            (name, f"parameter {name!r} is not used: no {{{name}}} in the command{_meant(name)}") for name in unused
        ]
    return wrong + [(name, f"parameter {name!r} has a reserved name") for name in values if name in BUILT_IN]


def _meant(name: str) -> str:
    near = get_close_matches(name, OPTIONS, n=1, cutoff=0.8)
    return f"; did you mean the option {near[0]!r}?" if near else ""
