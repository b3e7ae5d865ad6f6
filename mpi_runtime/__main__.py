"""Run a program on rank 0 alone, `mpirun -n 8 python -m mpi_runtime app.py`, or a verb of `mpi-runtime`.

Under plain `mpirun -n 8 python app.py` each rank runs app.py down to `init()`. Here all ranks but 0 become workers at
once and never load app.py. With `--exit-file FILE` before it, its exit code is written to a file (slurm/script.py);
with `--as-ray` its `import ray` gives this runtime (as_ray/).
"""

from mpi_runtime import listings

with listings.for_all:  # all ranks of a job load them
    import atexit
    import contextlib
    import os
    import runpy
    import sys
    import types
    from collections.abc import Sequence

    from mpi_runtime.cli.main import VERBS, advice
    from mpi_runtime.cli.main import main as run_verb
    from mpi_runtime.config import environment
    from mpi_runtime.core.host.launch import detect
    from mpi_runtime.core.host.launchers import heed_plain_output, offer_ranks
    from mpi_runtime.errors.remote import show_errors

DOCTOR = ("-m", "mpi_runtime", "doctor")
_OPTIONS = ("-h", "--help", "-V", "--version", "help")


def main(words: Sequence[str]) -> None:
    """Run the program or verb; ends the process unless the program itself returns."""
    words = list(words)
    if not words or (words[0] in (*VERBS, *_OPTIONS) and not os.path.isfile(words[0])):
        sys.exit(run_verb(words))
    exit_file = ""
    as_ray = False
    while words[:1] in (["--exit-file"], ["--as-ray"]):
        as_ray = as_ray or words[0] == "--as-ray"
        if words[0] == "--exit-file":
            exit_file, words = "".join(words[1:2]), words[1:]
        words = words[1:]
        if not words:
            sys.exit("mpi_runtime: --exit-file needs a file and a program, --as-ray a program")
    launch = detect(environment())
    if tuple(words[:3]) == DOCTOR:  # it examines all ranks, so all run it
        with _leaving_exit_code(exit_file) if exit_file and not launch.rank else contextlib.nullcontext():
            sys.exit(run_verb(words[2:]))
    # After a mistake every rank ends, and rank 0 prints the reason.
    if launch.problem:
        sys.exit(f"mpi_runtime: {launch.problem}" if launch.rank == 0 else 1)
    if words[0] not in ("-m", "-c", "-") and not os.path.exists(words[0]):
        if launch.rank == 0:
            print(f"mpi_runtime: {words[0]!r} is neither a file nor a verb; {advice(words[0])}", file=sys.stderr)
        sys.exit(2)
    if launch.rank > 0:
        at_start = set(sys.modules)  # rank 0 has them loaded too, even if the program has modules of the same names
        from mpi_runtime.core.driver.session import work

        work(at_start)
    heed_plain_output()
    if as_ray:
        from mpi_runtime.as_ray import install_as_ray

        install_as_ray()
    with _leaving_exit_code(exit_file) if exit_file else contextlib.nullcontext():
        if launch.size != 1:
            offer_ranks()
            atexit.register(_release_workers)
        show_errors()
        run_program(words)


def _leaving_exit_code(path: str) -> contextlib.AbstractContextManager[None]:
    """Write the exit code of the program into a file, after everything that runs at the exit of Python."""
    from mpi_runtime.slurm import exit_file

    file = exit_file.current = exit_file.ExitFile(path)

    def close() -> None:
        head_handle = sys.modules.get("mpi_runtime.core.driver.head_handle")
        file.close(is_lost=head_handle is not None and head_handle.is_lost())

    atexit.register(close)  # registered first, so it runs last
    return file.around_program()


def _release_workers() -> None:
    from mpi_runtime.core.driver.session import release_workers

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
    """Run source as the main module, which stays in place until the process ends, as under plain Python."""
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
