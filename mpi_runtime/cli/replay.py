"""The verb `replay`: sends the recorded events of a job to a new scheduler, and compares its decisions."""

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.recording import NotARecordingError, Recording, replay


def run(words: Sequence[str]) -> int:
    """Replay recordings. Return 0 if all decisions are the same, 1 if one differs, 2 if a recording cannot be read."""
    return max(_replay(path) for path in replay_parser().parse_args(words).file)


def _replay(path: Path) -> int:
    try:
        if path.is_char_device():
            raise NotARecordingError("it is a device")
        recording = Recording(path.read_bytes())
    except (OSError, NotARecordingError) as error:
        text = f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        print(f"mpi-runtime replay: {path}: {text}", file=sys.stderr)
        return 2
    outcome = replay(recording, Scheduler())
    torn = f" (and {recording.torn} bytes of an entry that was cut off)" if recording.torn else ""
    print(f"{path}: {outcome}{torn}")
    if outcome.error is not None:
        traceback.print_exception(outcome.error)
    return int(bool(outcome.difference) or outcome.error is not None)


def replay_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime replay`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime replay",
        description="Replay recordings of jobs, made with MPI_RUNTIME_RECORD=FILE, and compare all decisions.",
    )
    parser.add_argument("file", nargs="+", type=Path)
    return parser
