"""Children of a task or an actor whose process dies."""

import os
import time
from pathlib import Path

import pytest

from mpi_runtime import get, kill, remote
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
def child(directory: str, name: str, seconds: float) -> int:
    Path(directory, f"began-{name}").touch()
    time.sleep(seconds)
    Path(directory, f"ended-{name}").touch()
    return 1


@remote(max_retries=1)
def parent(directory: str) -> int:
    crash = not Path(directory, "crashed").exists()
    attempt = "first" if crash else "second"
    refs = [child.remote(directory, f"{attempt}-{number}", 30 if crash else 0) for number in range(6)]
    if crash:
        wait_until(lambda: bool(list(Path(directory).glob("began-*"))), 30, "a child")
        Path(directory, "crashed").touch()
        os._exit(1)
    return sum(get(refs))


@remote
class Owner:
    def begin(self, directory: str) -> None:
        self.ref = child.remote(directory, "owned", 30)


def test_a_retry_does_not_run_beside_the_children_of_the_attempt_that_died(tmp_path: Path) -> None:
    since = time.monotonic()
    assert get(parent.remote(str(tmp_path)), timeout=60) == 6
    assert time.monotonic() - since < 25  # the children of the first attempt were interrupted: they had 30 s to run
    names = {path.name for path in tmp_path.glob("ended-*")}
    assert names == {f"ended-second-{number}" for number in range(6)}
    began = [path.name for path in tmp_path.glob("began-first-*")]
    time.sleep(0.5)
    assert [path.name for path in tmp_path.glob("began-first-*")] == began
    assert len(began) < 6


def test_children_of_an_actor_end_with_it(tmp_path: Path) -> None:
    owner = Owner.remote()
    get(owner.begin.remote(str(tmp_path)))
    wait_until(lambda: (tmp_path / "began-owned").exists(), 30, "the child")
    kill(owner)
    since = time.monotonic()
    get([child.options(num_cpus=2).remote(str(tmp_path), "after", 0)], timeout=25)  # all CPUs are free again
    assert time.monotonic() - since < 25
    assert not (tmp_path / "ended-owned").exists()
