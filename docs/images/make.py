"""`make images`: the picture of the README, which is the page of a real job (`init(report=...)`).

    python docs/images/make.py

The job is examples/external_sort.py on three hosts of tests/hosts, which need root, or else on this machine alone.
Chromium takes the picture.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.browser import words  # noqa: E402
from tests.helpers import start_program  # noqa: E402
from tests.hosts.lab import lab, missing  # noqa: E402

EXAMPLE = ROOT / "examples" / "external_sort.py"
WIDTH, HEIGHT = 1100, 640
PROGRAM = f"""
import functools, runpy, sys
import mpi_runtime

mpi_runtime.init = functools.partial(mpi_runtime.init, num_cpus=4, report=sys.argv[1])
sys.argv = [{str(EXAMPLE)!r}, "--megabytes", "320", "--store", "400"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(report: Path) -> None:
    """Run the example; the job writes its page."""
    if reason := missing():
        print(f"on one host, since {reason}")
        with start_program(PROGRAM, str(report), ranks=4) as program:
            program.finish(timeout=120).expect(0)
        return
    with lab(3) as hosts, hosts.mpirun(PROGRAM, str(report), ranks={"host1": 2, "host2": 1, "host3": 1}) as program:
        program.finish(timeout=120).expect(0)


def main() -> None:
    """Run the example and take the picture."""
    with tempfile.TemporaryDirectory(dir=ROOT / "docs" / "images") as place:
        report = Path(place) / "job.html"
        run(report)
        picture = ROOT / "docs" / "images" / "job.png"
        command = [*words(report, WIDTH, HEIGHT), "--hide-scrollbars", f"--screenshot={picture}", report.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=100)
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
