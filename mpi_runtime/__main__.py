"""Run a program on rank 0 alone, `mpirun -n 8 python -m mpi_runtime app.py`, or a verb of `mpi-runtime`.

Under plain `mpirun -n 8 python app.py` each rank runs app.py down to `init()`. Here all ranks but 0 become workers at
once and never see app.py. With `--exit-file FILE` before it, its exit code is left in a file (see slurm/script.py).
"""

import atexit
import contextlib
import os
import runpy
import signal
import sys
import types
from collections.abc import Iterator, Sequence

from mpi_runtime.cli.main import VERBS, help_text
from mpi_runtime.cli.main import main as run_verb
from mpi_runtime.config import environment
from mpi_runtime.processes.launch import detect

_OPTIONS = ("-h", "--help", "-V", "--version", "help")


def main(words: Sequence[str]) -> None:
    """Run what the words name; ends the process unless the program itself returns."""
    if not words or (words[0] in (*VERBS, *_OPTIONS) and not os.path.isfile(words[0])):
        sys.exit(run_verb(words))
    exit_file = ""
    if words[0] == "--exit-file":
        if len(words) < 3:
            sys.exit("mpi_runtime: --exit-file needs a file and a program")
        exit_file, words = words[1], words[2:]
    launch = detect(environment())
    # Where something is wrong, every rank ends and one says why.
    if launch.problem:
        sys.exit(f"mpi_runtime: {launch.problem}" if launch.rank == 0 else 1)
    if words[0] not in ("-m", "-c", "-") and not os.path.exists(words[0]):
        if launch.rank == 0:
            print(f"mpi_runtime: {words[0]!r} is neither a file nor a verb\n\n{help_text()}", file=sys.stderr)
        sys.exit(2)
    if launch.rank > 0:
        at_start = set(sys.modules)  # the program on rank 0 finds them loaded too, whatever names its own have
        from mpi_runtime.session import work

        work(at_start)
    with _leaving_exit_code(exit_file) if exit_file else contextlib.nullcontext():
        if launch.size != 1:
            atexit.register(_release_workers)
        run_program(words)


@contextlib.contextmanager
def _leaving_exit_code(path: str) -> Iterator[None]:
    """Leave the exit code of what runs inside in a file, after all that the program and the runtime do at their end.

    A process that is killed leaves none: that the file is there says that the program has come to its end.
    """
    codes = [1]

    def write() -> None:
        sys.stdout.flush()
        with open(path, "w") as file:
            file.write(f"{codes[-1]}\n")

    atexit.register(write)  # the first to be registered is the last to run
    try:
        yield
    except SystemExit as error:
        codes.append(0 if error.code is None else error.code & 0xFF if isinstance(error.code, int) else 1)
        raise
    except KeyboardInterrupt:
        codes.append(128 + signal.SIGINT)
        raise
    else:
        codes.append(0)


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
