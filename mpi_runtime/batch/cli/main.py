"""The verb `batch`: what its words ask for, and the start of its ranks."""

import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from mpi_runtime.batch.cli.options import VERBS, batch_parser, read_options
from mpi_runtime.config import environment
from mpi_runtime.errors import LaunchError
from mpi_runtime.extend import (
    check_ranks,
    clear_sessions,
    detect,
    die_with_parent,
    environment_of_launcher,
    installed_launcher,
    launch_command,
)

__all__ = ["batch", "batch_parser"]  # shells complete a verb by the parser beside its function

_RELAY_BYTES = 1 << 16
_ON_RANK_0 = ("-m", "mpi_runtime", "-m", "mpi_runtime.batch")


def batch(words: Sequence[str]) -> int:
    """Run a batch: start its ranks, or become one of the ranks that a launcher has started. Or show a batch."""
    if words and words[0] in VERBS:
        from mpi_runtime.batch.cli.control import perform  # not at the top: a run does not need it

        return perform(words)
    if words and not os.path.exists(words[0]) and (near := get_close_matches(words[0], VERBS, 1)):
        raise LaunchError(f"there is no file {words[0]!r}; did you mean `mpi-runtime batch {near[0]}`?")
    options = read_options(words)
    check_ranks(options.ranks)
    if options.allocate:
        from mpi_runtime.batch.cli.allocated import allocate  # not at the top: a run does not need it

        return allocate(options)
    if options.max_failures is not None and options.max_failures < 0:
        raise LaunchError(f"--max-failures must be 0 or more, not {options.max_failures}")
    env = environment()
    launch = detect(env)
    is_rank = launch.size != 1
    if options.session and (is_rank or options.ranks != 1):
        raise LaunchError("--session: the batch runs on the ranks of the session: omit --ranks, and mpirun")
    if not is_rank and (options.check or (options.ranks == 1 and not options.hosts)):
        from mpi_runtime.batch.cli.running import run_batch  # not at the top: verbs and helps do not need it

        return run_batch(options)
    if options.file == "-":
        if launch.rank > 0:
            return 2
        if is_rank:
            raise LaunchError(
                "a launcher does not pass the end of standard input on to ranks: start them with "
                f"mpi-runtime batch -n {launch.size} -"
            )
        _relay_stdin()
    command = [sys.executable, *_ON_RANK_0, *words]
    if not is_rank:
        launcher = installed_launcher(options.mpi)
        clear_sessions(launcher)
        command = launch_command(launcher, command, options.ranks, options.hosts, False, env)
        env = environment_of_launcher(env)
    os.execve(command[0], command, env)
    raise AssertionError("execve does not return")


def _relay_stdin() -> None:
    """Give standard input an end that launchers pass on: a child copies it, and adds the line `END`."""
    from mpi_runtime.batch.run.stream import END  # not at the top, as above

    read, write = os.pipe()
    if os.fork():
        os.dup2(read, 0)
        os.close(read)
        os.close(write)
        return
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch handles it
        os.close(read)
        last = b"\n"
        while chunk := os.read(0, _RELAY_BYTES):
            os.write(write, chunk)
            last = chunk[-1:]
        os.write(write, (b"" if last == b"\n" else b"\n") + f"{END}\n".encode())
    finally:
        os._exit(0)
