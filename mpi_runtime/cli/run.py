"""The verb `run`: starts a Python program on N ranks with the installed MPI.

This process becomes the launcher (exec), so signals and the exit code are the launcher's own. With `--restarts` and
`--fault-tolerant` it stays beside the launcher (`restarts.py`).
"""

import argparse
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from mpi_runtime.cli import restarts
from mpi_runtime.config import JOURNAL, PLAIN_OUTPUT, environment
from mpi_runtime.core.host.launchers import environment_of_launcher
from mpi_runtime.core.host.machine import little_room
from mpi_runtime.core.host.mpiexec import check_ranks, installed_launcher, launch_command
from mpi_runtime.core.host.open_mpi import broken_settings, clear_sessions
from mpi_runtime.errors import LaunchError
from mpi_runtime.files.private import make_directory
from mpi_runtime.show.command_line import path
from mpi_runtime.slurm import exit_file
from mpi_runtime.slurm.allocation import from_environment

_WITH_VALUE = ("-n", "-np", "--ranks", "--mpi", "--hosts", "--journal", "--restarts")
ARGUMENT_BYTES_MAX = (32 << 12) - 1
"""Linux: MAX_ARG_STRLEN, 32 pages with the zero at the end."""
_PROGRAM_BEGINS = ("-m", "-c", "-", "--")
_TAKE_INPUT = """[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] && exec <"$0"; exec "$@\""""
"""For a shell: rank 0 opens its input, and each becomes the program."""


def run(words: Sequence[str]) -> int:
    """Start the program. This process becomes the launcher, or watches it."""
    own, program = split(words)
    options = run_parser().parse_args(own)
    check_ranks(options.ranks)
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
    if not os.isatty(1):
        env[PLAIN_OUTPUT] = "1"
    starts_ranks = options.ranks > 1 or options.hosts is not None
    file = None
    if options.restarts:
        file = folder / f"exit-{os.getpid()}"
    elif options.fault_tolerant and starts_ranks and not options.dry_run:
        if options.journal:
            _make_journal(folder)
        file = _exit_file(options.hosts, folder, env)
    arguments = python_command(program, options.as_ray, str(file or ""))
    launcher = installed_launcher(options.mpi) if starts_ranks else None
    if launcher is not None and program[0] == "-" and not options.dry_run:
        flags = ["--as-ray"] * options.as_ray + (["--exit-file", str(file)] if file else [])
        arguments = python_command(["-m", "mpi_runtime", *flags, "-c", read_program(sys.stdin), *program[1:]])

    def command(hosts: str | None) -> list[str]:
        if launcher is None:
            return arguments
        return launch_command(launcher, arguments, options.ranks, hosts, options.fault_tolerant, env)

    if not options.as_ray and find_spec("ray") is None and _imports_ray(program[0]):
        note = f"{program[0]} imports ray, which is not installed: with --as-ray `import ray` gives mpi_runtime"
        print(f"mpi-runtime run: {note}", file=sys.stderr, flush=True)
    if options.dry_run:
        print(shlex.join(command(options.hosts)))
        return 0
    if launcher is not None:
        clear_sessions(launcher)
    inner = environment_of_launcher(env)  # without the variables of a launcher around us, which would mislead this one
    if launcher is not None and launcher.kind == "openmpi" and (finding := broken_settings(inner)):
        problem = f"{finding.what}; {finding.cure}"
        is_doctor = "-m mpi_runtime doctor" in " ".join(arguments)  # it starts no MPI, and names the problem itself
        if options.hosts is None and not is_doctor:  # the ranks would fail here, and prterun might never end then
            raise LaunchError(problem)
        print(f"mpi-runtime: {problem}", file=sys.stderr, flush=True)
    nodes = {name.partition(".")[0] for name in from_environment(env).nodes}
    is_here = options.hosts is None and nodes <= {os.uname().nodename.partition(".")[0]}
    if launcher is not None and launcher.kind != "other" and is_here:
        arguments = with_input(arguments)
    if launcher is not None and options.hosts is None and (room := little_room()):
        print(f"mpi-runtime run: {room}. If the ranks do not start, this may be why", file=sys.stderr, flush=True)
    if file is None:
        found = command(options.hosts)
        os.execve(found[0], found, inner)
    if options.restarts:
        _make_journal(folder)
    try:
        return restarts.run(command, options.ranks, options.hosts, inner, file, options.restarts)
    finally:
        if not file.is_relative_to("/proc"):
            exit_file.forget(file)


