"""Finds the GPUs of a rank with a helper process, and shows executors theirs by environment variables.

The driver may take seconds, so the helper starts before the ranks meet, and its answer is read when they have met. If
there is no sign of a driver, no helper starts and nothing is loaded.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.host.spawn import start_helper, wait_for_end
from mpi_runtime.gpu.device import STATED, Device, Report

if TYPE_CHECKING:
    import subprocess

    from mpi_runtime.gpu.device import Visible
    from mpi_runtime.gpu.vendor import Vendor

PART_OF_START = 0.75
"""The driver may take this part of `start_timeout_s` (45 of 60 s). After that the job starts without GPUs. Without
persistence mode the driver takes 25 to 30 s to initialise the devices of a large node."""
_LATE = (
    ". Without persistence mode (nvidia-smi -q shows whether it is on) the driver may take half a minute on a large "
    "node; init(start_timeout_s=...) gives it three quarters of its time"
)


class Finder:
    """The helper of one job, from its start to its answer."""

    def __init__(self, path: Sequence[str]) -> None:
        """Start the helper, if there seems to be a driver. `path` is its module path."""
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = time.monotonic()
        wish, root = configuration.find_gpus(), configuration.machine_root()
        if wish == "never":
            return
        if wish == "auto":
            from mpi_runtime.gpu.vendor import vendors_with_signs

            if not vendors_with_signs(root):
                return
        self._answer, theirs = os.pipe()
        code = f"from mpi_runtime.gpu.finding import main; main({theirs}, {wish!r}, {root!r})"
        self._process = start_helper(code, [theirs], path)
        os.close(theirs)

    def report(self, limit_s: float) -> Report:
        """Wait for the helper's report. If it has none `limit_s` seconds after its start, the report has an error."""
        if self._process is None:
            return Report()
        data, is_late = self._read(self._started_s + limit_s)
        code = self.end(kill=is_late)
        if is_late:
            return Report(error=f"{self._asked()} did not answer within {limit_s:g} s{_LATE}")
        try:
            return msgspec.msgpack.decode(data, type=Report)
        except msgspec.DecodeError:
            return Report(error=f"the process that asked {self._asked()} ended with {code} and no answer")

    def _asked(self) -> str:
        """Name what was asked, for messages: drivers of other vendors have no library that is asked."""
        from mpi_runtime.gpu.vendor import NVIDIA, vendors_with_signs

        keys = vendors_with_signs(configuration.machine_root())
        return "the driver" if keys and NVIDIA.key not in keys else "NVML"

    def _read(self, deadline_s: float) -> tuple[bytes, bool]:
        """Return all that the helper writes, and whether it took too long."""
        data = b""
        while select.select([self._answer], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            part = os.read(self._answer, 1 << 16)
            if not part:
                return data, False
            data += part
        return data, True

    def end(self, kill: bool = True) -> int | None:
        """End the helper and return its exit code; None if there is no helper or it does not end."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        os.close(self._answer)
        if kill:
            process.kill()
        return wait_for_end(process)


class Gpus:
    """The GPUs of a rank in one job, for the head and for executors."""

    def __init__(self, finder: Finder | None, limit_s: float, stated: float | None, launcher: str) -> None:
        """Wait for the answer of the helper, until `limit_s` seconds after its start; None: this rank runs no calls.

        `stated`: the number of GPUs given to `init()`; None: none was given. `launcher`: its kind.
        """
        self._tokens: dict[str, str] = {}
        self._more: Mapping[str, str] = {}
        self._known: dict[str, Device] = {}
        self.report = Report()
        if finder is not None and stated == 0:
            finder.end()
        elif finder is not None:
            self.report = finder.report(limit_s)
        self._stated = int(stated or 0)
        if self.report.cards:
            self._narrow(launcher)

    def _narrow(self, launcher: str) -> None:
        """Keep only the devices that the environment allows."""
        from mpi_runtime.gpu import visibility

        environment = configuration.environment()
        self.report.error = visibility.not_told(self.report, environment)
        if self.report.error:
            self.report.devices = []
            return
        found: Visible = visibility.visible(self.report, environment)
        problems = [found.problem, visibility.trap(environment, launcher)]
        self.report.problems += [problem for problem in problems if problem]
        reserve = configuration.gpu_reserve()
        self.report.devices = [msgspec.structs.replace(device, reserve=reserve) for device in found.devices]
        self._tokens, self._more = found.tokens, found.more
        self._known = {device.uuid: device for device in self.report.devices}

    @property
    def stated(self) -> int:
        """The number given to `init()`, if no GPU was found and there was no error; else 0."""
        return 0 if self.report.cards or self.report.devices or self.report.error else self._stated

    @property
    def vendor(self) -> Vendor:
        """The vendor of the GPUs; if none was found, the one that was wished for, or whose variables tasks get."""
        from mpi_runtime.gpu.vendor import vendor

        return vendor(self.report.vendor or configuration.find_gpus())

    @property
    def limit(self) -> str:
        """A message, if variables hide devices that the stated number needs; else empty."""
        from mpi_runtime.gpu.visibility import restrictions

        count = len(self.report.devices)
        set_to = restrictions(self.report, configuration.environment())
        if not set_to or count >= min(self._stated, len(self.report.cards)):
            return ""
        return f"{set_to} leaves {count} of its {len(self.report.cards)} GPUs"

    def devices(self, uuids: Sequence[str]) -> list[Device]:
        """Return the devices with these UUIDs. Stated devices, which were not found, have no details."""
        return [self._known.get(uuid, Device(uuid, "stated, not found")) for uuid in uuids]

    def token(self, device: Device) -> str:
        """Return the name that a device has in its vendor's variable. It must be one that was found."""
        return self._tokens[device.uuid]

    def variables(self, uuids: Sequence[str]) -> Mapping[str, str]:
        """Return the environment variables that show an executor these devices and no others."""
        from mpi_runtime.gpu.vendor import variables

        if uuids and uuids[0].startswith(STATED):
            from mpi_runtime.gpu.visibility import stated_tokens

            tokens = stated_tokens(self.vendor, configuration.environment(), self._stated)
            return {self.vendor.variable: ",".join(tokens[int(uuid.removeprefix(STATED))] for uuid in uuids)}
        return variables(self.vendor, [self._tokens[uuid] for uuid in uuids], self._more)
