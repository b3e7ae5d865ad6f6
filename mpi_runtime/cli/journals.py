"""The verb `journal`: shows, verifies and compacts a journal."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mpi_runtime.cli.main import on_directory
from mpi_runtime.journal import claim, upkeep
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Record
from mpi_runtime.scheduler.protocol.events import Kept


def run(words: Sequence[str]) -> int:
    """Run a verb. Return 1 if `verify` has found damage."""
    about = "Show a journal, the directory of init(journal=...). Jobs write it, and it can be deleted."
    return on_directory("journal", words, about, VERBS, "of the journal")


def show_runs(directory: Path) -> int:
    """Print a line for each run, and the number of calls of each function."""
    counts: Counter[str] = Counter()
    for segment in upkeep.read(directory):
        counts.update(record.name for record in segment.records)
        damage = f", {segment.damage.bytes} bytes cannot be read" if segment.damage.bytes else ""
        size = segment.path.stat().st_size
        states = f" and {len(segment.states)} states of actors" if segment.states else ""
        print(f"{segment.path.name}: {len(segment.records)} calls{states} in {size} bytes{damage}")
        if segment.notes:
            print(f"    {len(segment.notes)} events of an experiment: mpi-runtime tune show {directory}")
        for began in segment.began:
            print(f"    {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(began.time_s))} {began.job}")
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    job = claim.owner_of(directory)
    if job:
        print(f"in use by {job}")
    return 0


def show_calls(directory: Path) -> int:
    """Print a line for each call."""
    for segment in upkeep.read(directory):
        for body in segment.bodies:
            if isinstance(body, Record):
                print(f"{body.id.hex()} {body.name} took {body.duration_us / 1e6:.6f} s: {_values(body.values)}")
            elif isinstance(body, Checkpoint):
                calls = f"after {body.calls} calls" + (" and those of the state before" if body.base else "")
                print(f"{body.id.hex()} state of {body.name} {calls}: {_values([body.state])}")
    return 0


def _values(values: list[Kept]) -> str:
    return ", ".join(
        f"{value.size} bytes in {value.file}" if value.file else f"{len(value.data)} bytes" for value in values
    )


def verify(directory: Path) -> int:
    """Read all of it, and print the damage."""
    health = upkeep.verify(directory)
    for name in health.values_damaged:
        print(f"{name} is missing, or its bytes have changed")
    print(
        f"{health.calls} calls, {health.bytes_damaged} bytes that cannot be read, {health.values} values in files, "
        f"{len(health.values_damaged)} of them damaged"
    )
    if health.bytes_damaged or health.values_damaged:
        print("Damaged calls run again. `mpi-runtime journal compact` removes them.")
        return 1
    return 0


def compact(directory: Path) -> int:
    """Make it small."""
    before, after = upkeep.compact(directory)
    print(f"{before} bytes before, {after} after")
    return 0


VERBS: dict[str, tuple[Callable[[Path], int], str]] = {
    "list": (show_runs, "print the runs that have written it, and the number of calls of each function"),
    "show": (show_calls, "print each call, with its duration and the sizes of its values"),
    "verify": (verify, "read every record and every value, and report damage"),
    "compact": (compact, "make one file of all runs, with each call once, and remove unused values"),
}
