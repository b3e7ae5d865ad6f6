"""What this package knows of each batch system: a module that has the names of `System`, or of `Queue`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.status import Granted, Status

Question = tuple[Sequence[str], Callable[[str, float], float | None]]
"""A command, and a function that reads the end of a job's time from its answer and the time now."""


class AllocationError(ValueError):
    """The variables of a batch system make no sense. The message names the variable."""


@dataclass(frozen=True)
class Allocation:
    """The resources that a batch system has granted to a job. Fields that it does not state are empty or None."""

    system: str = ""
    """The batch system: "slurm", "sge", "pbs", "lsf", "flux" or "oar"; empty outside of a job."""
    job: str = ""
    """The id of the job in the batch system."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes; the node of the batch script comes first."""
    tasks: tuple[int, ...] = ()
    """The number of tasks (ranks) requested, for each node."""
    cpus: tuple[int, ...] = ()
    """The number of CPUs of the job, for each node."""
    gpus: tuple[str, ...] | None = None
    """The GPUs that this process may use, by number or id; None: not stated."""
    restarts: int = 0
    """How often the job was requeued and has started again."""
    array_task: int | None = None
    """The index of this task in a job array; None: there is no array."""
    end_s: float | None = None
    """The end of the job's time, in seconds since 1970. Slurm states it since 23.02; see `end_time`."""
    parts: int = 1
    """The number of parts of a heterogeneous job of Slurm; any other job has one."""
    step_nodes: tuple[str, ...] = ()
    """Names of the nodes of the step of Slurm that srun has started this process in; empty: it is in none."""


class System(Protocol):
    """A batch system whose jobs can be recognised from inside."""

    NAME: str
    """The name in `Allocation.system`."""
    LAUNCHER: Mapping[str, str]
    """Variables that MPI's launchers need in a job to reach its other nodes, if their own settings do not suffice."""

    def is_around(self, env: Mapping[str, str]) -> bool:
        """Whether this is the environment of one of its jobs."""
        ...

    def allocation(self, env: Mapping[str, str]) -> Allocation:
        """Return the allocation of the job with this environment.

        Raises:
            AllocationError: a variable makes no sense.
        """
        ...

    def question(self, own: Allocation) -> Question | None:
        """Return how to ask for the end of the job's time; None: it cannot be asked."""
        ...


class Queue(System, Protocol):
    """A batch system to which jobs can be submitted."""

    COMMAND: str
    """The command that submits; where it is installed, the system is."""
    CANCEL: str
    """The command that ends a job, for people."""
    JOB: str
    """The id of the job, as a word of the batch script."""
    ARRAY_JOB: str
    """The same for a task of an array."""
    TASK: str
    """The variable with the index of a task."""
    ARRAY_MAX: int
    """The most tasks of an array that its own settings allow, or a thousand; 1: it has no arrays."""
    NODE_COUNT: str
    """The variable with the number of nodes."""
    MISTAKES: str
    """How the system sees a job whose launcher has ended with 0 though a node has failed: for a comment."""
    SIGNALS: str
    """Lines of the batch script about signals of this system alone, while the program runs."""
    LAUNCH: str
    """How the batch script starts the launcher in the background: a format with `{launch}`."""
    REQUEUE: str
    """The function of the batch script that queues its job again."""
    PASSING: tuple[str, ...]
    """Parts of error messages, in lower case, that mean that the system is out of reach for a while."""

    FULL: tuple[str, ...]
    """The same, that mean that the user has as many jobs as the system allows."""
    UNKNOWN: tuple[str, ...]
    """The same, that mean that there is no such job, or no longer."""

    def complete(self, request: Request) -> Request:
        """Return a request with what only the system knows, before a script is made of it.

        Raises:
            ValueError: the system has nothing that fits.
            SlurmError: the system does not answer.
        """
        ...

    def check(self, request: Request) -> None:
        """Raise ValueError if the system cannot do what a request says."""
        ...

    def header(self, request: Request, name: str) -> list[str]:
        """Return the lines of the batch script with the options of a job of this name."""
        ...

    def output(self, request: Request, name: str) -> str:
        """Return the name of the output file, with the system's patterns."""
        ...

    def before(self, request: Request) -> list[str]:
        """Return lines of the batch script before the launcher."""
        ...

    def after(self, request: Request) -> list[str]:
        """Return lines of the batch script for a program that did not run to its end."""
        ...

    def submit(self, text: str, cwd: str | None) -> str:
        """Submit a batch script and return the id of its job.

        Raises:
            SlurmError: the system refused.
        """
        ...

    def statuses(self, job: str) -> list[Status]:
        """Return the status of a job, or of each task of an array: state, reason, start as far as it is known.

        Raises:
            SlurmError: the system does not know the job, or does not answer.
        """
        ...

    def living(self, name: str) -> dict[str, str]:
        """Return the state of each job of this name that has not ended, by id. The name must be that of few users.

        Raises:
            SlurmError: the system does not answer.
        """
        ...

    def cancel(self, job: str) -> None:
        """Cancel a job, or one task of an array, even if it runs. A job that has ended is left as it is.

        Raises:
            SlurmError: the system does not answer.
        """
        ...

    def cancel_waiting(self, jobs: Sequence[str]) -> None:
        """Cancel those of these jobs that have not started.

        Raises:
            SlurmError: the system does not answer.
        """
        ...

    def end(self, job: str) -> None:
        """Cancel a job that waits, and have the program of one that runs end in order, if the system can.

        Raises:
            SlurmError: the system does not answer.
        """
        ...

    def cluster(self) -> str:
        """Return the name of the cluster; empty: it has none.

        Raises:
            SlurmError: the system does not answer.
        """
        ...

    def granted(self, job: str) -> dict[str, Granted]:
        """Return the resources of a running job on each of its nodes; empty if the system does not state them.

        Raises:
            SlurmError: the system does not know the job, or does not answer.
        """
        ...

    def largest_node(self, partition: str | None) -> float:
        """Return the most CPUs of a node; infinite if the system does not answer."""
        ...

    def allow_requeue(self, own: Allocation) -> bool:
        """Prepare a running job for its requeue. Return whether it has still to be requeued.

        Raises:
            SlurmError: the job cannot be requeued.
        """
        ...

    def requeue(self, own: Allocation) -> None:
        """Queue the job of this process again, at once.

        Raises:
            SlurmError: the system refused.
        """
        ...
