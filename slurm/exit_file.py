"""The exit file: the state of a program that `submit` started. The program writes it, the batch script reads it.

The file has "running", the pid and the host as soon as the program can handle SIGUSR1. At the end it has the exit code,
or "requeue": then the script makes Slurm start the job again. A program that ends because its job was lost writes
"lost" in place of "running", and one that is killed leaves "running". So an exit code proves that the program ran to
its end. The script requeues only after the ranks and their launcher have ended in order: otherwise Slurm would kill
them, and their error messages would be in the output.

`mpi-runtime run` reads such files too. On one host it has one in memory, at /proc/PID/fd/NUMBER.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

RUNNING, LOST, REQUEUE = "running", "lost", "requeue"
END_LIMIT_S = 10.0
"""Seconds that a program that is to be requeued may take to end by itself. A kill by the batch system takes longer."""


class ExitFile:
    """The exit file of this program."""

    def __init__(self, path: str) -> None:
        """Write that the program runs, and handle SIGUSR1 from now on."""
        self.path = path
        self._code: str = "1"
        self.was_told = False
        """Whether SIGUSR1 came before `before_walltime` installed its own handler."""
        signal.signal(signal.SIGUSR1, self._on_usr1)
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # shells start background processes in this state
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._write_process(RUNNING)

    def _on_usr1(self, number: int, frame: FrameType | None) -> None:
        self.was_told = True
        text = (
            "mpi-runtime: SIGUSR1 announces that the job's time ends, or a preemption. The program continues: it has "
            "no callback of mpi_runtime.slurm.before_walltime(seconds, callback) that would save results.\n"
        )
        os.write(2, text.encode())  # not print: the signal may have interrupted a print

    def _write_process(self, state: str) -> None:
        self._write(f"{state} {os.getpid()} {os.uname().nodename}")

    def _write(self, text: str) -> None:
        if self.path.startswith("/proc/"):
            with suppress(OSError):  # its reader is gone
                Path(self.path).write_text(f"{text}\n")
            return
        # Replaced atomically: the script may read it at any time.
        temporary = f"{self.path}.new"
        Path(temporary).unlink(missing_ok=True)  # of a killed program, or a symbolic link, which "x" does not follow
        with open(temporary, "x") as file:
            file.write(f"{text}\n")
        os.replace(temporary, self.path)

    @contextmanager
    def around_program(self) -> Generator[None]:
        """Record the exit code of the program that runs in this context. A program to be requeued ends silently."""
        try:
            yield
        except SystemExit as error:
            self._note(0 if error.code is None else error.code & 0xFF if isinstance(error.code, int) else 1)
            raise
        except KeyboardInterrupt:
            if self._code == REQUEUE:
                raise SystemExit(0) from None
            self._note(128 + signal.SIGINT)
            raise
        else:
            self._note(0)

    def _note(self, code: int) -> None:
        if self._code != REQUEUE:
            self._code = str(code)

    def close(self, is_lost: bool) -> None:
        """Write the exit code, at the very end of the process. If the job is lost, only 0 and requeue are written."""
        sys.stdout.flush()
        if is_lost and self._code not in ("0", REQUEUE):
            self._write_process(LOST)
        else:
            self._write(self._code)

    def requeue(self) -> None:
        """End the program and have the script requeue the job.

        The main thread is interrupted as by Ctrl-C. Returns if the program has not ended after `END_LIMIT_S`.
        """
        self._code = REQUEUE
        main = threading.main_thread()
        signal.pthread_kill(main.ident or 0, signal.SIGINT)
        end_s = time.monotonic() + END_LIMIT_S
        while time.monotonic() < end_s:  # in short sleeps: the main thread handles signals between them
            time.sleep(0.05)


current: ExitFile | None = None
"""The exit file of this process, if `submit` has started it."""


def read(path: Path) -> int | None:
    """Return the exit code in an exit file; None: the program has not run to its end."""
    text = _text(path)
    return int(text) if text.isdecimal() else None


def running(path: Path) -> tuple[int, str] | None:
    """Return the process and the host of a program that has not run to its end; None: it has, or has not begun."""
    words = _text(path).split()
    return (int(words[1]), words[2]) if len(words) == 3 and words[0] in (RUNNING, LOST) else None


def is_lost(path: Path) -> bool:
    """Whether a program has ended, with an error message, because its job was lost."""
    return _text(path).startswith(LOST)


def forget(path: Path) -> None:
    """Empty an exit file."""
    if path.is_relative_to("/proc"):
        path.write_text("")
    else:
        path.unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