def _imports_ray(program: str) -> bool:
    """Whether a program is a file with a line that imports Ray."""
    try:
        text = Path(program).read_text(errors="replace")
    except OSError:  # a word such as -m, or a file that cannot be read
        return False
    return re.search(r"^\s*(import|from) ray\b", text, re.MULTILINE) is not None


def _make_journal(folder: Path) -> None:
    try:
        make_directory(folder)
    except OSError as error:
        raise LaunchError(f"the journal {folder} cannot be used: {error.strerror}") from error


def _exit_file(hosts: str | None, folder: Path, env: Mapping[str, str]) -> Path | None:
    """Return the exit file of the program: in memory, if it runs on this host. None: no place is writable."""
    if hosts is None and not from_environment(env).nodes:
        return Path(f"/proc/{os.getpid()}/fd/{os.memfd_create('mpi_runtime exit')}")
    return folder / f".mpi_runtime-exit-{os.uname().nodename}-{os.getpid()}" if os.access(folder, os.W_OK) else None


def read_program(file: TextIO) -> str:
    """Return the program on the standard input, which the ranks get as an argument.

    Ranks cannot read it themselves: the mpirun of Open MPI 5.0.11 was seen not to forward the end of the input.
    """
    source = file.read(ARGUMENT_BYTES_MAX + 1)
    if len(os.fsencode(source)) > ARGUMENT_BYTES_MAX:
        raise LaunchError(
            f"the program on the standard input has more than {ARGUMENT_BYTES_MAX} bytes, the most that a command can "
            "have as one argument. Write it into a file, and name that."
        )
    return source


def with_input(arguments: list[str]) -> list[str]:
    """Return a command of ranks of this host, by which rank 0 has the standard input of this process, if it is data.

    Rank 0 opens it itself. The mpirun of Open MPI 5.0.11 was seen not to forward the end of the input: a program that
    reads it would wait for ever. That of MPICH 5.0.2 was seen to end the job if 64 KiB are not read at once.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # it is closed
        return arguments
    # A file is opened at its beginning. In the middle of one, as in a loop of the shell, the input is for others too.
    if not stat.S_ISFIFO(mode) and not (stat.S_ISREG(mode) and os.lseek(0, 0, os.SEEK_CUR) == 0):
        return arguments
    kept, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(kept, True)
    os.dup2(empty, 0)
    os.close(empty)
    return ["/bin/sh", "-c", _TAKE_INPUT, f"/proc/{os.getpid()}/fd/{kept}", *arguments]


def split(words: Sequence[str], with_value: Collection[str] = _WITH_VALUE) -> tuple[list[str], list[str]]:
    """Split words into the options of a verb, some of which take a value, and the program with all words after it."""
    index = 0
    while index < len(words):
        word = words[index]
        if word in _PROGRAM_BEGINS or not word.startswith("-"):
            break
        index += 2 if word in with_value else 1
    return list(words[:index]), list(words[index + (words[index : index + 1] == ["--"]) :])


def python_command(program: Sequence[str], as_ray: bool = False, exit_file: str = "") -> list[str]:
    """Return the command of one rank.

    `program`: a script, `-m module`, `-c code` or `-` (standard input), with its arguments. `exit_file`: the file for
    its exit code; empty: none.
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


def run_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime run`."""
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
    parser.add_argument("--mpi", choices=("openmpi", "mpich", "intel"), help="use the launcher of this MPI")
    parser.add_argument("--hosts", metavar="A[:RANKS],B...", help="start the ranks on these hosts (by ssh)")
    parser.add_argument(
        "--fault-tolerant", action="store_true",
        help="with Open MPI 5: start it with ULFM, so that the job survives the loss of worker ranks; rules out UCX, "
        "so no fast networks and no messages from device memory; a rank that fails before init() ends the job late",
    )  # fmt: skip
    parser.add_argument("--journal", type=path, metavar="DIR", help="record finished calls: docs/guides/journal.md")
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
