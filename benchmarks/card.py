"""Everything that only a real GPU can tell, in one run of ten minutes at most, in one file: `make device`.

Each stage is a process with a limit of its own, so that what hangs or crashes costs one stage; the file is written
anew after each. Needs Python with pip, a driver, cupy and nvidia-ml-py. What else is missing is taken from wheels given
beside it, for there may be no network: `make device WHEELS=folder`. This module needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TOTAL_S = 600
CARD_S, UNPACK_S = 60, 120
TAIL_CHARACTERS = 20_000
"""Of what a stage prints so much is kept, from its end."""
NEEDED = {
    "cupy": "cupy-cuda12x[ctk] or cupy-cuda13x[ctk]", "pynvml": "nvidia-ml-py", "numpy": "numpy", "msgspec": "msgspec",
    "cloudpickle": "cloudpickle", "threadpoolctl": "threadpoolctl", "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
}  # fmt: skip
"""Modules, and the packages that bring them."""


class Stage(NamedTuple):
    """One question."""

    name: str
    words: tuple[str, ...]
    """Arguments of the interpreter."""
    limit_s: float


FACTS = ("agreement", "visible", "context", "registered", "pinned", "ipc", "orphans", "pool", "nsight", "products")
STAGES = (
    Stage("export", ("-m", "benchmarks.card_export", "1024"), 40),
    Stage("gpus", ("-m", "mpi_runtime", "gpus", "--json"), 60),
    Stage("warm-up", ("-m", "benchmarks.card_facts", "warm_up"), 90),
    Stage("tests", ("-m", "pytest", "-m", "device", "-q", "-p", "no:cacheprovider", "tests"), 240),
    Stage("copies", ("-m", "benchmarks.gpu_copies"), 120),
    *(Stage(name, ("-m", "benchmarks.card_facts", name), 60) for name in FACTS),
    Stage("tasks", ("-m", "benchmarks.gpu_matmul"), 150),
)


def missing() -> dict[str, str]:
    """The modules that this interpreter cannot find, with the packages that bring them."""
    return {module: package for module, package in NEEDED.items() if find_spec(module) is None}


ASK = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(f"CUDA answers {code} when it is to start" if code else "" if count.value else "CUDA shows no device")
"""


def no_card() -> str:
    """Why CUDA can use no GPU here; empty: it can. Another process asks, for the driver may hang."""
    command = [sys.executable, "-c", ASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CARD_S)
    except subprocess.TimeoutExpired:
        return f"the driver did not answer within {CARD_S} s"
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]


def unpack(packages: Sequence[str], wheels: Path, place: Path) -> str:
    """Install packages from a folder of wheels into another; why that fails, or nothing."""
    if not wheels.is_dir():
        return f"there is no folder {wheels}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--find-links", str(wheels), "--target", str(place), *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=UNPACK_S)
    except subprocess.TimeoutExpired:
        return f"pip did not end within {UNPACK_S} s"
    return "" if done.returncode == 0 else done.stderr.strip()


def prepare(wheels: Path, place: Path) -> str:
    """Have all there is to have; what is missing then, in words."""
    sys.path.insert(0, str(place))
    absent = missing()
    ours = [package for module, package in absent.items() if module != "cupy"]
    reason = unpack(ours, wheels, place) if ours else ""
    invalidate_caches()
    absent = missing()
    if not absent:
        return ""
    packages = " ".join(package.partition(" ")[0] for package in absent.values())
    return (
        f"missing: {', '.join(absent)}{f' ({reason})' if reason else ''}. Put wheels of them for Python "
        f"{platform.python_version()} into a folder, with a network: pip download --dest wheels {packages}; then "
        "make device WHEELS=wheels"
    )


def run(stage: Stage, place: Path, limit_s: float) -> dict[str, Any]:
    """Ask one question: its answer, how long it took, how it ended."""
    path = os.pathsep.join([str(ROOT), str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path}
    start_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *stage.words], cwd=ROOT, env=env, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    is_late = False
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        is_late = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    found: dict[str, Any] = {"code": process.returncode, "seconds": round(time.monotonic() - start_s, 2)}
    if is_late:
        found["late"] = f"it was ended after {limit_s:.0f} s"
    answer = as_json(output)
    return {**found, "answer": answer} if answer is not None else {**found, "output": output[-TAIL_CHARACTERS:]}


def as_json(output: str) -> Any:
    """What a stage has answered, if it is JSON: all that it says, or the last line of it."""
    for text in (output, output.strip().rpartition("\n")[2]):
        with suppress(ValueError):
            return json.loads(text)
    return None


def main() -> int:
    """Ask all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", help=f"some of: {', '.join(stage.name for stage in STAGES)}")
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels", help="a folder with wheels of what is missing")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "device.json", help="the file of results")
    parser.add_argument("--seconds", type=float, default=TOTAL_S, help="how long all of it may take")
    arguments = parser.parse_args()
    unknown = set(arguments.stages) - {stage.name for stage in STAGES}
    if unknown:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}")
    deadline_s = time.monotonic() + arguments.seconds
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    place = arguments.out.parent / "device-packages"
    results: dict[str, Any] = {
        "begun": time.strftime("%Y-%m-%d %H:%M:%S"), "python": platform.python_version(),
        "system": platform.platform(), "processors": os.cpu_count(), "missing": prepare(arguments.wheels, place),
    }  # fmt: skip
    results["no_card"] = no_card()
    if results["no_card"]:
        print(f"there is no GPU here that CUDA can use: {results['no_card']}. Nothing is measured.", file=sys.stderr)
    if results["missing"]:
        print(results["missing"], file=sys.stderr)
    for stage in STAGES:
        left_s = deadline_s - time.monotonic()
        if arguments.stages and stage.name not in arguments.stages:
            continue
        skipped = {"skipped": "what it needs is missing"} if results["missing"] and stage.name != "export" else {}
        if results["no_card"]:
            skipped = {"skipped": "there is no GPU"}
        if left_s < 1:
            skipped = {"skipped": f"the {arguments.seconds:.0f} s were over"}
        results[stage.name] = skipped or run(stage, place, min(stage.limit_s, left_s))
        one = results[stage.name]
        how = one.get("skipped") or one.get("late") or f"ended with {one['code']}"
        print(f"{stage.name:10} {one.get('seconds', ''):>6}  {how}", flush=True)
        arguments.out.write_text(json.dumps(results, indent=1))
    print(f"written: {arguments.out}")
    return 1 if results["missing"] or results["no_card"] else 0


if __name__ == "__main__":
    sys.exit(main())
