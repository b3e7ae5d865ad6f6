"""`ScalingConfig(num_workers=0)`: the function runs in the process of the program, for example in a debugger."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mpi_runtime.train.worker import Loop, WorkerRun, keep_return_value, takes_config
from mpi_runtime.tune import Checkpoint, Result, RunConfig
from mpi_runtime.tune.extend import (
    GangRequest,
    Report,
    Saved,
    Trial,
    TrialStart,
    enter_trial,
    folder,
    trial_run_or_none,
)


class _Place(NamedTuple):
    rank: int = 0
    size: int = 1
    hosts: tuple[int, ...] = (0,)


class LocalRun(WorkerRun):
    """The run of the only worker. Its reports go nowhere."""

    def __init__(self, start: TrialStart, loop: Loop, datasets: Mapping[str, Any]) -> None:
        super().__init__(start, 0.0, _Place(), datasets, loop)
        self.reports: list[tuple[Report, Saved | None]] = []

    def send(
        self, metrics: Report, saved: Saved | None, odd: str, beside: object = None, is_judged_later: bool = False
    ) -> bool:
        """Note a report."""
        self.iteration += 1
        self.reports.append((metrics, saved))
        return True

    @property
    def kept(self) -> list[tuple[Checkpoint, Report]]:
        """The checkpoints until now, each with its report."""
        place = self.start.directory
        return [(saved.opened(place), report) for report, saved in self.reports if saved is not None]

    def exchange(self, part: bytes) -> list[bytes]:
        """There are no others."""
        return [part]


def new_name(kind: str) -> str:
    """The name of a training without one."""
    return f"{kind}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"


def run_here(loop: Loop, datasets: Mapping[str, Any], run: RunConfig) -> Result:
    """Run the function of a trainer in this process. Its errors are raised as they are."""
    name = str(run.name)
    directory = os.fspath(folder(run.storage_path, run.storage_filesystem) / name)
    start = TrialStart(name, 0, {}, None, 0, 0, name, directory, GangRequest([{}]))
    here, before = LocalRun(start, loop, datasets), trial_run_or_none()
    os.makedirs(directory, exist_ok=True)
    enter_trial(here)
    try:
        keep_return_value(
            Path(directory), loop.function(loop.config) if takes_config(loop.function) else loop.function()
        )
    finally:
        enter_trial(before)
    kept = here.kept
    last, checkpoint = here.reports[-1][0] if here.reports else {}, kept[-1][0] if kept else None
    return Result(last, checkpoint, None, directory, kept, name, dict(loop.config), status=Trial.TERMINATED)
