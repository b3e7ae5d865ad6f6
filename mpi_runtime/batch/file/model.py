"""A command: its text and its options, which files, flags and Python share, each with its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import Any, TypeVar

import msgspec

from mpi_runtime.batch.file.launchers import launcher_of, wrong_with_launcher
from mpi_runtime.batch.file.templates import BUILT_IN, fill, names_in
from mpi_runtime.calls.options import check_resources, size_in_bytes

T = TypeVar("T")
SKIP, CONTINUE, STOP = "skip", "continue", "stop"
ON_FAILURE = (SKIP, CONTINUE, STOP)
SHELL = "/bin/sh"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d{1,2}):(\d{2})")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_NAME_MAX = 255 - len(".workdir")
"""Linux: NAME_MAX, less the longest suffix of our files."""
_SIGNALS_MAX = 64
_TEXT_BYTES_MAX = 128 * 1024 - 1
"""How long one argument of a program may be in Linux (MAX_ARG_STRLEN), without the byte 0 at its end."""


class Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources of one alternative of a command. The fields are those of `Command`."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: int = 0
    resources: dict[str, float] = {}

    def shown(self) -> str:
        """Its amounts, for people."""
        asked = [f"{amount:g} {what}" for what, amount in (("CPU", self.num_cpus), ("GPU", self.num_gpus)) if amount]
        asked += [f"{self.memory} bytes"] if self.memory else []
        asked += [f"{amount:g} {name}" for name, amount in self.resources.items() if amount]
        return ", ".join(asked) or "nothing"


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One program to run: a line for the shell, and how it is run."""

    text: str
    """What its shell runs, with placeholders."""
    shell: str = SHELL
    """The path or the name of the shell."""
    name: str = ""
    """Its name in the batch, and that of its files."""
    values: dict[str, str] = {}
    """The values of its own placeholders."""
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: int = 0
    """Bytes that are set aside for it, and that it may have."""
    resources: dict[str, float] = {}
    """Amounts of custom resources that are its own, by name."""
    alternatives: tuple[Demand, ...] = ()
    """All resources with which it may run: one of these is reserved, and the four fields above are the first. Empty:
    there is one request."""
    output_limit: int = 0
    """Bytes that its output may have; 0: any number."""
    time_limit: float | None = None
    """Seconds until it gets SIGTERM."""
    expect: float | None = None
    """Seconds that it takes, as assumed until this is known. None: its `time_limit`, if it has one."""
    grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    priority: int = 0
    ranks: int = 1
    """How many processes it is: each runs the line, and together they are an MPI program. Amounts are those of each."""
    ranks_per_node: int = 0
    """How many of them run on each node; 0: any number."""
    mpi: bool = True
    """With several ranks: whether all of them must start MPI."""
    launcher: str = ""
    """What starts its ranks, such as `srun --overlap`; `SELF`: the line itself; empty: the job."""
    group: str = ""
    """The group with which it shares CPUs and GPUs; empty: none."""
    group_weight: float = 1.0
    group_limit: int = 0
    """How many commands of the group run at a time; 0: any number."""
    after: tuple[str, ...] = ()
    """Names of commands and arrays that end before it starts."""
    env: dict[str, str] = {}
    cwd: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    appends: tuple[str, ...] = ()
    """Those of "stdout" and "stderr" that other commands write to as well, so that the file must not be emptied."""
    retries: int = 0
    retry_codes: tuple[int, ...] = ()
    """The codes after which it is retried; empty: every code but those of success."""
    retry_delay: float = 0.0
    """Seconds before a retry."""
    success_codes: tuple[int, ...] = (0,)
    on_failure: str = SKIP
    pin: bool = False
    """Whether it is bound to processors that no other command uses."""
    keep_workdir: bool = False
    """Whether its scratch directory stays if it fails."""

    def demands(self) -> tuple[Demand, ...]:
        """The alternatives, or its one request."""
        return self.alternatives or (Demand(self.num_cpus, self.num_gpus, self.memory, self.resources),)

    def shown(self) -> str:
        """Its text with its values, for people."""
        return fill(self.text, self.values)


def seconds(value: Any) -> float:
    """Read a duration: a number of seconds, or a text such as "90", "10m", "1h30m", "500ms" or "2:00:00".

    Raises:
        ValueError: it is not a duration.
    """
    text = "" if isinstance(value, bool) else str(value).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smhd])", text))
    if found := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(one or 0) for one in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    raise ValueError(f"must be a duration such as 90 (seconds), '10m', '1h30m' or '2:00:00', not {value!r}")


def _amount(value: Any) -> float:
    try:
        found = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    if not 0 <= found < 1e9:
        raise ValueError(f"must be a number, 0 or more, not {value!r}")
    return found


def _bytes(value: Any) -> int:
    try:
        return size_in_bytes("", value)
    except (TypeError, ValueError):
        raise ValueError(f"must be a number of bytes, or like '20GB' or '512MiB', not {value!r}") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,9}", str(value).strip()):
        raise ValueError(f"must be a whole number, not {value!r}")
    return int(value)


