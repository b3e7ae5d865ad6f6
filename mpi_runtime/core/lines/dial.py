"""One attempt to reach a session by ssh or srun."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import threading
import time

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.host.process_tree import die_with_parent
from mpi_runtime.core.lines import end as lines
from mpi_runtime.core.lines.commands import DIAL_LIMIT_S, Way, environment_for, explained
from mpi_runtime.core.lines.end import Opening
from mpi_runtime.core.lines.numbered import OPEN, REFUSED, LineError
from mpi_runtime.core.lines.pipe import GONE

ERRORS_MAX = 1 << 13
"""The last bytes that a command wrote to its standard error, for messages."""


class Dial:
    """One attempt to reach the session, in a thread of its own; the process is a child of the main thread."""

    def __init__(self, way: Way, opening: Opening, done: queue.SimpleQueue[Dial], wakes: socket.socket) -> None:
        self.way = way
        self._opening = opening
        self.problem = ""
        self.is_final = False
        """Whether no further attempt can succeed."""
        self.received = 0
        """What the other end has received."""
        self._said = b""
        self.process = subprocess.Popen(
            way.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env=environment_for(configuration.environment()), start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.going, self.coming = os.dup(self.process.stdin.fileno()), os.dup(self.process.stdout.fileno())
        self.process.stdin.close()
        self.process.stdout.close()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        threading.Thread(target=self._run, args=(done, wakes), daemon=True).start()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self.process.stderr.fileno(), 1 << 12):
                self._said = (self._said + data)[-ERRORS_MAX:]

    def _run(self, done: queue.SimpleQueue[Dial], wakes: socket.socket) -> None:
        try:
            self._open()
        except LineError as error:
            self.problem = self._explained(str(error))
        done.put(self)
        with contextlib.suppress(OSError):
            wakes.send(b"\0")

    def _open(self) -> None:
        until_s, before = time.monotonic() + DIAL_LIMIT_S, b""
        while not before.endswith(lines.MAGIC):
            before = (before + lines.read_some(self.coming, 1 << 12, until_s))[-ERRORS_MAX:]
        lines.write_frame(self.going, OPEN, msgspec.msgpack.encode(self._opening))
        frame = lines.read_frame(self.coming, DIAL_LIMIT_S)
        if frame.kind == REFUSED:
            self.is_final = True
            raise LineError(frame.payload.decode())
        try:
            opening = msgspec.msgpack.decode(frame.payload, type=Opening)
        except msgspec.MsgspecError as error:
            raise LineError(f"its first frame cannot be read: {error}") from error
        if frame.kind != OPEN or opening.epoch != self._opening.epoch:
            raise LineError("its first frame is not its opening")
        self.received = opening.received

    def _explained(self, problem: str) -> str:
        if self.is_final:
            return problem
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.is_final = self.process.wait(1.0) == GONE
        self._reader.join(1.0)
        return explained(self.way, problem, self._said.decode(errors="replace"))

    def close(self, grace_s: float = 0.0) -> None:
        """End the command, which may end by itself before. Its descriptors are the caller's."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace_s)
        self.process.kill()
        self.process.wait()
        self._reader.join(1.0)
        if self.process.stderr is not None:
            self.process.stderr.close()
