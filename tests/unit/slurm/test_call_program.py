"""A call stands still while its checkpoint is saved."""

import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from mpi_runtime.slurm import call_program, calls, walltime
from mpi_runtime.slurm.calls import DelayedSubmission, Submission
from mpi_runtime.slurm.commands import SlurmError
from tests.helpers import wait_until


class Work:
    """A call that counts the threads which have saved it, and how far it was then."""

    def __init__(self) -> None:
        self.saved_by: list[tuple[threading.Thread, bool]] = []
        self.moved = 0

    def checkpoint(self) -> None:
        before = self.moved
        time.sleep(0.2)
        self.saved_by.append((threading.current_thread(), before == self.moved))

    def __call__(self) -> None:
        """The call itself is in the tests."""


@pytest.fixture
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Work], threading.Thread]]:
    """Starts to save a call, in a thread."""
    previous = signal.getsignal(call_program._STOP)
    requeues: list[None] = []

    def refuse() -> None:
        requeues.append(None)
        raise SlurmError("not here")

    monkeypatch.setattr(walltime, "requeue", refuse)
    monkeypatch.setattr(calls, "write_continued", lambda *_: None)

    submission = Submission(ends=[1], calls_per_job=1, max_requeues=1, checkpoint_s=60.0, cwd="/", path=[])

    def start(work: Work) -> threading.Thread:
        running = call_program._Current(tmp_path, submission)
        running.call = DelayedSubmission(work)
        thread = threading.Timer(0.3, running.save)
        thread.start()
        return thread

    yield start
    signal.signal(call_program._STOP, previous)
    assert len(requeues) == 1


def test_it_moves_on_when_the_job_is_not_queued_again(
    current: Callable[[Work], threading.Thread], capfd: pytest.CaptureFixture[str]
) -> None:
    work = Work()
    thread = current(work)
    while thread.is_alive():
        work.moved += 1
    assert work.saved_by == [(threading.main_thread(), True)]
    assert capfd.readouterr().err == "mpi-runtime: not here\n"


def test_an_interrupt_at_once_ends_the_call_and_nothing_else(
    current: Callable[[Work], threading.Thread], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Quick(Future[bool]):
        def set_result(self, result: bool) -> None:
            super().set_result(result)
            raise KeyboardInterrupt  # the other thread has queued the job again already

    monkeypatch.setattr(call_program, "Future", Quick)
    thread = current(Work())
    with pytest.raises(KeyboardInterrupt):
        wait_until(lambda: not thread.is_alive())  # not `join`, which Python 3.11 takes for done when it is interrupted
    wait_until(lambda: not thread.is_alive())
    assert capfd.readouterr().err == "mpi-runtime: not here\n"


def test_it_is_saved_beside_compiled_code_that_does_not_end(
    current: Callable[[Work], threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_program, "_COMPILED_S", 0.05)
    work = Work()
    thread = current(work)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)
    thread.join()
    assert work.saved_by == [(thread, True)]
