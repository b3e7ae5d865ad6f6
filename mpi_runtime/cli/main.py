"""The console script `mpi-runtime`. Each verb is a function that takes arguments and returns an exit code.

The module of a verb is imported only when the verb is called.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from mpi_runtime.core.client.interrupts import Interrupts, repeat_ignored
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.files.writing import is_full

if TYPE_CHECKING:
    from argparse import ArgumentParser

VERBS = {
    # verb: (where its function is, what it does). Beside the function is its parser, `run_parser` of the verb `run`.
    "run": ("mpi_runtime.cli.run:run", "start a program on N ranks with the installed MPI"),
    "batch": ("mpi_runtime.batch.cli.main:batch", "run the shell commands of a file, within the resources of the job"),
    "session": ("mpi_runtime.cli.session:session", "start a job that outlives its programs, show it, end it"),
    "whatif": ("mpi_runtime.whatif.cli:whatif", "estimate how long a batch or a job would take on other nodes"),
    "view": ("mpi_runtime.cli.view:view", "show a running job, a batch or a search in a browser"),
    "top": ("mpi_runtime.cli.running_job:top", "show a running job, from another terminal"),
    "list": (
        "mpi_runtime.cli.lists:list_",
        "list the actors, tasks, objects, nodes, groups or drivers of a running job",
    ),
    "logs": ("mpi_runtime.cli.lists:logs", "print the last lines of output of a running job"),
    "stack": ("mpi_runtime.cli.lists:stack", "print the stacks of the running calls of a job"),
    "timeline": ("mpi_runtime.cli.lists:timeline", "write the timeline of a running job, for Perfetto"),
    "gpus": ("mpi_runtime.cli.gpus:gpus", "show the GPUs that tasks on this host would use"),
    "doctor": ("mpi_runtime.cli.doctor:doctor", "show what each rank sees, and problems of the launch"),
    "replay": ("mpi_runtime.cli.replay:run", "repeat the decisions of a recorded job"),
    "journal": ("mpi_runtime.cli.journals:run", "show, verify or compact a journal"),
    "tune": ("mpi_runtime.tune.cli:run", "list, show and resume experiments of hyper-parameter search"),
    "rl": ("mpi_runtime.rl.cli:run", "train an algorithm of reinforcement learning, and run its episodes"),
    "submit": ("mpi_runtime.cli.slurm:submit", "submit a program to a batch system"),
    "status": ("mpi_runtime.cli.slurm:status", "show the state of a job of a batch system, and why it waits"),
    "template": ("mpi_runtime.cli.slurm:template", "print a batch script for Slurm to start from"),
    "completion": ("mpi_runtime.cli.completion:completion", "print a script with which a shell completes mpi-runtime"),
    "version": ("mpi_runtime.cli.main:version", "show versions and the MPI launcher"),
}

PROGRAMS = ("run", "tune", "rl")
"""The verbs that may run code of a user: Ctrl-C shows where that was."""

_HELP = """usage: mpi-runtime VERB [options]        (or: python -m mpi_runtime VERB [options])
       python -m mpi_runtime [--as-ray] app.py
                                         run app.py on rank 0 alone, workers on all other ranks

verbs:
{verbs}

mpi-runtime VERB --help shows the options of a verb."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the verb that is the first word and return its exit code. Default: the words of the command line."""
    words = sys.argv[1:] if words is None else words
    _open_closed_streams()
    codecs.register_error("mpi_runtime", _in_other_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="mpi_runtime")
    verb = words[0] if words else "--help"
    repeat_ignored()
    try:
        code = _perform(verb, words[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        if verb in PROGRAMS:
            raise
        return 130
    except (JournalError, LaunchError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__  # a verb may have made it an error of its own
        if isinstance(cause, BrokenPipeError) and _is_unread():
            _drop_output()
            return 128 + signal.SIGPIPE
        what = str(error)
        if isinstance(cause, FileNotFoundError) and _has_no_directory():
            what = "its working directory was removed, and nothing can be found or written there: cd to another one"
        elif isinstance(error, OSError):
            if not is_full(error):
                raise
            what = f"{error.filename or 'the output'} cannot be written: {error.strerror}"
        print(f"mpi-runtime {verb}: {what}", file=sys.stderr)
        _drop_output()
        return 2
    except ValueError as error:
        from mpi_runtime.slurm.allocation import AllocationError  # not at the top: each worker imports this file

        if not isinstance(error, AllocationError):
            raise
        print(f"mpi-runtime {verb}: {error}", file=sys.stderr)
        return 2
    return code


def _perform(verb: str, words: Sequence[str]) -> int:
    if verb in ("-h", "--help", "help"):
        print(_HELP.format(verbs="\n".join(f"  {verb:10} {what}" for verb, (_, what) in VERBS.items())))
        return 0
    verb = "version" if verb in ("-V", "--version") else verb
    if verb not in VERBS:
        print(f"mpi-runtime: there is no verb {verb!r}; {advice(verb)}", file=sys.stderr)
        return 2
    module, _, name = VERBS[verb][0].partition(":")
    with Interrupts():  # an import may lose Ctrl-C, see its module
        function: Callable[[Sequence[str]], int] = getattr(import_module(module), name)
    return function(words)


def _open_closed_streams() -> None:
    """Standard streams that are closed are empty. Otherwise other files would get their descriptors."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(opened, True)
    os.close(opened)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _has_no_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _drop_output() -> None:
    """What cannot be written goes nowhere, or the interpreter complains when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_unread() -> bool:
    """Whether nobody reads the output any more, as after `| head`."""
    output = select.poll()
    output.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _in_other_letters(error: UnicodeError) -> tuple[str, int]:
    """What a terminal of another encoding than UTF-8 shows: plain letters, or how Python writes the character."""
    assert isinstance(error, UnicodeEncodeError)
    plain = {"\u202f": " ", "\u2212": "-", "\u2013": "-", "µ": "u"}
    letters = error.object[error.start : error.end]
    return "".join(plain.get(one) or one.encode("unicode_escape").decode() for one in letters), error.end


def advice(word: str) -> str:
    """Return a suggestion for a word that is not a verb."""
    if os.path.isfile(word):
        return f"to run the program: mpi-runtime run -n N {word}"
    from difflib import get_close_matches  # not at the top: it is needed only after a mistake

    near = get_close_matches(word, VERBS, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(VERBS)}"


def version(words: Sequence[str]) -> int:
    """Print the versions for a problem report."""
    from importlib import metadata  # none of these at the top: they load 44 modules, and each worker imports this file

    from mpi_runtime.core.host.mpiexec import find_launcher
    from mpi_runtime.show.command_line import print_json

    as_json = version_parser().parse_args(words).json
    try:
        own = metadata.version("mpi-runtime")
    except metadata.PackageNotFoundError:
        own = "(not installed, running from a checkout)"
    launcher = find_launcher()
    if as_json:
        found = {"mpi_runtime": own, "python": sys.version.split()[0], "executable": sys.executable}
        start = {"version": launcher.version, "path": str(launcher.path)} if launcher else None
        print_json({**found, "launcher": start})
        return 0
    print(f"mpi-runtime {own}")
    print(f"Python {sys.version.split()[0]} ({sys.executable})")
    print(f"{launcher.version} ({launcher.path})" if launcher else "no MPI launcher found")
    return 0


def version_parser() -> ArgumentParser:
    """The arguments of `mpi-runtime version`."""
    from argparse import ArgumentParser

    from mpi_runtime.show.command_line import add_json

    parser = ArgumentParser(prog="mpi-runtime version", description="Show versions and the MPI launcher.")
    add_json(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
