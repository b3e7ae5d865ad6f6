"""Streams of rows beside Ray Data: memory, throughput, time to the first batch. `python -m benchmarks.data [SHAPE ...]`

    python -m benchmarks.data [flat parquet images first] [--ray PYTHON] [--seconds 10] [--gigabytes 1] [--store 1000]

Run it with an interpreter that has pyarrow and Pillow; `--ray` names one that has `ray[data]` too. Memory is the sum of
Pss of all processes of a run, so shared memory counts once; it is looked at four times a second. Growth is beyond what
the processes have when they have started and imported the library.

- `flat`: a stage of 20 ms behind a fast reader. Is the memory after 5 s (or a third of the time, if that is earlier) at
  most what it was before? With blocks of 1 MB, 1 kB and `--large` MB, in order, and with one block that takes a third
  of the time.
- `parquet`: files are decoded, wait 20 ms a batch, and are written. The growth beside the store, and beside the blocks
  that the stream has held.
- `images`: files of 640 x 480 are resized and labelled by a model of one layer, beside a pool of processes.
- `first`: the time to the first batch of a first data set and of a second one in a job.
"""

from __future__ import annotations

import argparse
import contextlib
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

from benchmarks.processes import descendants

PROGRAM = Path(__file__).parent / "systems" / "data_shapes.py"
SAMPLE_S = 0.25
SETTLES_S = 5.0
MB = 1_000_000
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
    private: int
    shared: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.private + self.shared


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
        """The most memory while the data set ran, beyond that before."""
        began, ended = self.event("begun")["at"], self.event("ended")["at"]
        before = self.between(began - 1.0, began) or [self.samples[0]]
        return max(one.total for one in self.between(began, ended)) - max(one.total for one in before)

    def seconds(self) -> float:
        """How long the data set ran."""
        return float(self.event("ended")["at"] - self.event("begun")["at"])


def sampled(top: int) -> Sample:
    """The memory of a process and of all below it."""
    private = shared = 0
    for pid in [top, *descendants(top)]:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("Pss_Anon", "Pss_File"):
                    private += int(value.split()[0]) * 1024
                elif name == "Pss_Shmem":
                    shared += int(value.split()[0]) * 1024
    return Sample(time.monotonic(), private, shared)


def run(python: str, system: str, shape: str, given: dict[str, Any], limit_s: float) -> Ran:
    """Run a shape, and watch its memory. One that takes too long is ended."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [python, str(PROGRAM), system, shape, json.dumps(given)], stdout=output, stderr=errors, text=True
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
            began, ended = ran.event("begun")["at"], ran.event("ended")["at"]
            middle = began + min(SETTLES_S, chosen.seconds / 3)
            early = max(one.total for one in ran.between(began, middle))
            late = max(one.total for one in ran.between(middle, ended))
            print(
                f"flat, {name:26} {system:12} {ran.event('ended')['rows'] / ran.seconds():8.1f} rows/s   "
                f"growth {ran.growth() / MB:6.0f} MB   most shared {most_shared(ran) / MB:6.0f} MB   "
                f"most after {middle - began:.0f} s over most before {late / early:.2f}",
                flush=True,
            )


def is_whole(ran: Ran) -> bool:
    """Whether it has run to its end."""
    return any(event["event"] == "ended" for event in ran.events)


def most_shared(ran: Ran) -> int:
    """The most shared memory."""
    return max(one.shared for one in ran.samples)


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
            written = sum(pq.read_metadata(path).num_rows for path in (folder / "out").glob("*.parquet"))
            assert written == files * rows, f"{written} rows of {files * rows} were written"
            held = ran.event("ended")["held"]
            print(
                f"parquet, {files * rows * width * 8 / 1e9:.1f} GB{'':14} {system:12} {ran.seconds():6.1f} s   "
                f"growth {ran.growth() / MB:6.0f} MB   most shared {most_shared(ran) / MB:6.0f} MB   "
                f"growth over the store {ran.growth() / (chosen.store * MB):.2f}"
                + (f", over blocks held {ran.growth() / held:.2f}" if held else ""),
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


def images(chosen: argparse.Namespace) -> None:
    """Images a second."""
    from PIL import Image

    folder = tempfile.mkdtemp(prefix="data-images-", dir=chosen.directory)
    try:
        random = np.random.default_rng(0)
        for number in range(chosen.images):
            small = random.integers(0, 255, (48, 64, 3), np.uint8)
            Image.fromarray(small).resize((640, 480)).save(f"{folder}/{number:06d}.jpg", quality=85)
        speeds: dict[str, list[float]] = {}
        for _ in range(chosen.rounds):
            for system, python in {**systems(chosen), "by_hand": sys.executable}.items():
                given = {"cpus": chosen.cpus, "store": chosen.store * MB, "input": folder}
                ran = run(python, system, "images", given, 600)
                if is_whole(ran):
                    speeds.setdefault(system, []).append(ran.event("ended")["rows"] / ran.seconds())
        mine = statistics.median(speeds["mpi_runtime"])
        for system, found in speeds.items():
            print(f"images{'':26} {system:12} {statistics.median(found):8.1f} images/s   "
                  f"mpi_runtime over this {mine / statistics.median(found):.2f}", flush=True)  # fmt: skip
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
        print(f"first batch{'':21} {system:12} " + "   ".join(
            f"{name} data set {seconds:.3f} s" for name, seconds in medians.items()), flush=True)  # fmt: skip


SHAPES = {"flat": flat, "parquet": parquet, "images": images, "first": first}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("shapes", nargs="*", choices=[*SHAPES, []], metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--ray", metavar="PYTHON", help="an interpreter that has ray[data]")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run of `flat` (default 10)")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of parquet (default 2)")
    parser.add_argument("--store", type=int, default=500, help="MB of shared memory (default 500)")
    parser.add_argument("--large", type=int, default=50, help="MB of large blocks (default 50)")
    parser.add_argument("--images", type=int, default=1000, help="(default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="of `images` and `first` (default 3)")
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="for files")
    chosen = parser.parse_args()
    for shape in chosen.shapes or SHAPES:
        SHAPES[shape](chosen)


if __name__ == "__main__":
    main()
