"""What holds for every test: nothing is left behind, and a hang is a failure.

After each test, and after each module (for fixtures that live as long), there must be no new process, thread,
descriptor, shared memory file, abstract socket or temporary file of ours. What other programs of the machine make at
the same time is told apart by who has it open. Costs a few milliseconds, more only where something is left.
"""

import faulthandler
import gc
import glob
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests import helpers

GRACE_S = 3.0
"""How long what was told to end may take: processes are reaped and threads joined in the background."""
STUCK_S = 20.0
"""How long after its time-out a test may go on before the whole run is ended."""
NAME = "mpi_runtime"
PYTHON_SEGMENTS = ("psm_", "sem.mp-", "sem.loky-", "torch_")
"""Shared memory of Python's libraries. `Program.finish` looks for that of MPI libraries."""
FOLDER_MARKS = {"mpi": "mpi", "slurm": "slurm", "device": "device"}

with suppress(ImportError):
    import hypothesis

    # No deadline: the machine may be slow. The same examples every time in CI, so that a failure there is a change.
    hypothesis.settings.register_profile("house", deadline=None, derandomize=helpers.IN_CI)
    hypothesis.settings.load_profile("house")

_stacks = pytest.StashKey[int]()
"""Where stacks of a process of tests go that crashes or is ended: in a worker of xdist to a file, whose content is
shown at the end of all tests, else standard error before pytest replaces it."""
_numbers = count(1)
_said: set[str] = set()
"""What the tests of the module have been blamed for."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ[helpers.MARK] = f"{os.getpid()}-{time.time_ns():x}"
    os.environ["MPI_RUNTIME_FIND_GPUS"] = "never"  # but where a test says so: the same tests wherever they run
    os.environ["MPI_RUNTIME_QUIET"] = "1"  # but where a test says so: standard error has what programs write
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background job: what we start inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    resource_tracker.ensure_running()  # else it would be left by the first test that has a lock
    worker = getattr(config, "workerinput", {}).get("workerid")
    config.stash[_stacks] = os.open(crashes(config) / worker, os.O_CREAT | os.O_WRONLY) if worker else os.dup(2)


def crashes(config: pytest.Config) -> Path:
    """The directory for files with stacks. It is there without the plugin for the cache too."""
    folder = config.rootpath / ".pytest_cache" / "crashes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        faulthandler.enable(session.config.stash[_stacks])  # not to where pytest had it, in the middle of all output
    elif session.config.getoption("numprocesses", None):
        for path in crashes(session.config).iterdir():
            path.unlink()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for path in sorted(crashes(config).iterdir()) if config.getoption("numprocesses", None) else ():
        if stacks := path.read_text():
            terminalreporter.section(f"stacks of {path.name} when it crashed or was ended")
            terminalreporter.write(stacks)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for part in item.path.parts:
            if part in FOLDER_MARKS:
                item.add_marker(FOLDER_MARKS[part])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that collecting loads is garbage, and it is left to the end of the run: else it would be looked at again
    and again meanwhile, which takes a fifth of the time, and by each `gc.collect` of a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("hosts") and (os.geteuid() or not shutil.which("ip")):
        pytest.skip("makes network namespaces: run as root, with iproute2 installed")


# What may be left behind.


def descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that listed the directory
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def abstract_sockets() -> dict[str, str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    rows = [line.split(maxsplit=7) for line in lines if "@" + NAME in line]
    return {row[7]: f"socket:[{row[6]}]" for row in rows if len(row) > 7 and row[7].startswith("@" + NAME)}


def files() -> set[str]:
    temporary = tempfile.gettempdir()
    found = {f"{temporary}/{name}" for name in os.listdir(temporary) if name.startswith(NAME)}
    shared = f"{temporary}/{NAME}-{os.geteuid()}"  # by all jobs of the user: of interest are the locks of each
    if shared in found and (locks := glob.glob(f"{glob.escape(shared)}/*/lock")):
        found = found - {shared} | set(locks)
    if os.path.isdir("/dev/shm"):  # all programs of the host leave files there
        found |= {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name.startswith((NAME, *PYTHON_SEGMENTS))}
    return found


@dataclass
class Belongings:
    """What is there at one moment."""

    pids: set[int] = field(default_factory=helpers.process_ids)
    threads: set[threading.Thread] = field(default_factory=lambda: set(threading.enumerate()))
    descriptors: dict[int, str] = field(default_factory=descriptors)
    sockets: dict[str, str] = field(default_factory=abstract_sockets)
    files: set[str] = field(default_factory=files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m device` load only what has such tests: a machine with a card may lack what all others need."""
    if config.getoption("markexpr") != "device" or not collection_path.name.startswith("test_"):
        return None
    is_for_devices = collection_path.parent.name == "device" or "mark.device" in collection_path.read_text()
    return None if is_for_devices else True


