"""Measures what is used on the host of a rank, while somebody looks at the job. Nothing is measured otherwise."""

from __future__ import annotations

import contextlib
import heapq
import os
import subprocess
import time
from collections.abc import Sequence

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.host.machine import read
from mpi_runtime.core.host.memory_usage import Memory
from mpi_runtime.core.host.spawn import start_helper, wait_for_end
from mpi_runtime.core.transport.messages import Measured
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.gpu.device import Measures
from mpi_runtime.scheduler.protocol.entries import HostUse

SIZES_MAX = 64
"""The most executors of a rank that are reported with their memory."""
PAGE = os.sysconf("SC_PAGE_SIZE")
OLD_S = 60.0
"""After a longer break the use of CPUs is not known, for it would be that of the break."""


class Meter:
    """Measures the host of one rank."""

    def __init__(self, rank: int, poller: Poller, vendor: str, uuids: Sequence[str], path: Sequence[str]) -> None:
        """`vendor`: the key of that of the GPUs that the job may use here. `path`: of modules, for the helper."""
        self._rank = rank
        self._memory = Memory()
        self._ticks = (0, 0)
        self._looked_s = 0.0
        self._gpus = GpuMeter(poller, vendor, uuids, path) if uuids else None

    def measure(self, host: bool, pids: Sequence[int]) -> Measured:
        """Return what is used now by these executors, and, if asked, on the host."""
        sizes = heapq.nlargest(SIZES_MAX, ((resident(pid), pid) for pid in pids))
        return Measured(self._rank, self._host() if host else None, [(pid, size) for size, pid in sizes if size])

    def _host(self) -> HostUse:
        now_s, (was_busy, was_whole) = time.monotonic(), self._ticks
        busy, whole = self._ticks = cpu_ticks()
        is_known = now_s - self._looked_s < OLD_S and whole > was_whole
        self._looked_s = now_s
        use = self._memory.fullest(())
        cpu = (busy - was_busy) / (whole - was_whole) if is_known else -1.0
        return HostUse(cpu, use.used, use.limit, self._gpus.last() if self._gpus is not None else [])

    def close(self) -> None:
        """End the helper that asks the driver, if there are GPUs."""
        if self._gpus is not None:
            self._gpus.end()


class GpuMeter:
    """The helper that asks the driver, which may hang: its last answer counts, and nobody waits for the next one."""

    def __init__(self, poller: Poller, vendor: str, uuids: Sequence[str], path: Sequence[str]) -> None:
        """Measure these GPUs. The helper starts with the first question."""
        self._poller = poller
        self._vendor = vendor
        self._uuids = list(uuids)
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._is_asked = False
        self._data = b""
        self._last: list[Measures] = []

    def last(self) -> list[Measures]:
        """Return the last answer, empty before the first, and ask again."""
        if self._process is None:
            self._start()
        if not self._is_asked:
            self._is_asked = True
            with contextlib.suppress(BrokenPipeError):  # it has just ended, which the poller notices
                os.write(self._questions, b"?")
        return self._last

    def _start(self) -> None:
        theirs, self._questions = os.pipe()
        self._answers, also_theirs = os.pipe()
        arguments = (theirs, also_theirs, self._vendor, self._uuids, configuration.machine_root())
        code = f"from mpi_runtime.gpu.finding import measure_often; measure_often(*{arguments!r})"
        self._process = start_helper(code, [theirs, also_theirs], self._path)
        os.close(theirs)
        os.close(also_theirs)
        os.set_blocking(self._answers, False)
        self._poller.add(self._answers, self._on_answer)
        self._is_asked = False

    def _on_answer(self) -> None:
        part = os.read(self._answers, 1 << 16)
        if not part:
            self.end()
            return
        self._data += part
        line, end, rest = self._data.partition(b"\n")
        if end:
            self._last, self._data, self._is_asked = msgspec.json.decode(line, type=list[Measures]), rest, False

    def end(self) -> None:
        """End the helper. It is killed, for it may hang in the driver."""
        if self._process is None:
            return
        process, self._process = self._process, None
        self._last, self._data = [], b""
        self._poller.remove(self._answers)
        os.close(self._answers)
        os.close(self._questions)
        process.kill()
        wait_for_end(process)


def cpu_ticks() -> tuple[int, int]:
    """Return the ticks in which the CPUs of this host were busy, and all ticks."""
    ticks = [int(word) for word in read("/proc/stat").partition("\n")[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def resident(pid: int) -> int:
    """Return the bytes of a process in memory; 0 if it has ended."""
    fields = read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE if len(fields) > 1 else 0
