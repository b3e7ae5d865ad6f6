"""A command: its text and its options, which files, flags and Python share, each with its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import Any

import msgspec

from mpi_runtime.batch.file import values as read
from mpi_runtime.batch.file.launchers import launcher_of, wrong_with_launcher
from mpi_runtime.batch.file.templates import BUILT_IN, fill, filled_length, names_in

SHELL = "/bin/sh"
ALTERNATIVES_MAX = 100
"""The most requests of one command: each is compared with the others."""
NAMES_SHOWN = 50
"""The number of known names that a message about an unknown one lists at most."""


class Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources of one alternative of a command. The fields are those of `Command`."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: int = 0
    resources: dict[str, float] = {}

    def amounts(self) -> dict[str, float]:
        """Its amounts by the names that nodes have for them."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float(self.memory), **self.resources}

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
    batch_resources: dict[str, float] = {}
    """What all jobs of the batch have together of some of them, by name: no node has these."""
    shares: dict[str, float] = {}
    """Its amounts of those, which are not in `resources`."""
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
    inputs: tuple[str, ...] = ()
    """Files that are there before it starts."""
    latency_wait: float = 5.0
    """Seconds to wait for them and for its `stdin`: a network file system may show what another host wrote late."""
    rerun: bool = True
    """Whether it may start again after a start whose end is not known."""
    started: str = ""
    """The file that its start makes, if it must not start twice."""
    retries: int = 0
    retry_codes: tuple[int, ...] = ()
    """The codes after which it is retried; empty: every code but those of success."""
    retry_delay: float = 0.0
    """Seconds before a retry."""
    success_codes: tuple[int, ...] = (0,)
    on_failure: str = read.SKIP
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


def _alternatives(value: Any) -> list[dict[str, Any]]:
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
            found.append({name: OPTIONS[name][0](amount) for name, amount in one.items()})
        except ValueError as error:
            raise ValueError(f"has a wrong request {dict(one)}: the value {error}") from None
    return found


OPTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    # name: (its reader, its help)
    "name": (read.file_name, "its name, and the name of its files"),
    "num_cpus": (read.amount, "CPUs reserved for it; 1"),
    "num_gpus": (read.gpus, "GPUs reserved for it: a whole number, or a share below 1; 0"),
    "memory": (read.size, "memory reserved for it, which is also its limit, such as 4GB; no limit"),
    "resources": (read.resources, "custom resources reserved for it, such as licence=1; none"),
    "batch_resources": (read.resources, "resources that all jobs of the batch share, such as licence=3; none"),
    "alternatives": (_alternatives, "requests of which it gets the first that fits, such as 'num_cpus=4 | num_gpus=1'"),
    "output_limit": (read.size, "the largest size of its output, such as 1GB; no limit"),
    "time_limit": (read.positive_seconds, "how long it may run, such as 10m; no limit"),
    "expect": (read.positive_seconds, "how long it will take, as a guess until that is known; its time_limit"),
    "grace": (read.seconds, "how long it has between SIGTERM and SIGKILL; 5s"),
    "priority": (read.whole, "commands with a higher number start first; 0"),
    "group": (read.file_name, "the name of a group: groups of equal priority get fair shares"),
    "group_weight": (read.weight, "the weight of its group: with twice the weight it gets twice the share; 1"),
    "group_limit": (read.count, "how many commands of its group run at a time; any number"),
    "after": (read.file_names, "commands or arrays that end before it starts"),
    "env": (read.environment, "variables of its environment"),
    "shell": (read.shell, "the shell that runs it: a path, or a name such as bash; /bin/sh"),
    "cwd": (read.plain_text, "the directory in which it starts; that of the batch"),
    "stdin": (read.plain_text, "the file of its standard input; empty"),
    "inputs": (read.paths, "files that it reads: it starts once they are there; none"),
    "latency_wait": (read.seconds, "how long it waits for its inputs on a network file system before it fails; 5s"),
    "stdout": (read.plain_text, "the file of its standard output; NAME.out in the directory of the batch"),
    "stderr": (read.plain_text, "the file of its standard error; that of its standard output"),
    "rerun": (read.flag, "whether it may start again after a start whose end is not known; true"),
    "retries": (read.count, "how often it is retried if it fails; 0"),
    "retry_codes": (read.codes, "codes after which it is retried; every code but those of success"),
    "retry_delay": (read.seconds, "the time before a retry; 0"),
    "success_codes": (read.codes, "exit codes that are a success; 0"),
    "on_failure": (read.on_failure, "if it fails: skip the commands after it, continue, or stop the batch; skip"),
    "pin": (read.flag, "bind it to processors that no other command uses; false"),
    "keep_workdir": (read.flag, "keep its scratch directory beside its output if it fails; false"),
    "ranks": (read.ranks, "how many MPI ranks it has, each with its own num_cpus, num_gpus and memory; 1"),
    "ranks_per_node": (read.ranks, "how many of its ranks run on each node; any number"),
    "mpi": (read.flag, "whether all its ranks must start MPI; true"),
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
        reader = read.command_text if name == "text" else OPTIONS[name][0] if name in OPTIONS else None
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
    wrong += wrong_with_launcher(fields, _TEXTS)
    texts = {name: read.text_of(value) for name, value in values.items()}
    if texts and not wrong:
        wrong += _too_long(fields, texts)
    if wrong:
        return None, wrong
    return Command(values=texts, **fields), []


def _too_long(fields: Mapping[str, Any], values: Mapping[str, str]) -> list[Wrong]:
    """Texts that have many of long values."""
    texts = {"command" if name == "text" else name: [fields.get(name, "")] for name in _TEXTS}
    texts |= {"inputs": fields.get("inputs", ()), "env": fields.get("env", {}).values()}
    longest = max(map(len, values.values()))
    return [
        (label, f"{label} has {length} letters with its values, and the kernel takes {read.TEXT_BYTES_MAX} bytes")
        for label, found in texts.items()
        for text in found
        if len(text) * (longest + 1) > read.TEXT_BYTES_MAX
        and (length := filled_length(text, values)) > read.TEXT_BYTES_MAX
    ]


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


def _set_batch_resources(fields: dict[str, Any]) -> list[Wrong]:
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


def names_after(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in `after`, for an entry with problems."""
    try:
        return read.file_names(options.get("after", ()))
    except ValueError:
        return ()


def wrong_placeholders(fields: Mapping[str, Any], values: Mapping[str, Any]) -> list[Wrong]:
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
        wrong += [(name, f"parameter {name!r} is not used: no {{{name}}} in the command") for name in unused]
    return wrong + [(name, f"parameter {name!r} has a reserved name") for name in values if name in BUILT_IN]


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """A message for an unknown name, with the nearest known one."""
    near = get_close_matches(name, known, n=1)
    more = " and more" if len(known) > NAMES_SHOWN else ""
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known[:NAMES_SHOWN])}{more}"
    return f"there is no {what} {name!r}; {hint}"
