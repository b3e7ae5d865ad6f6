"""Finds what is wrong with a launch, from what its ranks see and what the batch system has granted. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from mpi_runtime.slurm.allocation import Allocation, is_in_step
from mpi_runtime.slurm.status import Granted
from mpi_runtime.slurm.systems import devices

SHARED_MEMORY_MIN = 64 << 20
"""Bytes of /dev/shm, which MPI libraries use for messages between ranks of a host."""
DESCRIPTORS_EACH = 4
"""Descriptors that each executor takes in the process of its rank."""
DESCRIPTORS_BESIDES = 64
"""Descriptors that a rank takes besides. With fewer than these MPI may not start, or may hang."""
SLOW_S = 1e-3
"""Seconds. A small message that takes longer between hosts did not use a fast network."""


class Seen(msgspec.Struct, frozen=True):
    """What one rank sees."""

    rank: int
    host: str
    cpus: tuple[int, ...]
    """The processors that it may run on."""
    host_cpus: int
    """How many processors the host has."""
    memory: int
    """Bytes that it may use, together with the other ranks of the host."""
    gpus: tuple[str, ...] | None
    """Ids of the GPUs in its environment; None: not stated."""
    gpu_error: str = ""
    """Why it can use none of them; empty if it can."""
    gpus_found: int | None = None
    """How many it can use; None: it has not looked."""
    shared_memory: int | None = None
    """Bytes of /dev/shm; None: there is no /dev/shm."""
    descriptors: int | None = None
    """How many files it may have open; None: any number."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, and its cure."""

    what: str
    cure: str
    is_note: bool = False
    """Whether it may be on purpose."""


_UNBOUND = {
    "openmpi": "mpirun --bind-to none ...",
    "mpich": "mpirun -bind-to none ...; with Intel MPI: mpirun -genv I_MPI_PIN 0 ...",
    "slurm-pmix": "srun --mpi=pmix --cpu-bind=none ...",
    "slurm-pmi2": "srun --mpi=pmi2 --cpu-bind=none ...",
}


_SRUN = {"slurm-pmix": "srun --mpi=pmix", "slurm-pmi2": "srun --mpi=pmi2"}


def diagnose(
    kind: str, ranks: Sequence[Seen], own: Allocation, granted: Mapping[str, Granted], confined: bool = False
) -> list[Finding]:
    """Return what is wrong.

    Args:
        kind: the kind of launcher, as in `Launch`.
        ranks: what each rank sees.
        own: the allocation in the environment of rank 0, with the nodes on which ranks are expected.
        granted: the job's resources by node, as Slurm states them; empty if they are not known.
        confined: whether Slurm hides other devices from the job, and numbers the job's devices from 0.
    """
    by_host: dict[str, list[Seen]] = {}
    for one in ranks:
        by_host.setdefault(_short(one.host), []).append(one)
    found = list(_places(kind, len(ranks), by_host, own.nodes, own))
    for host, there in by_host.items():
        working = [one for one in there if one.rank] or there
        node = granted.get(host)
        found += _bound(kind, host, working, node)
        found += _crowded(host, working, node, max(len(by_host), len(own.nodes)))
        found += [*_small_room(host, there[0], len(there)), *_few_descriptors(host, there)]
        if node is not None:
            found += _memory(host, working, node)
            if node.gpus:
                found += _gpus(kind, host, working, node, confined)
    return [*found, *_gpus_on_a_part(granted)]


