"""No test of this folder starts a process; one that does belongs into `tests/component`."""

import sys
from collections.abc import Iterator
from multiprocessing import util

import pytest

STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
"""What the interpreter reports to its audit hooks before it starts a process. `multiprocessing` starts some without."""

_is_watched = False
_started: list[str] = []


def starts(event: str, _: object = None) -> None:
    if _is_watched and event in STARTS:
        _started.append(event)
        raise RuntimeError(f"{event} in tests/unit: a test that starts a process belongs into tests/component")


sys.addaudithook(starts)  # for good: nothing takes one away


@pytest.fixture(scope="module", autouse=True)
def _watched() -> Iterator[None]:
    global _is_watched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(util, "spawnv_passfds", lambda *_: starts("os.posix_spawn"))
        _is_watched = True
        yield
        _is_watched = False


@pytest.fixture(autouse=True)
def _no_process_is_started(_watched: None) -> Iterator[None]:
    """Fail even where the code under test has caught the error."""
    yield
    started = _started.copy()
    _started.clear()
    assert not started, "this test has started a process: it belongs into tests/component"
