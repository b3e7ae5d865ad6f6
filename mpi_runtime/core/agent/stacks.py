"""Reads the stacks of executors with py-spy, for somebody who looks at the job from another host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import partial

from mpi_runtime.core.host.spawn import start_helper, wait_for_end
from mpi_runtime.core.transport.poller import Poller

AT_A_TIME = 4
BYTES_MAX = 100_000
"""It must fit into an answer of the window."""


class Stacks:
    """The helpers of one rank that read stacks. The rank does not wait for them."""

    def __init__(self, poller: Poller, path: Sequence[str], report: Callable[[int, str], None]) -> None:
        """`path`: of modules, for the helpers. `report`: gets the process id and its stacks."""
        self._poller = poller
        self._path = path
        self._report = report
        self._helpers: dict[int, tuple[subprocess.Popen[bytes], int, bytearray]] = {}
        """By process id: the helper, the pipe of its answer, and what has arrived of it."""

    def read(self, pid: int) -> None:
        """Read the stacks of a process, unless it is being done, or too many are."""
        if pid in self._helpers or len(self._helpers) >= AT_A_TIME:
            return
        answer, theirs = os.pipe()
        code = (
            "import os; from mpi_runtime.show.stacks import stack; "
            f"text = stack({pid}).encode()[:{BYTES_MAX}]; os.fdopen({theirs}, 'wb').write(text)"
        )
        try:
            helper = start_helper(code, [theirs], self._path, own_session=True)
        finally:
            os.close(theirs)
        os.set_blocking(answer, False)
        self._helpers[pid] = helper, answer, bytearray()
        self._poller.add(answer, partial(self._on_answer, pid))

    def _on_answer(self, pid: int) -> None:
        _, answer, data = self._helpers[pid]
        part = os.read(answer, 1 << 16)
        data += part
        if not part:
            self._end(pid)
            text = data.decode(errors="replace")
            self._report(pid, text or "the helper that runs py-spy has died")

    def _end(self, pid: int) -> None:
        helper, answer, _ = self._helpers.pop(pid)
        self._poller.remove(answer)
        os.close(answer)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(helper.pid, signal.SIGKILL)  # with py-spy
        wait_for_end(helper)

    def close(self) -> None:
        """End the helpers."""
        for pid in list(self._helpers):
            self._end(pid)
