"""The verb `journal`: shows, verifies and compacts a journal."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mpi_runtime.cli.facts import print_json
from mpi_runtime.cli.main import on_directory
from mpi_runtime.journal import claim, upkeep
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Record
from mpi_runtime.scheduler.protocol.events import Kept


def run(words: Sequence[str]) -> int:
    """Run a verb. Return 1 if `verify` has found damage."""
    about = "Show a journal, the directory of init(journal=...). Jobs write it, and it can be deleted."
    return on_directory("journal", words, about, VERBS, "of the journal", silent=["compact"])


def show_runs(directory: Path, as_json: bool) -> int:
    """Print a line for each run, and the number of calls of each function."""
    counts: Counter[str] = Counter()
    if as_json:
        print_json(_runs(directory))
        return 0
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
    job = claim.living_owner_of(directory)
    if job:
        print(f"in use by {job}")
    return 0


def _runs(directory: Path) -> dict[str, Any]:
    files, counts = list[dict[str, Any]](), Counter[str]()
    for segment in upkeep.read(directory):
        counts.update(record.name for record in segment.records)
        files.append({
            "file": segment.path.name,
            "bytes": segment.path.stat().st_size,
            "damaged_bytes": segment.damage.bytes,
            "calls": len(segment.records),
            "states": len(segment.states),
            "runs": [{"job": began.job, "begin": began.time_s} for began in segment.began],
        })  # fmt: skip
    return {"files": files, "functions": dict(sorted(counts.items())), "used_by": claim.living_owner_of(directory)}


def _calls(directory: Path) -> Iterator[dict[str, Any]]:
    for segment in upkeep.read(directory):
        for body in segment.bodies:
            if isinstance(body, Record):
                sizes = [value.size or len(value.data) for value in body.values]
                yield {"id": body.id.hex(), "name": body.name, "seconds": body.duration_us / 1e6, "bytes": sizes}
            elif isinstance(body, Checkpoint):
                size = body.state.size or len(body.state.data)
                yield {"id": body.id.hex(), "name": body.name, "calls": body.calls, "bytes": [size]}


def show_calls(directory: Path, as_json: bool) -> int:
    """Print a line for each call."""
    if as_json:
        print_json(list(_calls(directory)))
        return 0
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


def verify(directory: Path, as_json: bool) -> int:
    """Read all of it, and print the damage."""
    health = upkeep.verify(directory)
    if as_json:
        print_json({
            "calls": health.calls,
            "damaged_bytes": health.bytes_damaged,
            "values": health.values,
            "damaged_values": list(health.values_damaged),
        })  # fmt: skip
        return int(bool(health.bytes_damaged or health.values_damaged))
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


def compact(directory: Path, as_json: bool) -> int:
    """Make it small."""
    before, after = upkeep.compact(directory)
    print(f"{before} bytes before, {after} after")
    return 0


VERBS: dict[str, tuple[Callable[[Path, bool], int], str]] = {
    "list": (show_runs, "print the runs that have written it, and the number of calls of each function"),
    "show": (show_calls, "print each call, with its duration and the sizes of its values"),
    "verify": (verify, "read every record and every value, and report damage"),
    "compact": (compact, "make one file of all runs, with each call once, and remove unused values"),
}
