"""Streams of rows beside Ray Data: memory, throughput, time to the first batch. `python -m benchmarks.data [SHAPE ...]`

    .venv-data/bin/python -m benchmarks.data --ray PYTHON          (all of it; about 8 minutes on two free CPUs)
    .venv-data/bin/python -m benchmarks.data flat --seconds 60     (10 runs of a minute with --ray, 5 without)

Run it with an interpreter that has pyarrow and Pillow; `--ray` names one that has `ray[data]` too. It ends with a table
in Markdown. Memory is the sum of Pss of all processes of a run, so shared memory counts once; it is looked at four
times a second. *Growth* is the memory beyond what its processes have when they have started and loaded the libraries;
of a process that starts later, what the others had then.

- `flat`: a stage of 20 ms behind a fast reader. Is the memory after 5 s (or a third of the time, if that is earlier) at
  most what it was before? With blocks of 1 MB, 1 kB and `--large` MB, in order, and with one block that takes a third
  of the time.
- `parquet`: files are decoded, wait 20 ms a batch, and are written. *Data in flight* is the most that the store has
  held, and one block for each task that may run, as large as the largest that was written.
- `readers`: the same with files of each other kind, of `--gigabytes` for each, without the decoding. Of images only the
  number of rows is written.
- `images`: files of 640 x 480 are resized and labelled by a model of one layer, beside a pool of processes.
- `first`: the time to the first batch of a first data set and of a second one in a job.
- `whole`: a sort and a shuffle of four times the store, over disk.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data_files import MAKERS
from benchmarks.processes import descendants

PROGRAM = Path(__file__).parent / "systems" / "data_shapes.py"
SAMPLE_S = 0.25
SETTLES_S = 5.0
ROWS_LEAST = 10
MB = 1_000_000
TASKS_OF_CPU = 2
"""Tasks of `parquet` have half a CPU each."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""One thread for each process. Runtimes set this themselves; a pool by hand would be several times slower without."""
LOADED = {"read_images": ("PIL.JpegImagePlugin",)}
"""Libraries of a reader, which do not count as data."""
FLATS: dict[str, dict[str, Any]] = {
    "blocks of 1 MB": {"size": MB},
    "in order": {"size": MB, "ordered": True},
    "in order, one slow block": {"size": MB, "ordered": True, "slow": True},
    "blocks of 1 kB": {"size": 1000},
    "large blocks": {"size": 0},
}


class Sample(NamedTuple):
    """Memory at a time, in bytes."""

    at: float
    private: dict[int, int]
    """Of each process, by its id."""
    shared: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.private.values()) + self.shared


class Ran(NamedTuple):
    """What a run has said, and the memory of its processes."""

    events: list[dict[str, Any]]
    samples: list[Sample]

    def event(self, name: str) -> dict[str, Any]:
        """The last event with a name."""
        return [event for event in self.events if event["event"] == name][-1]

    def between(self, begin: float, end: float) -> list[Sample]:
        """The samples of a time."""
        return [sample for sample in self.samples if begin <= sample.at <= end]

    def growth(self) -> int:
        """The most memory while the data set ran, beyond what its processes needed before."""
        ready = self.event("ready")
        before = (self.between(ready["at"] - 1.0, ready["at"]) or self.samples[:1])[-1].private
        floor = statistics.median(before.get(pid, 0) for pid in ready["workers"])
        running = self.between(self.event("begun")["at"], self.event("ended")["at"])
        return max(
            one.shared + sum(int(max(0, size - before.get(pid, floor))) for pid, size in one.private.items())
            for one in running
        )

    def seconds(self) -> float:
        """How long the data set ran."""
        return float(self.event("ended")["at"] - self.event("begun")["at"])


def sampled(top: int) -> Sample:
    """The memory of a process and of all below it."""
    private: dict[int, int] = {}
    shared = 0
    for pid in [top, *descendants(top)]:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("Pss_Anon", "Pss_File"):
                    private[pid] = private.get(pid, 0) + int(value.split()[0]) * 1024
                elif name == "Pss_Shmem":
                    shared += int(value.split()[0]) * 1024
    return Sample(time.monotonic(), private, shared)


