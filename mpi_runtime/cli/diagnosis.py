"""What is wrong with a launch, told from what its ranks see and what the batch system has granted: pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from mpi_runtime.slurm.allocation import Allocation
from mpi_runtime.slurm.jobs import Granted


class Seen(msgspec.Struct, frozen=True):
    """What one rank sees."""

    rank: int
    host: str
    cpus: tuple[int, ...]
    """The processors that it may run on."""
    host_cpus: int
    """How many processors there are on the host."""
    memory: int
    """Bytes that it may use, with its neighbours."""
    gpus: tuple[str, ...] | None
    """Ids of the GPUs that it is shown; None: nobody says."""
    gpu_error: str = ""
    """Why it can use none of them."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, and what mends it."""

    what: str
    cure: str


_UNBOUND = {
    "openmpi": "mpirun --bind-to none ...",
    "mpich": "mpirun -bind-to none ...",
    "slurm-pmix": "srun --mpi=pmix --cpu-bind=none ...",
    "slurm-pmi2": "srun --mpi=pmi2 --cpu-bind=none ...",
}


_SRUN = {"slurm-pmix": "srun --mpi=pmix", "slurm-pmi2": "srun --mpi=pmi2"}


def diagnose(
    kind: str, ranks: Sequence[Seen], own: Allocation, granted: Mapping[str, Granted], confined: bool = False
) -> list[Finding]:
    """Return what is wrong.

    Args:
        kind: the launcher, as in `Launch`.
        ranks: what each rank sees.
        own: what the environment of rank 0 tells of the job.
        granted: what Slurm says that the job has, by node; empty where that is not known.
        confined: whether Slurm hides other devices from a job, which numbers its own from 0.
    """
    by_host: dict[str, list[Seen]] = {}
    for one in ranks:
        by_host.setdefault(_short(one.host), []).append(one)
    found = list(_places(kind, ranks, by_host, own))
    for host, there in by_host.items():
        node = granted.get(host)
        found += _bound(kind, host, there, node)
        if node is not None and node.gpus:
            found += _gpus(kind, host, there, node, confined)
    return found


def _places(
    kind: str, ranks: Sequence[Seen], by_host: Mapping[str, Sequence[Seen]], own: Allocation
) -> Iterator[Finding]:
    unused = [name for name in own.nodes if _short(name) not in by_host]
    if not unused:
        return
    number = len(own.nodes) + 1
    what = f"no rank runs on {', '.join(unused)}, though the job has them"
    if len(ranks) == 1:
        line = f"mpi-runtime run -n {number} app.py"
        yield Finding(f"the program was started as a single process: {what}", line)
    elif kind == "openmpi":
        yield Finding(what, f"mpirun --map-by ppr:{-(-len(ranks) // len(own.nodes))}:node --bind-to none ...")
    elif kind == "mpich":
        yield Finding(what, f"mpirun -ppn {-(-len(ranks) // len(own.nodes))} ...")
    else:
        yield Finding(what, f"srun -N {len(own.nodes)} -n {number} ...")


def _bound(kind: str, host: str, there: Sequence[Seen], node: Granted | None) -> Iterator[Finding]:
    """Executors run where their rank may: what no rank of the host may use lies idle."""
    may_use = {cpu for one in there for cpu in one.cpus}
    have = there[0].host_cpus
    if node is not None:
        have = min(have, node.cpus)
    if len(may_use) >= have or (node is None and not all(len(one.cpus) == 1 for one in there)):
        return
    ranks = "its rank is" if len(there) == 1 else f"its {len(there)} ranks are"
    yield Finding(
        f"on {host} {ranks} bound to {len(may_use)} of {have} CPUs, and so is all that runs there",
        _UNBOUND.get(kind, "start the ranks without binding them to cores"),
    )


def _gpus(kind: str, host: str, there: Sequence[Seen], node: Granted, confined: bool) -> Iterator[Finding]:
    if errors := [one.gpu_error for one in there if one.gpu_error]:
        yield Finding(
            f"on {host} no GPU is used: {errors[0]}",
            f"{_SRUN.get(kind, 'srun')} --gpus-per-node={len(node.gpus)} ..., without --gpu-bind=none"
            if "--gpu-bind" in errors[0]
            else "mpi-runtime gpus, started by the same line, says more",
        )
        return
    mine = set(range(len(node.gpus))) if confined else set(node.gpus)
    shown = {gpu for one in there for gpu in one.gpus or ()}
    if any(one.gpus is None for one in there) or not all(gpu.isdecimal() for gpu in shown):
        return  # they see what there is, or ids that cannot be compared
    numbers = {int(gpu) for gpu in shown}
    if strange := sorted(numbers - mine):
        yield Finding(
            f"on {host} ranks are shown GPUs {_list(strange)}, but the job has {_list(sorted(mine))} there",
            "mpirun -genvnone ..., or srun: the launcher hands on CUDA_VISIBLE_DEVICES of the first node"
            if kind == "mpich"
            else "ask for GPUs with --gpus-per-node, not --gpus-per-task, or start the ranks by srun",
        )
    elif hidden := sorted(mine - numbers):
        yield Finding(
            f"on {host} no rank is shown GPUs {_list(hidden)}, though the job has them",
            "ask for GPUs with --gpus-per-node, not --gpus-per-task, or start the ranks by srun",
        )


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _short(name: str) -> str:
    """MPI and Slurm may call a host by its short or by its full name."""
    return name.partition(".")[0]
