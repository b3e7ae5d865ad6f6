"""The verb `journal`: shows, verifies and compacts a journal."""

import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mpi_runtime.core.journal import upkeep
from mpi_runtime.files import claim
from mpi_runtime.files.segments import Began, Noted
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Record
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.show.command_line import directory_parser, on_directory, print_json
from mpi_runtime.show.numbers import plural


def run(words: Sequence[str]) -> int:
    """Run a verb. Return 1 if `verify` has found damage."""
    return on_directory(journal_parser(), words, VERBS)


def journal_parser() -> ArgumentParser:
    """The arguments of `mpi-runtime journal`."""
    about = "Show a journal, the directory of init(journal=...). Jobs write it, and it can be deleted."
    return directory_parser("journal", about, VERBS, "of the journal", silent=["compact"])


def show_runs(directory: Path, as_json: bool) -> int:
    """Print a line for each run, and the number of calls of each function."""
    counts: Counter[str] = Counter()
    files: list[dict[str, object]] = []
    for segment in upkeep.read(directory):
        records, states, starts = segment.of(Record), segment.of(Checkpoint), segment.of(Began)
        counts.update(record.name for record in records)
        size = segment.path.stat().st_size
        files.append({
            "file": segment.path.name,
            "bytes": size,
            "damaged_bytes": segment.damage.bytes,
            "calls": len(records),
            "states": len(states),
            "runs": [{"job": began.job, "begin": began.time_s} for began in starts],
        })  # fmt: skip
        if as_json:
            continue
        damage = f", {segment.damage.bytes} bytes cannot be read" if segment.damage.bytes else ""
        also = f" and {len(states)} states of actors" if states else ""
        print(f"{segment.path.name}: {plural(len(records), 'call')}{also} in {size} bytes{damage}")
        if notes := segment.of(Noted):
            print(f"    {len(notes)} events of an experiment: mpi-runtime tune show {directory}")
        for began in starts:
            print(f"    {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(began.time_s))} {began.job}")
    functions, job = dict(sorted(counts.items())), claim.living_owner_of(directory)
    if as_json:
        print_json({"files": files, "functions": functions, "used_by": job})
        return 0
    for name, count in functions.items():
        print(f"{count:8} {name}")
    if job:
        print(f"in use by {job}")
    return 0


def show_calls(directory: Path, as_json: bool) -> int:
    """Print a line for each call."""
    found: list[dict[str, object]] = []
    for body in (body for segment in upkeep.read(directory) for body in segment.bodies):
        if isinstance(body, Record):
            values, more = body.values, {"seconds": body.duration_us / 1e6}
            text = f"{body.name} took {body.duration_us / 1e6:.6f} s"
        elif isinstance(body, Checkpoint):
            values, more = [body.state], {"calls": body.calls}
            base = " and those of the state before" if body.base else ""
            text = f"state of {body.name} after {body.calls} calls{base}"
        else:
            continue
        if as_json:
            sizes = [value.size or len(value.data) for value in values]
            found.append({"id": body.id.hex(), "name": body.name, **more, "bytes": sizes})
        else:
            print(f"{body.id.hex()} {text}: {_values(values)}")
    if as_json:
        print_json(found)
    return 0


def _values(values: list[Kept]) -> str:
    return ", ".join(
        f"{value.size} bytes in {value.file}" if value.file else f"{len(value.data)} bytes" for value in values
    )


def verify(directory: Path, as_json: bool) -> int:
    """Read all of it, and print the damage."""
    health = upkeep.verify(directory)
    is_damaged = bool(health.damaged_bytes or health.damaged_values)
    if as_json:
        print_json(health)
        return int(is_damaged)
    for name in health.damaged_values:
        print(f"{name} is missing, or its bytes have changed")
    print(
        f"{health.calls} calls, {health.damaged_bytes} bytes that cannot be read, {health.values} values in files, "
        f"{len(health.damaged_values)} of them damaged"
    )
    if is_damaged:
        print("Damaged calls run again. `mpi-runtime journal compact` removes them.")
    return int(is_damaged)


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
