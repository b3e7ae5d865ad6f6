"""A command: its text, how it is run, and what it asks of the jobs that run it. Pure: other rooms decide with it."""

from __future__ import annotations

import msgspec

from mpi_runtime.batch.file.text import SHELL, fill

SKIP, CONTINUE, STOP = "skip", "continue", "stop"
"""What the failure of a command means for those after it."""


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
