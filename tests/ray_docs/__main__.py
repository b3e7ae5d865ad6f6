"""What Ray's documentation says, as programs: run here, or on Ray itself, and compared with what Ray 2.60 printed.

    python -m tests.ray_docs                    on this runtime, all chapters
    python -m tests.ray_docs --against ray      on Ray, where it is installed (`make ray-docs`)
    python -m tests.ray_docs tasks -k cancel    some of them
    python -m tests.ray_docs --record ...       write down what they print instead of comparing

A chapter is a file of functions, each one a program with the statement as its docstring; its job has four CPUs and two
of "special". A program that is known to print something else here says so in its docstring, as `Differs: reason`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import importlib.util
import inspect
import io
import json
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

HOME = Path(__file__).parent
JOB: dict[str, Any] = {
    "num_cpus": 4,
    "resources": {"special": 2},
    "labels": {"zone": "a"},
    "namespace": "docs",
    "log_to_driver": False,
}
ON_HOSTS: dict[str, dict[str, Any]] = {"ray": {"address": "auto"}, "mpi_runtime": {"num_cpus": 4, "num_gpus": 2}}
"""The job on two hosts. Ray's has been started with 4 CPUs and 2 GPUs on each."""
LIMIT_S = {"ray": 120, "mpi_runtime": 45}
"""How long one program may take."""
CHAPTERS = sorted(path.stem for path in (HOME / "chapters").glob("*.py") if path.stem != "__init__")

NEEDS = {
    **dict.fromkeys(("data", "data_columns", "data_more", "data_own", "data_whole", "train_storage"), "pyarrow"),
    "data_preprocessors": "pandas",
}
"""The library without which a chapter is left out."""

Program = Callable[[], None]


class OutOfTimeError(BaseException):
    """A program took too long."""


def _out_of_time(*_: object) -> NoReturn:
    raise OutOfTimeError


def programs(chapter: ModuleType) -> dict[str, Program]:
    """The programs of a chapter, in its order."""
    return {
        name: value
        for name, value in vars(chapter).items()
        if inspect.isfunction(value) and value.__module__ == chapter.__name__ and not name.startswith("_")
    }


def reason(program: Program) -> str:
    """Why it prints something else here; empty: it is to print the same."""
    found = re.search(r"Differs: (.*)", inspect.getdoc(program) or "", re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def output(program: Program, limit_s: float) -> str:
    """What a program prints, and how it ended if not by its last line. It holds no address and no time."""
    text = io.StringIO()
    # Not all of the standard output: Ray writes there what its processes have to say.
    vars(sys.modules[program.__module__])["print"] = functools.partial(print, file=text)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            program()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTimeError:
        text.write("out of time\n")
    except BaseException as error:
        text.write(f"raised {type(error).__name__}\n")
        print(f"  {program.__module__}.{program.__name__}: {error!r}"[:2000], file=sys.stderr)
    return text.getvalue()


@contextlib.contextmanager
def job(chapter: ModuleType) -> Iterator[Callable[[], None]]:
    """The job of a chapter, and how to have another one; chapters about jobs make their own."""
    import ray

    def start() -> None:
        ray.shutdown()
        if not getattr(chapter, "OWN_JOBS", False):
            ray.init(**JOB, include_dashboard=False, logging_level="ERROR")

    start()
    try:
        yield start
    finally:
        ray.shutdown()


def run(name: str, against: str, pattern: str, hosts: bool) -> dict[str, tuple[str, str, float]]:
    """What the programs of a chapter print, why it may differ here, and how many seconds each took."""
    chapter: Any = importlib.import_module(f"tests.ray_docs.chapters.{name}")
    if hosts:
        chapter.JOB = ON_HOSTS[against]
    found: dict[str, tuple[str, str, float]] = {}
    with job(chapter) as start_again:
        for title, program in programs(chapter).items():
            if pattern in title:
                begin = time.monotonic()
                text = output(program, LIMIT_S[against])
                found[title] = text, reason(program), time.monotonic() - begin
                gc.collect()
                if "out of time" in text or "RayletDied" in text:  # it may have left calls that run
                    start_again()
    return found


def recorded(name: str) -> dict[str, dict[str, str]]:
    """What was recorded of a chapter: by program what "ray" prints, and where that differs what is printed "here"."""
    path = HOME / "recorded" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def record(name: str, suffix: str, against: str, found: dict[str, tuple[str, str, float]]) -> None:
    """Write it down."""
    known = recorded(name + suffix)
    for title, (text, why, _) in found.items():
        entry = known.setdefault(title, {})
        if against == "ray":
            entry["ray"] = text
        elif why:
            entry["here"] = text
        if not why:
            entry.pop("here", None)
    chapter = sys.modules[f"tests.ray_docs.chapters.{name}"]
    kept = {title: known[title] for title in programs(chapter) if title in known}
    (HOME / "recorded" / f"{name}{suffix}.json").write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    """Run, compare, tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.ray_docs")
    parser.add_argument("chapters", nargs="*", help=f"of {', '.join(CHAPTERS)}")
    parser.add_argument("--against", choices=("ray", "mpi_runtime"), default="mpi_runtime")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("-k", default="", help="only programs with this in their name")
    parser.add_argument("-v", action="store_true", help="tell how long each took")
    parser.add_argument("--hosts", action="store_true", help="of a chapter that has a JOB: on two hosts")
    options = parser.parse_args()
    if options.against == "mpi_runtime":
        import mpi_runtime

        mpi_runtime.install_as_ray()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _out_of_time)
    suffix = "_on_hosts" if options.hosts else ""
    same = different = wrong = 0
    there = [name for name in CHAPTERS if name not in NEEDS or importlib.util.find_spec(NEEDS[name])]
    for name in options.chapters or there:
        found = run(name, options.against, options.k, options.hosts)
        if options.record:
            record(name, suffix, options.against, found)
        known = recorded(name + suffix)
        for title, (text, why, seconds) in found.items():
            entry = known.get(title, {})
            rays = entry.get("ray", "not recorded")
            expected = entry.get("here", "not recorded") if why and options.against == "mpi_runtime" else rays
            same += text == rays
            different += text != rays and text == expected
            if options.v:
                print(f"{name}.{title}: {seconds:.2f} s")
            if text != expected or (why and options.against == "mpi_runtime" and text == rays):
                wrong += 1
                print(f"{name}.{title}:\n  expected: {expected!r}\n  printed:  {text!r}", flush=True)
    total = same + different + wrong
    if total:
        print(f"{total} statements: {100 * same / total:.1f} % as Ray, {different} differ as expected, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