def expected_nodes(kind: str, own: Allocation, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes on which ranks are expected: in a step of srun its own, since the user has chosen them."""
    if (kind == "none" or kind.startswith("slurm")) and is_in_step(env):
        return own.step_nodes
    return own.nodes


class Usable(msgspec.Struct, frozen=True):
    """The resources of a host that calls may use."""

    cpus: int | None
    """None: a number was stated."""
    gpus: int | None
    """None: a number was stated, the GPUs were not probed, or the reason for their absence is known."""


def unused(
    kind: str, size: int, own: Allocation, env: Mapping[str, str], hosts: Mapping[str, Usable], host_cpus: int
) -> str:
    """Return one line about resources of the batch job that calls cannot use, with a cure; empty if there are none.

    Args:
        kind: the kind of launcher, as in `Launch`.
        size: the number of ranks.
        own: the allocation in the environment of rank 0.
        env: that environment.
        hosts: the resources that calls may use, by host; the host of rank 0 comes first.
        host_cpus: how many CPUs the host of rank 0 has. Other hosts are not expected to have more.
    """
    by_host = {_short(host): usable for host, usable in hosts.items()}
    found = [*_places(kind, size, by_host, expected_nodes(kind, own, env), own)]
    have = {_short(name): min(count, host_cpus) for name, count in zip(own.nodes, own.cpus, strict=False)}
    bound = [host for host, usable in by_host.items() if usable.cpus and usable.cpus < have.get(host, 0)]
    if bound:
        found.append(
            Finding(
                f"on {_first(bound)} calls use {by_host[bound[0]].cpus} of the job's {have[bound[0]]} CPUs, since the "
                "ranks are bound",
                unbound(kind),
            )
        )
    found += _unused_gpus(env, by_host)
    return "; ".join(f"{one.what} (fix: {one.cure})" for one in found)


def _unused_gpus(env: Mapping[str, str], by_host: Mapping[str, Usable]) -> Iterator[Finding]:
    """Yield a finding if calls can use fewer GPUs than the job has.

    For nodes after the first the number is known only if the job requested GPUs per node.
    """
    on_first, on_each = env.get("SLURM_GPUS_ON_NODE", ""), env.get("SLURM_GPUS_PER_NODE", "").rpartition(":")[2]
    idle: dict[str, str] = {}
    for index, (host, usable) in enumerate(by_host.items()):
        have = on_each if index and on_each.isdecimal() else "" if index else on_first
        if usable.gpus is not None and have.isdecimal() and usable.gpus < int(have):
            idle[host] = f"{usable.gpus} of the job's {have} GPUs"
    if idle:
        hosts = list(idle)
        cure = f"{_cure_for_gpus(env)}; mpi-runtime doctor, started by the same line, shows more"
        yield Finding(f"on {_first(hosts)} calls can use {idle[hosts[0]]}", cure)


def _cure_for_gpus(env: Mapping[str, str]) -> str:
    """What most likely hides GPUs of the job from its ranks, and the cure."""
    name = devices.named(env)
    if env.get("MPI_RUNTIME_FIND_GPUS") == "never":
        return "unset MPI_RUNTIME_FIND_GPUS, which is 'never'"
    if "SLURM_GPUS_PER_TASK" in env or "SLURM_GPU_BIND" in env:
        return "request --gpus-per-node in place of --gpus-per-task, so that each rank sees all GPUs of its node"
    if name:
        return f"unset {name}, which is {env[name]!r}, if the job script sets it"
    return "see whether nvidia-smi, rocm-smi or xpu-smi lists them on that node: if not, the driver does not work"


def _first(hosts: Sequence[str]) -> str:
    return hosts[0] + (f" (and {len(hosts) - 1} more)" if len(hosts) > 1 else "")


def cannot_start(one: Seen, ranks_here: int) -> Finding | None:
    """Return a limit of a rank's host with which MPI may not start, or may hang; None: there is no such limit."""
    found = [*_small_room(one.host, one, ranks_here)]
    if one.descriptors is not None and one.descriptors < DESCRIPTORS_BESIDES:
        found += _few_descriptors(one.host, [one])
    return found[0] if found else None


def apart(host: str, places: Sequence[str]) -> Finding:
    """Name the directories that the ranks of a host do not share."""
    return Finding(
        f"on {host} each rank has a {' and a '.join(places)} of its own, as in a container for each: MPI cannot start",
        "one container for all ranks of a host, or containers with the directories of the host: apptainer exec --bind "
        "/dev/shm --bind /tmp, without --contain; docker run --ipc=host -v /tmp:/tmp",
    )


def slow_network(host: str, other: str, latency_s: float) -> Finding | None:
    """Return a note if a small message between two hosts takes longer than `SLOW_S`."""
    if latency_s < SLOW_S:
        return None
    return Finding(
        f"a small message from {host} to {other} takes {latency_s * 1e3:.1f} ms",
        "have MPI use the fast network, as mpirun --mca btl_tcp_if_include ib0 ...; a host with more busy processes "
        "than cores is as slow",
        is_note=True,
    )


def _places(
    kind: str, size: int, by_host: Mapping[str, object], names: Sequence[str], own: Allocation
) -> Iterator[Finding]:
    absent = [name for name in names if _short(name) not in by_host]
    if not absent:
        return
    shown = ", ".join(absent[:4]) + (f" and {len(absent) - 4} more" if len(absent) > 4 else "")
    what = f"no rank runs on {shown}, though the job has them"
    line = f"mpi-runtime run -n {len(names)} app.py"
    if own.parts > 1:
        cure = line_of_parts(kind, own.parts)
        yield Finding(f"{what}: it is heterogeneous, and mpirun knows its first part alone", cure)
    elif size == 1:
        cure = f"{line}; for a batch: mpi-runtime batch -n {len(names)} FILE"
        yield Finding(f"the program was started as a single process: {what}", cure)
    elif own.system == "oar" and kind in ("openmpi", "mpich"):
        yield Finding(f"{what}: mpirun knows no jobs of OAR", line)
    elif kind == "openmpi":
        yield Finding(what, f"{line}, or mpirun --map-by ppr:{-(-size // len(names))}:node --bind-to none ...")
    elif kind == "mpich":
        yield Finding(what, f"{line}, or mpirun -ppn {-(-size // len(names))} ...")
    else:
        yield Finding(what, f"srun -N {len(names)} -n {max(size, len(names))} ...")


def line_of_parts(kind: str, parts: int) -> str:
    """The command line that starts ranks in all parts of a heterogeneous job."""
    groups, mpi = ",".join(map(str, range(parts))), "pmi2" if kind in ("mpich", "intel", "slurm-pmi2") else "pmix"
    return f"srun --het-group={groups} --mpi={mpi} --cpu-bind=none python app.py"


def unbound(kind: str) -> str:
    """The command line of a launcher of this kind that does not bind ranks."""
    return _UNBOUND.get(kind, "start the ranks without binding them to cores")


def _bound(kind: str, host: str, working: Sequence[Seen], node: Granted | None) -> Iterator[Finding]:
    """Yield a finding if some CPUs of a host are idle because no rank that runs calls may use them.

    Executors have the affinity mask of their rank.
    """
    may_use = {cpu for one in working for cpu in one.cpus}
    have = working[0].host_cpus
    if node is not None:
        have = min(have, node.cpus)
    if len(may_use) >= have or (node is None and not all(len(one.cpus) == 1 for one in working)):
        return
    ranks = "the rank that runs calls is" if len(working) == 1 else f"the {len(working)} ranks that run calls are"
    yield Finding(
        f"on {host} {ranks} bound to {len(may_use)} of {have} CPUs, and so are all calls there",
        unbound(kind),
    )


def _crowded(host: str, working: Sequence[Seen], node: Granted | None, hosts: int) -> Iterator[Finding]:
    have = min(working[0].host_cpus, node.cpus if node is not None else working[0].host_cpus)
    if len(working) > max(have, 1):
        yield Finding(
            f"on {host} {len(working)} ranks share {have} CPUs",
            f"one rank for each node gives all its CPUs to calls: mpi-runtime run -n {hosts} app.py",
        )


def _small_room(host: str, one: Seen, ranks_here: int) -> Iterator[Finding]:
    room = one.shared_memory
    if room is not None and room < SHARED_MEMORY_MIN and ranks_here > 1:
        yield Finding(
            f"on {host} /dev/shm has {room >> 20} MiB, in which MPI's ranks of a host exchange messages",
            "a larger one (containers: --shm-size=1g), or one rank for each node, which needs none",
        )


def _few_descriptors(host: str, there: Sequence[Seen]) -> Iterator[Finding]:
    allowed = [one.descriptors for one in there if one.descriptors is not None]
    need = DESCRIPTORS_BESIDES + DESCRIPTORS_EACH * max(len(one.cpus) for one in there)
    if allowed and min(allowed) < need:
        yield Finding(
            f"on {host} a process may have {min(allowed)} files open (ulimit -Hn), and a rank may need {need}",
            f"ulimit -n {need} before the program is started, or a higher limit from the administrators",
        )


def _memory(host: str, working: Sequence[Seen], node: Granted) -> Iterator[Finding]:
    seen = min(one.memory for one in working)
    if node.memory and seen > 1.05 * node.memory:
        yield Finding(
            f"on {host} {seen >> 20} MiB of memory are counted, but the job has {node.memory >> 20} MiB there",
            f"init(memory={node.memory}), or ask for the memory in sbatch or salloc, which state it in variables",
        )


def _gpus(kind: str, host: str, working: Sequence[Seen], node: Granted, confined: bool) -> Iterator[Finding]:
    if errors := [one.gpu_error for one in working if one.gpu_error]:
        yield Finding(
            f"on {host} no GPU is used: {errors[0]}",
            f"{_SRUN.get(kind, 'srun')} --gpus-per-node={len(node.gpus)} ..., without --gpu-bind=none"
            if "--gpu-bind" in errors[0]
            else "mpi-runtime gpus, started by the same line, shows more",
        )
        return
    yield from _shown_gpus(kind, host, working, set(range(len(node.gpus))) if confined else set(node.gpus))
    if all(one.gpus_found == 0 for one in working):
        yield Finding(
            f"on {host} the job has {len(node.gpus)} GPUs, and none was found",
            "mpi-runtime gpus, started by the same line, shows more",
        )


def _shown_gpus(kind: str, host: str, working: Sequence[Seen], mine: set[int]) -> Iterator[Finding]:
    shown = {gpu for one in working for gpu in one.gpus or ()}
    if any(one.gpus is None for one in working) or not all(gpu.isdecimal() for gpu in shown):
        return  # they see all GPUs, or their ids are not numbers and cannot be compared
    numbers = {int(gpu) for gpu in shown}
    if strange := sorted(numbers - mine):
        yield Finding(
            f"on {host} ranks are shown GPUs {_list(strange)}, but the job has {_list(sorted(mine))} there",
            "mpirun -genvnone ..., or srun: the launcher hands on the list of GPUs of the first node"
            if kind == "mpich"
            else "ask for GPUs with --gpus-per-node, not --gpus-per-task, or start the ranks by srun",
        )
    elif hidden := sorted(mine - numbers):
        yield Finding(
            f"on {host} no rank that runs calls is shown GPUs {_list(hidden)}, though the job has them",
            f"--gpus-per-node={len(mine)}, without --gpus-per-task and --gpu-bind, or start the ranks by srun"
            if shown
            else f"unset that of {', '.join(devices.OF_JOB)} which is empty, if the job script sets it",
        )


def _gpus_on_a_part(granted: Mapping[str, Granted]) -> Iterator[Finding]:
    without = [host for host, node in granted.items() if not node.gpus]
    if without and len(without) < len(granted):
        having = [f"{host} ({len(node.gpus)})" for host, node in granted.items() if node.gpus]
        yield Finding(
            f"the job has GPUs on {', '.join(having)}, and none on {', '.join(without)}",
            "--gpus-per-node=N gives each node the same number, --gpus=N any",
            is_note=True,
        )


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _short(name: str) -> str:
    """Return the short name of a host: of MPI and Slurm, one may use the short name and the other the full one."""
    return name.partition(".")[0]