def _checked(read: Callable[[Any], T], is_right: Callable[[T], bool], what: str) -> Callable[[Any], T]:
    """A reader that refuses some of the values of another one."""

    def reader(value: Any) -> T:
        if not is_right(found := read(value)):
            raise ValueError(f"must be {what}, not {value!r}")
        return found

    return reader


_positive_seconds = _checked(seconds, lambda found: found > 0, "more than 0 seconds")
_gpus = _checked(_amount, lambda found: found <= 1 or found == int(found), "0, a share below 1, or a whole number")
_weight = _checked(_amount, lambda found: 0 < found <= 1e6, "more than 0, and at most 1000000")
_count = _checked(_whole, lambda found: found >= 0, "0 or more")
_ranks = _checked(_whole, lambda found: found >= 1, "1 or more")


def _codes(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    found = tuple(_whole(part) for part in parts)
    if wrong := [code for code in found if not -_SIGNALS_MAX <= code <= 255]:
        raise ValueError(f"must be exit codes from 0 to 255, or -N for signal N, not {wrong[0]}")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must be a text, not {value!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"must be text that can be written as UTF-8, which {value!r} cannot")
    return value


def _command_text(value: Any) -> str:
    if not _text(value).strip():
        raise ValueError("must not be empty")
    if (size := len(value.encode(errors="replace"))) > _TEXT_BYTES_MAX:
        raise ValueError(
            f"has {size} bytes, and the kernel takes {_TEXT_BYTES_MAX} for a shell: run a script that has it"
        )
    return str(value)


def _name(value: Any) -> str:
    if not _NAME.fullmatch(_text(value)):
        raise ValueError(f"must have letters, digits, and _ . + - alone (files are named after it), not {value!r}")
    if len(value) > _NAME_MAX:
        raise ValueError(f"must have at most {_NAME_MAX} letters, because files are named after it, not {len(value)}")
    return str(value)


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise ValueError(f"must be a list of names, not {value!r}")
    return tuple(dict.fromkeys(_name(part.strip() if isinstance(part, str) else part) for part in parts))


def _flag(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError(f"must be true or false, not {value!r}")
    return words[str(value).lower()]


def _shell(value: Any) -> str:
    if not _text(value) or len(value.split()) != 1:
        raise ValueError(f"must be the path or the name of a shell such as 'bash', without options, not {value!r}")
    return str(value)


def _pairs(value: Any) -> Any:
    """`A=1,B=2` as a dictionary of texts; other values as they are."""
    return dict(part.partition("=")[::2] for part in value.split(",") if part) if isinstance(value, str) else value


def _environment(value: Any) -> dict[str, str]:
    value = _pairs(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"must be variables and their texts, not {value!r}")
    found = {str(name): text_of(one) for name, one in value.items()}
    if wrong := [name for name in found if not name or "=" in name or "\0" in name + found[name]]:
        raise ValueError(f"must be variables and their texts; {wrong[0]!r} cannot be the name of one")
    return found


def _resources(value: Any) -> dict[str, float]:
    pairs = _pairs(value)
    try:
        found = {name.strip(): float(one) if isinstance(one, str) else one for name, one in pairs.items()}
        check_resources("resources", found)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"must be names and amounts, such as licence=1,scratch=20, not {value!r}: {error}") from None
    return found


def _alternatives(value: Any) -> list[dict[str, Any]]:
    """`num_cpus=4 | num_gpus=1 memory=2GB`, or a list of such tables, with the fields of each."""
    if isinstance(value, str):
        value = [dict(word.partition("=")[::2] for word in part.split()) for part in value.split("|")]
    if not isinstance(value, (list, tuple)) or len(value) < 2 or not all(isinstance(one, Mapping) for one in value):
        raise ValueError(
            "must be two or more requests, as in 'num_cpus=4 | num_gpus=1' or "
            f"[{{num_cpus = 4}}, {{num_gpus = 1}}], not {value!r}"
        )
    found = []
    for one in value:
        if wrong := [name for name in one if name not in _DEMANDED]:
            raise ValueError(unknown("resource", str(wrong[0]), _DEMANDED))
        try:
            found.append({name: OPTIONS[name][0](amount) for name, amount in one.items()})
        except ValueError as error:
            raise ValueError(f"has a wrong request {dict(one)}: the value {error}") from None
    return found


def _choice(value: Any) -> str:
    if value not in ON_FAILURE:
        raise ValueError(f"must be {', '.join(map(repr, ON_FAILURE))}, not {value!r}")
    return str(value)


OPTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    # name: (its reader, its help)
    "name": (_name, "its name, and the name of its files"),
    "num_cpus": (_amount, "CPUs reserved for it; 1"),
    "num_gpus": (_gpus, "GPUs reserved for it: a whole number, or a share below 1; 0"),
    "memory": (_bytes, "memory reserved for it, which is also its limit, such as 4GB; no limit"),
    "resources": (_resources, "custom resources reserved for it, such as licence=1; none"),
    "alternatives": (_alternatives, "requests of which it gets the first that fits, such as 'num_cpus=4 | num_gpus=1'"),
    "output_limit": (_bytes, "the largest size of its output, such as 1GB; no limit"),
    "time_limit": (_positive_seconds, "how long it may run, such as 10m; no limit"),
    "expect": (_positive_seconds, "how long it will take, as a guess until that is known; its time_limit"),
    "grace": (seconds, "how long it has between SIGTERM and SIGKILL; 5s"),
    "priority": (_whole, "commands with a higher number start first; 0"),
    "group": (_name, "the name of a group: groups of equal priority get fair shares"),
    "group_weight": (_weight, "the weight of its group: with twice the weight it gets twice the share; 1"),
    "group_limit": (_count, "how many commands of its group run at a time; any number"),
    "after": (_names, "commands or arrays that end before it starts"),
    "env": (_environment, "variables of its environment"),
    "shell": (_shell, "the shell that runs it: a path, or a name such as bash; /bin/sh"),
    "cwd": (_text, "the directory in which it starts; that of the batch"),
    "stdin": (_text, "the file of its standard input; empty"),
    "stdout": (_text, "the file of its standard output; NAME.out in the directory of the batch"),
    "stderr": (_text, "the file of its standard error; that of its standard output"),
    "retries": (_count, "how often it is retried if it fails; 0"),
    "retry_codes": (_codes, "codes after which it is retried; every code but those of success"),
    "retry_delay": (seconds, "the time before a retry; 0"),
    "success_codes": (_codes, "exit codes that are a success; 0"),
    "on_failure": (_choice, "if it fails: skip the commands after it, continue, or stop the batch; skip"),
    "pin": (_flag, "bind it to processors that no other command uses; false"),
    "keep_workdir": (_flag, "keep its scratch directory beside its output if it fails; false"),
    "ranks": (_ranks, "how many MPI ranks it has, each with its own num_cpus, num_gpus and memory; 1"),
    "ranks_per_node": (_ranks, "how many of its ranks run on each node; any number"),
    "mpi": (_flag, "whether all its ranks must start MPI; true"),
    "launcher": (launcher_of, "what starts its ranks, such as 'srun --overlap' or mpiexec; the job itself"),
}
_DEMANDED = ("num_cpus", "num_gpus", "memory", "resources")
"""Options that alternatives may have."""
_TEXTS = ("text", "cwd", "stdin", "stdout", "stderr")
"""Fields that may have placeholders, besides `env`."""
Wrong = tuple[str, str]
"""A problem: the option (or "command" for the text, or a parameter), and a message."""