def run(python: str, system: str, shape: str, given: dict[str, Any], limit_s: float) -> Ran:
    """Run a shape, and watch its memory. One that takes too long is ended."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [python, str(PROGRAM), system, shape, json.dumps(given)],
            stdout=output,
            stderr=errors,
            text=True,
            env=os.environ | dict.fromkeys(THREADS, "1"),
        )
        samples = []
        end = time.monotonic() + limit_s
        while process.poll() is None and time.monotonic() < end:
            samples.append(sampled(process.pid))
            time.sleep(SAMPLE_S)
        if process.poll() is None:
            process.terminate()
        process.wait()
        output.seek(0)
        errors.seek(0)
        events = [json.loads(line) for line in output if line.startswith("{")]
        if process.returncode:
            sys.stderr.write(errors.read()[-3000:])
            print(f"{system}: {shape} has ended with exit code {process.returncode}")
        return Ran(events, samples)


TABLE: dict[str, dict[str, str]] = {}
"""What was measured, by system."""


def note(measure: str, system: str, text: str) -> None:
    """Keep a line of the table, and show it."""
    TABLE.setdefault(measure, {})[system] = text
    print(f"{measure:48} {system:12} {text}", flush=True)


def table() -> str:
    """What was measured, in Markdown."""
    names = list(dict.fromkeys(system for found in TABLE.values() for system in found))
    lines = [f"| measure | {' | '.join(names)} |", f"| --- {'| ---: ' * len(names)}|"]
    lines += [f"| {name} | {' | '.join(found.get(one, '-') for one in names)} |" for name, found in TABLE.items()]
    return "\n".join(lines)


def systems(chosen: argparse.Namespace) -> dict[str, str]:
    """The systems to be measured, each with its interpreter."""
    found = {"mpi_runtime": sys.executable}
    return {**found, "ray": chosen.ray} if chosen.ray else found


def flat(chosen: argparse.Namespace) -> None:
    """Whether memory is flat."""
    for name, wanted in FLATS.items():
        for system, python in systems(chosen).items():
            given = {"cpus": chosen.cpus, "store": chosen.store * MB, "seconds": chosen.seconds, **wanted}
            given["size"] = given["size"] or chosen.large * MB
            ran = run(python, system, "flat", given, 3 * chosen.seconds + 60)
            if not is_whole(ran):
                continue
            if ran.event("ended")["rows"] < ROWS_LEAST:
                print(f"flat, {name:26} {system:12} has hardly begun: give it more --seconds", flush=True)
                continue
            began, ended = ran.event("begun")["at"], ran.event("ended")["at"]
            middle = began + min(SETTLES_S, chosen.seconds / 3)
            early = max(one.total for one in ran.between(began, middle))
            late = max(one.total for one in ran.between(middle, ended))
            name = name if given["size"] < MB or wanted["size"] else f"blocks of {chosen.large} MB"
            note(
                f"20 ms a row for {chosen.seconds:.0f} s, {name}: memory after {middle - began:.0f} s over before; "
                "growth; rows",
                system,
                f"{late / early:.2f}; {ran.growth() / MB:.0f} MB; {ran.event('ended')['rows'] / ran.seconds():.0f}/s",
            )


def is_whole(ran: Ran) -> bool:
    """Whether it has run to its end."""
    return any(event["event"] == "ended" for event in ran.events)


def most_shared(ran: Ran) -> int:
    """The most shared memory."""
    return max(one.shared for one in ran.samples)


def note_growth(name: str, system: str, ran: Ran, flying: int) -> None:
    """Keep the growth of a run, beside the bytes that were in flight."""
    note(
        f"{name}: growth over data in flight; growth; in the store; time",
        system,
        f"{ran.growth() / flying:.2f}; {ran.growth() / MB:.0f} MB; {most_shared(ran) / MB:.0f} MB; "
        f"{ran.seconds():.1f} s",
    )


def parquet(chosen: argparse.Namespace) -> None:
    """Memory over the data in flight."""
    import pyarrow
    from pyarrow import parquet as pq

    rows, width = 1000, 128 * 1024 // 8
    folder = Path(tempfile.mkdtemp(prefix="data-parquet-", dir=chosen.directory))
    files = max(1, round(chosen.gigabytes * 1e9 / (rows * width * 8)))
    try:
        (folder / "in").mkdir()
        random = np.random.default_rng(0)
        for number in range(files):
            values = pyarrow.array(random.standard_normal(rows * width))
            column = pyarrow.FixedSizeListArray.from_arrays(values, width)
            table = pyarrow.table({"id": range(number * rows, (number + 1) * rows), "x": column})
            pq.write_table(table, folder / "in" / f"{number}.parquet", row_group_size=200, compression="none")
        for system, python in systems(chosen).items():
            shutil.rmtree(folder / "out", ignore_errors=True)
            given = {"cpus": chosen.cpus, "store": chosen.store * MB, "batch": 40}
            given |= {"input": str(folder / "in"), "output": str(folder / "out")}
            ran = run(python, system, "parquet", given, 600)
            if not is_whole(ran):
                continue
            written = [pq.read_metadata(path).num_rows for path in (folder / "out").glob("*.parquet")]
            assert sum(written) == files * rows, f"{sum(written)} rows of {files * rows} were written"
            flying = most_shared(ran) + TASKS_OF_CPU * chosen.cpus * max(written) * width * 8
            name = f"parquet, {files * rows * width * 8 / 1e9:.1f} GB"
            note_growth(f"{name}, store {chosen.store} MB", system, ran, flying)
    finally:
        shutil.rmtree(folder)


def readers(chosen: argparse.Namespace) -> None:
    """Memory over the data in flight, for each kind of files."""
    from pyarrow import parquet as pq

    for reader, make in MAKERS.items():
        folder = Path(tempfile.mkdtemp(prefix="data-readers-", dir=chosen.directory))
        (folder / "in").mkdir()
        try:
            rows = make(folder / "in", int(chosen.gigabytes * 1e9))
            for system, python in systems(chosen).items():
                shutil.rmtree(folder / "out", ignore_errors=True)
                given = {"cpus": chosen.cpus, "store": chosen.store * MB, "reader": reader}
                given |= {"input": str(folder / "in"), "output": str(folder / "out"), "loaded": LOADED.get(reader, ())}
                ran = run(python, system, "readers", given, 600)
                if not is_whole(ran):
                    continue
                written = pq.read_table(folder / "out", columns=["block_bytes"])["block_bytes"]
                assert len(written) == rows, f"{len(written)} rows of {rows} were written"
                flying = most_shared(ran) + TASKS_OF_CPU * chosen.cpus * max(written.unique().to_pylist())
                name = f"{reader}, {chosen.gigabytes:.1f} GB"
                note_growth(f"{name}, store {chosen.store} MB", system, ran, flying)
        finally:
            shutil.rmtree(folder)


def images(chosen: argparse.Namespace) -> None:
    """Images a second."""
    image = importlib.import_module("PIL.Image")  # an interpreter without it has the other shapes

    folder = tempfile.mkdtemp(prefix="data-images-", dir=chosen.directory)
    try:
        random = np.random.default_rng(0)
        for number in range(chosen.images):
            small = random.integers(0, 255, (48, 64, 3), np.uint8)
            image.fromarray(small).resize((640, 480)).save(f"{folder}/{number:06d}.jpg", quality=85)
        speeds: dict[str, list[float]] = {}
        for _ in range(chosen.rounds):
            for system, python in {**systems(chosen), "by_hand": sys.executable}.items():
                given = {"cpus": chosen.cpus, "store": chosen.store * MB, "input": folder}
                ran = run(python, system, "images", given, 600)
                if is_whole(ran):
                    assert ran.event("ended")["rows"] == chosen.images, f"{system} has lost images"
                    speeds.setdefault(system, []).append(ran.event("ended")["rows"] / ran.seconds())
        mine = statistics.median(speeds["mpi_runtime"])
        for system, found in speeds.items():
            speed = statistics.median(found)
            note("images, resized and labelled; mpi_runtime over this", system, f"{speed:.0f}/s; {mine / speed:.2f}")
    finally:
        shutil.rmtree(folder)


def first(chosen: argparse.Namespace) -> None:
    """Seconds to the first batch."""
    for system, python in systems(chosen).items():
        found: dict[str, list[float]] = {"first": [], "second": []}
        for _ in range(chosen.rounds):
            ran = run(python, system, "first", {"cpus": chosen.cpus, "store": chosen.store * MB}, 120)
            for event in ran.events:
                if event["event"] == "ended":
                    found[event["round"]].append(event["seconds"])
        medians = {name: statistics.median(times) for name, times in found.items() if times}
        for name, seconds in medians.items():
            note(f"time to the first batch, {name} data set", system, f"{seconds:.3f} s")


def whole(chosen: argparse.Namespace) -> None:
    """Rows that do not fit into the store, in another order."""
    rows = 4 * chosen.spilled * 1000
    for order in ("sort", "shuffle"):
        for system, python in systems(chosen).items():
            given = {"cpus": chosen.cpus, "store": chosen.spilled * MB, "rows": rows, "order": order}
            ran = run(python, system, "whole", given, 200)
            if is_whole(ran):
                note(f"{order} of {rows / 1e6:.1f} GB, store {chosen.spilled} MB: time; growth", system,
                     f"{ran.seconds():.1f} s; {ran.growth() / MB:.0f} MB")  # fmt: skip


SHAPES = {"flat": flat, "parquet": parquet, "readers": readers, "images": images, "first": first, "whole": whole}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("shapes", nargs="*", choices=[*SHAPES, []], metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--ray", metavar="PYTHON", help="an interpreter that has ray[data]")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run of `flat` (default 10)")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of parquet (default 2)")
    parser.add_argument("--store", type=int, default=500, help="MB of shared memory (default 500)")
    parser.add_argument("--spilled", type=int, default=100, help="MB of shared memory of `whole` (default 100)")
    parser.add_argument("--large", type=int, default=50, help="MB of large blocks (default 50)")
    parser.add_argument("--images", type=int, default=1000, help="(default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="of `images` and `first` (default 3)")
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="for files")
    chosen = parser.parse_args()
    for shape in chosen.shapes or SHAPES:
        SHAPES[shape](chosen)
    print(f"\n{time.strftime('%Y-%m-%d')}, {chosen.cpus} CPUs, load {os.getloadavg()[0]:.1f}\n\n{table()}")


if __name__ == "__main__":
    main()
