"""Grid Engine: the allocation of a job. Jobs are not submitted to it yet."""

from collections.abc import Mapping

from mpi_runtime.slurm.systems import variables
from mpi_runtime.slurm.systems.system import Allocation

NAME = "sge"


def is_around(env: Mapping[str, str]) -> bool:
    """Whether this is the environment of a job of Grid Engine."""
    return bool(env.get("PE_HOSTFILE"))


def allocation(env: Mapping[str, str]) -> Allocation:
    """Read the variables of a job. A line of its file of hosts has name, slots, queue and processors."""
    hosts = variables.read(env, ["PE_HOSTFILE"], variables.hosts_in)
    slots = tuple(variables.number(words[1]) or 0 for words in hosts)
    return Allocation(
        system=NAME,
        job=env.get("JOB_ID", ""),
        nodes=tuple(words[0] for words in hosts),
        tasks=slots,
        cpus=slots,
        array_task=variables.number(env.get("SGE_TASK_ID")),  # "undefined" if there is no array
    )


def question(own: Allocation) -> None:
    """Nothing can be asked yet."""
