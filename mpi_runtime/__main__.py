"""Run a program on rank 0 alone, `mpirun -n 8 python -m mpi_runtime app.py`, or a verb of `mpi-runtime`.

Under plain `mpirun -n 8 python app.py` each rank runs app.py down to `init()`. Here all ranks but 0 become workers at
once and never see app.py.
"""

import atexit
import os
import runpy
import sys
import types
from collections.abc import Sequence

from mpi_runtime.cli.main import VERBS, help_text
from mpi_runtime.cli.main import main as run_verb
from mpi_runtime.config import environment
from mpi_runtime.processes.launch import detect

_OPTIONS = ("-h", "--help", "-V", "--version", "help")


def main(words: Sequence[str]) -> None:
    """Run what the words name; ends the process unless the program itself returns."""
    if not words or (words[0] in (*VERBS, *_OPTIONS) and not os.path.isfile(words[0])):
        sys.exit(run_verb(words))
    launch = detect(environment())
    # Where something is wrong, every rank ends and one says why.
    if launch.problem:
        sys.exit(f"mpi_runtime: {launch.problem}" if launch.rank == 0 else 1)
    if words[0] not in ("-m", "-c", "-") and not os.path.exists(words[0]):
        if launch.rank == 0:
            print(f"mpi_runtime: {words[0]!r} is neither a file nor a verb\n\n{help_text()}", file=sys.stderr)
        sys.exit(2)
    if launch.rank > 0:
        from mpi_runtime.session import work

        work()
    if launch.size != 1:
        atexit.register(_release_workers)
    run_program(words)


def _release_workers() -> None:
    from mpi_runtime.session import release_workers

    release_workers()


def run_program(words: Sequence[str]) -> None:
    """Run a script, `-m module`, `-c code` or `-` with `sys.argv` and `sys.path` as Python itself would set them."""
    program, *arguments = words
    if program == "-m":
        if not arguments:
            sys.exit("mpi_runtime: -m needs the name of a module")
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    sys.argv[:] = words
    if program == "-c":
        if not arguments:
            sys.exit("mpi_runtime: -c needs code")
        del sys.argv[1]
        _set_first_path("")
        _run_source(arguments[0], "<string>")
    elif program == "-":
        _set_first_path("")
        _run_source(sys.stdin.read(), "<stdin>", __file__="<stdin>")
    elif os.path.isdir(program) or program.endswith((".pyc", ".pyz", ".zip")):
        runpy.run_path(program, run_name="__main__")
    else:
        _set_first_path(os.path.dirname(os.path.realpath(program)))
        path = os.path.abspath(program)
        with open(path, "rb") as file:
            source = file.read()
        _run_source(source, path, __file__=path)


def _run_source(source: str | bytes, name: str, **contents: str) -> None:
    """Run source as the main module, which it stays until the process ends, as it would under plain Python."""
    module = types.ModuleType("__main__")
    vars(module).update(contents)
    sys.modules["__main__"] = module
    exec(compile(source, name, "exec", dont_inherit=True), vars(module))


def _set_first_path(directory: str) -> None:
    """Put the program's directory where `python -m` has put the working directory, unless Python puts none."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = directory


if __name__ == "__main__":
    main(sys.argv[1:])