def read_command(
    text: Any, options: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[Command | None, list[Wrong]]:
    """Make a command of a text and options; None, and all problems, if there are any."""
    wrong: list[Wrong] = []
    fields: dict[str, Any] = {}
    for name, value in [("text", text), *options.items()]:
        reader = _command_text if name == "text" else OPTIONS[name][0] if name in OPTIONS else None
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
    wrong += wrong_with_launcher(fields, _TEXTS)
    if wrong:
        return None, wrong
    return Command(values={name: text_of(value) for name, value in values.items()}, **fields), []


def _set_alternatives(fields: dict[str, Any]) -> list[Wrong]:
    """Complete alternatives by the options of the command, and make the first one its request."""
    common = {name: fields[name] for name in _DEMANDED if name in fields}
    demands = tuple(Demand(**{**common, **one}) for one in fields["alternatives"])
    if any(one == other for one, other in combinations(demands, 2)):
        return [("alternatives", "alternatives must differ")]
    if fields.get("ranks", 1) > 1 or fields.get("launcher"):
        return [("alternatives", "a command with several ranks has one request, for each rank")]
    fields |= {"alternatives": demands, **{name: getattr(demands[0], name) for name in _DEMANDED}}
    return []


def names_after(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in `after`, for an entry with problems."""
    try:
        return _names(options.get("after", ()))
    except ValueError:
        return ()


def wrong_placeholders(fields: Mapping[str, Any], values: Mapping[str, Any]) -> list[Wrong]:
    """Placeholders without a value, and values that no placeholder shows."""
    if not values and "env" not in fields and not any("{" in fields[name] for name in _TEXTS if name in fields):
        return []  # as most commands of long lists
    texts = {"command" if name == "text" else name: fields.get(name, "") for name in _TEXTS}
    texts["env"] = "\n".join(fields.get("env", {}).values())
    used = {label: names_in(text) for label, text in texts.items()}
    wrong = [
        (label, unknown("placeholder", name, (*values, *BUILT_IN)) + f"; {{{{{name}}}}} stands for {{{name}}} itself")
        for label, names in used.items()
        for name in sorted(names - values.keys() - set(BUILT_IN))
    ]
    if "text" in fields:
        unused = [name for name in values if not any(name in names for names in used.values())]
        wrong += [(name, f"parameter {name!r} is not used: no {{{name}}} in the command") for name in unused]
    return wrong + [(name, f"parameter {name!r} has a reserved name") for name in values if name in BUILT_IN]


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """A message for an unknown name, with the nearest known one."""
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    return f"there is no {what} {name!r}; {hint}"


def text_of(value: Any) -> str:
    """A value as the text of a command has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