def leaks(before: Belongings, mark: str) -> list[str]:
    """What is there now and was not before, in words."""
    now = Belongings()
    pids = now.pids - before.pids
    ours = {*helpers.marked(mark, pids), *helpers.children(pids)}
    found = [f"process {helpers.describe(pid)}" for pid in sorted(ours)]
    found += [f"thread {thread.name}" for thread in now.threads - before.threads if thread.is_alive()]
    found += [
        f"descriptor {number} -> {now.descriptors[number]}" for number in now.descriptors.keys() - before.descriptors
    ]
    sockets = now.sockets.keys() - before.sockets
    paths = now.files - before.files
    if sockets or paths:
        others = held_by_others(ours, {now.sockets[name] for name in sockets} | paths)
        still = abstract_sockets()  # a job of another test may have ended before its descriptors were looked at
        left = [name for name in sorted(sockets) if name in still and now.sockets[name] not in others]
        found += [f"abstract socket {name}" for name in left]
        found += [f"file {path}" for path in sorted(paths) if path not in others and os.path.lexists(path)]
    return found


def held_by_others(ours: set[int], wanted: set[str]) -> set[str]:
    """Which of these paths and sockets processes that are none of ours have open or mapped."""
    left = set(wanted)
    for pid in sorted(helpers.process_ids() - ours - {os.getpid()}, reverse=True):  # those are mostly new, as it is
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    left.discard(os.readlink(f"/proc/{pid}/fd/{name}"))
        if any(one.startswith("/dev/shm/") for one in left):
            left -= helpers.shared_files(pid)
        if not left:
            break
    return wanted - left


@contextmanager
def nothing_left(mark: str, known: Collection[str] = ()) -> Iterator[None]:
    """Fail if what runs inside leaves anything but the known; kill what it left, so that later tests are not blamed."""
    above = os.environ[helpers.MARK]
    os.environ[helpers.MARK] = mark
    before = Belongings()
    try:
        yield
    finally:
        forgotten = helpers.kill_unfinished(mark)
        asked = time.monotonic()
        end = asked + GRACE_S
        while (found := [one for one in leaks(before, mark) if one not in known]) and time.monotonic() < end:
            gc.collect()
            helpers.pause_after(asked)
            asked = time.monotonic()
        _said.update(found)
        if found:
            helpers.kill_marked(mark)
        os.environ[helpers.MARK] = above
    found += [f"program started and never finished: {what}" for what in forgotten]
    if found:
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_by_module() -> Iterator[None]:
    _said.clear()
    with nothing_left(f"{os.environ[helpers.MARK]}/{next(_numbers)}", known=_said):
        yield


@pytest.fixture(autouse=True)
def _nothing_left_by_test(_nothing_left_by_module: None) -> Iterator[None]:
    with nothing_left(f"{os.environ[helpers.MARK]}/{next(_numbers)}"):
        yield


@pytest.fixture(autouse=True)
def _ended_when_stuck(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the run, with all stacks, if the time-out of the test cannot interrupt it."""
    marker = request.node.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else request.config.getini("timeout") or 0)
    if limit:
        faulthandler.dump_traceback_later(limit + STUCK_S, exit=True, file=request.config.stash[_stacks])
    yield
    faulthandler.cancel_dump_traceback_later()
