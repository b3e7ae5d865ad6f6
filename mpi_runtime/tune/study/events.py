"""The events and orders of a study. Records only: a journal writes events as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mpi_runtime.tune.trial import BEGIN, Config, Point, Progress


class Reported(Struct, frozen=True, tag=True, omit_defaults=True):
    """A running trial has reported, and waits for its verdict. The study never looks into a checkpoint."""

    trial_id: str
    metrics: Mapping[Any, Any]
    """By names. Journals of earlier versions may have others than text, see `log.read`."""
    checkpoint: Point = None
    is_judged_later: bool = False
    """Whether `Judged` follows for its checkpoint."""


class Judged(Struct, frozen=True, tag=True):
    """A function of the program has judged a checkpoint of a training."""

    trial_id: str
    number: int
    """The number of the checkpoint."""
    metrics: Mapping[str, Any]
    """What it has found; they join those of the report."""
    status: str


class Ended(Struct, frozen=True, tag=True):
    """The function of a running trial has returned."""

    trial_id: str


class Failed(Struct, frozen=True, tag=True):
    """A running trial has raised an error."""

    trial_id: str
    error: object


class Crashed(Struct, frozen=True, tag=True):
    """The process of a running trial has died."""

    trial_id: str
    error: object


class Moved(Struct, frozen=True, tag=True):
    """A trial continues from another checkpoint than its last one. If it runs, that run is lost, and it runs again.

    Happens to trials when their experiment is resumed. It does not count as a failure.
    """

    trial_id: str
    checkpoint: Point = None
    at: Progress = BEGIN
    """How far the trial was there."""


class Revived(Struct, frozen=True, tag=True):
    """A trial that has failed for good, or has ended, runs again, with its failures forgotten."""

    trial_id: str


class Skipped(Struct, frozen=True, tag=True):
    """No trial that has not ended runs again. Of a grid or of random values, those still to come do not run either."""


class Sized(Struct, frozen=True, tag=True):
    """The number of trials that may run at a time from now on."""

    slots: int


class Woken(Struct, frozen=True, tag=True):
    """Time has passed."""


class Start(Struct, frozen=True):
    """Run a trial, from a checkpoint if there is one."""

    trial_id: str
    config: Config
    checkpoint: Point


class Continue(Struct, frozen=True):
    """Let the trial that has reported continue."""

    trial_id: str


class Fail(Struct, frozen=True):
    """End the run of a trial at its report, which cannot be judged, and send `Failed` next."""

    trial_id: str
    why: str


class Halt(Struct, frozen=True):
    """End the run of a trial: at the report that waits for its verdict, or at once."""

    trial_id: str
    paused_at: Progress | None = None
    """How far it is, if it continues later from the checkpoint that it makes at this end."""


Event = Reported | Judged | Ended | Failed | Crashed | Moved | Revived | Skipped | Sized | Woken
Order = Start | Continue | Fail | Halt
