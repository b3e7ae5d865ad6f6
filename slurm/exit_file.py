"""How a program that `submit` has started stands: a file that the program writes and the batch script reads.

It says "running", the process and its host as soon as SIGUSR1 can be taken; at the end the exit code, or "requeue":
then the script has Slurm start the job again. A program that is killed leaves "running", so the code proves that it
has come to its end. That the script requeues, when the ranks and their launcher have ended in order, is what keeps
their complaints about a kill out of the output.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

RUNNING, REQUEUE = "running", "requeue"
END_LIMIT_S = 10.0
"""How long a program that is to be requeued may take to end by itself: the batch system's kill takes longer."""


class ExitFile:
    """The file of this program."""

    def __init__(self, path: str) -> None:
        """Say that the program runs, and take SIGUSR1 from now on."""
        self._path = path
        self._code: str = "1"
        self.was_told = False
        """SIGUSR1 has come, and nobody else has taken it."""
        signal.signal(signal.SIGUSR1, self._on_usr1)
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts what is in its background so
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._write(f"{RUNNING} {os.getpid()} {os.uname().nodename}")

    def _on_usr1(self, number: int, frame: FrameType | None) -> None:
        self.was_told = True
        text = (
            "mpi-runtime: SIGUSR1 announces that the job's time ends, or a preemption. The program goes on: it has no "
            "callback of mpi_runtime.slurm.before_walltime(seconds, callback) that would save something.\n"
        )
        os.write(2, text.encode())  # print may be what was interrupted

    def _write(self, text: str) -> None:
        # At once whole: the script may read it at any time.
        temporary = f"{self._path}.new"
        Path(temporary).write_text(f"{text}\n")
        os.replace(temporary, self._path)

    @contextmanager
    def around_program(self) -> Generator[None]:
        """Note how what runs inside ends. A program that is to be requeued ends without a word."""
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
        """Leave the code: the last that the process does. A program that has failed with its job has none."""
        sys.stdout.flush()
        if not is_lost or self._code in ("0", REQUEUE):
            self._write(self._code)

    def requeue(self) -> None:
        """End the program and have the script requeue the job; returns if the program does not end.

        Its main thread is interrupted as by Ctrl-C.
        """
        self._code = REQUEUE
        main = threading.main_thread()
        signal.pthread_kill(main.ident or 0, signal.SIGINT)
        end_s = time.monotonic() + END_LIMIT_S
        while time.monotonic() < end_s:  # in slices: in the main thread the signal is taken in between
            time.sleep(0.05)


current: ExitFile | None = None
"""That of this process, if `submit` has started it."""


def read(path: Path) -> int | None:
    """Return the exit code in such a file; None: the program has not come to its end."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
