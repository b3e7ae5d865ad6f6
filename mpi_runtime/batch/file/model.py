"""A command: its text, how it is run, and what it asks of the jobs that run it. Pure: other rooms decide with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpi_runtime.batch.file.text import SHELL, fill
from mpi_runtime.scheduler.protocol.amounts import Request, custom_of
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.show.numbers import size

SKIP, CONTINUE, STOP = ON_FAILURE = "skip", "continue", "stop"
"""What the failure of a command means for those after it."""


class Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources of one alternative of a command."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: int = 0
    """Bytes that are set aside for it, and that it may have."""
    resources: dict[str, float] = {}
    """Amounts of custom resources that are its own, by name."""

    def amounts(self) -> dict[str, float]:
        """Its amounts by the names that nodes have for them."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float(self.memory), **self.resources}

    def request(self) -> Request:
        """Its amounts as the scheduler counts them."""
        return counted(self.amounts())

    def in_words(self) -> str:
        """Its amounts, for people."""
        asked = [f"{amount:g} {what}" for what, amount in (("CPU", self.num_cpus), ("GPU", self.num_gpus)) if amount]
        asked += [f"{size(self.memory)} of memory"] if self.memory else []
        asked += [f"{amount:g} {name}" for name, amount in self.resources.items() if amount]
        return ", ".join(asked) or "nothing"


def counted(amounts: Mapping[str, float]) -> Request:
    """Amounts by the names that nodes have for them, as the scheduler counts them."""
    units = {name: round(amount * UNIT) for name, amount in amounts.items() if amount and name != "memory"}
    cpu, gpu = units.pop("CPU", 0), units.pop("GPU", 0)
    return Request(cpu, gpu, int(amounts.get("memory", 0)), custom_of(units))


class Asked(Demand, frozen=True, kw_only=True, omit_defaults=True):
    """What a command asks of the jobs that run it: resources, limits, ranks, its turn among others.

    This is all that schedulers see of it: that of a job (`call_options`), the coordinator of several jobs, and that of
    virtual nodes. On disk the fields stand among those of `Command`, so that this record can be read from a command.
    """

    batch_resources: dict[str, float] = {}
    """What all jobs of the batch have together of some of them, by name: no node has these."""
    shares: dict[str, float] = {}
    """Its amounts of those, which are not in `resources`."""
    alternatives: tuple[Demand, ...] = ()
    """All resources with which it may run: one of these is reserved, and its own four fields are the first. Empty:
    there is one request."""
    output_limit: int = 0
    """Bytes that its output may have; 0: any number."""
    time_limit: float | None = None
    """Seconds until it gets SIGTERM."""
    expect: float | None = None
    """Seconds that it takes, as assumed until commands like it have ended. None: its `time_limit`, if it has one."""
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

    def demands(self) -> tuple[Demand, ...]:
        """The alternatives, or its one request."""
        return self.alternatives or (Demand(self.num_cpus, self.num_gpus, self.memory, self.resources),)

    def shared(self) -> tuple[tuple[str, float, float], ...]:
        """What it needs of resources that all jobs share: name, amount, and what there is in all."""
        return tuple((name, amount, self.batch_resources[name]) for name, amount in self.shares.items())

    def limit_s(self) -> float | None:
        """How long it may take at most; None: any time."""
        return None if self.time_limit is None else self.time_limit + self.grace


class Command(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """One program to run: a line for the shell, and how it is run."""

    text: str
    """What its shell runs, with placeholders."""
    shell: str = SHELL
    """The path or the name of the shell."""
    name: str = ""
    """Its name in the batch, and that of its files."""
    values: dict[str, str] = {}
    """The values of its own placeholders."""
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
    on_failure: str = SKIP
    pin: bool = False
    """Whether it is bound to processors that no other command uses."""
    keep_workdir: bool = False
    """Whether its scratch directory stays if it fails."""

    def shown(self) -> str:
        """Its text with its values, for people."""
        return fill(self.text, self.values)


def call_options(asked: Asked, path_us: int = 0) -> dict[str, Any]:
    """The options of the call that is a command, or a rank of it, as its scheduler gets them.

    `path_us`: how long it and the longest chain after it take, in microseconds; 0: not known.
    """
    return {
        "num_cpus": asked.num_cpus,
        "num_gpus": asked.num_gpus,
        "memory": asked.memory or None,
        "resources": asked.resources,
        "priority": asked.priority,
        "time_limit": asked.limit_s(),
        "_account": (asked.group, asked.group_weight, asked.group_limit) if asked.group else None,
        "_path_us": path_us,
        "_alternatives": tuple(one.request() for one in asked.alternatives[1:]),
        "expect": asked.limit_s() if asked.expect is None else asked.expect,  # until commands like it have ended
    }


def as_first_packed(command: Command) -> bytes:
    """A command in msgpack as the first version packed it: journals of programs have hashes of these bytes."""
    found = msgspec.to_builtins(command)
    first = {name: found[name] for name in ("text", "shell", "name", "values") if name in found}
    data = msgspec.msgpack.encode(first | found)
    return data if len(found) > 15 else b"\xde" + len(found).to_bytes(2, "big") + data[1:]  # a long head, always
