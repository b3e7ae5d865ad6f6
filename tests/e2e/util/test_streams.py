"""`util.streams`: items from the midst of a plain function, and who takes them says whether it goes on."""

import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.core.client.current import client_or_none
from mpi_runtime.errors import GetTimeoutError, TaskError
from mpi_runtime.util.streams import emit, emits, together
from tests.e2e.shared import is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")
STREAM: dict[str, Any] = {"num_returns": "streaming", "max_retries": 0}


@emits
def three(then_raises: bool = False) -> None:
    for number in range(3):
        assert emit(number)
    if then_raises:
        raise ZeroDivisionError


def started(function: Any, *arguments: Any, **options: Any) -> Any:
    return mpi_runtime.remote(function).options(**STREAM, **options).remote(*arguments)


def test_items_come_in_order_and_the_end_after_them() -> None:
    assert [mpi_runtime.get(ref) for ref in started(three)] == [0, 1, 2]


def test_the_error_of_the_function_is_the_last_item() -> None:
    refs = list(started(three, True))
    assert [mpi_runtime.get(ref) for ref in refs[:-1]] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        mpi_runtime.get(refs[-1])


def test_a_generator_may_emit_before_it_yields() -> None:
    def both() -> Any:
        emit("emitted")
        yield "yielded"

    assert [mpi_runtime.get(ref) for ref in started(both)] == ["emitted", "yielded"]


def test_it_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    @emits
    def writes() -> None:
        for number in range(3):
            emit(number)
            (tmp_path / str(number)).touch()

    stream = started(writes, _generator_backpressure_num_objects=1)
    assert mpi_runtime.get(stream.next_ref(None, resume=False)) == 0
    with pytest.raises(GetTimeoutError):
        stream.next_ref(0.2, resume=False)
    assert not (tmp_path / "0").exists()
    stream.resume()
    assert mpi_runtime.get(stream.next_ref(10, resume=False)) == 1
    assert (tmp_path / "0").exists()
    assert not (tmp_path / "1").exists()


def test_who_drops_the_stream_says_that_nothing_more_is_wanted(tmp_path: Path) -> None:
    @emits
    def writes() -> None:
        try:
            while emit("item"):
                pass
        finally:
            is_open(tmp_path / "go")  # it is not interrupted
            (tmp_path / "ended").touch()

    stream = started(writes, _generator_backpressure_num_objects=1)
    for _ in range(3):
        assert mpi_runtime.get(stream.next_ref(10)) == "item"
    ended = stream.completed()
    del stream
    assert mpi_runtime.wait([ended], timeout=0.2)[0] == []
    (tmp_path / "go").touch()
    assert mpi_runtime.get(ended, timeout=10) is None
    assert (tmp_path / "ended").exists()


def test_a_stream_that_is_closed_while_it_waits_is_interrupted() -> None:
    @emits
    def forever() -> None:
        while True:
            emit(0)

    stream = started(forever, _generator_backpressure_num_objects=1)
    stream.next_ref(10, resume=False)
    ended = stream.completed()
    stream.close()
    wait_until(lambda: mpi_runtime.wait([ended], timeout=0)[0])


def test_one_process_emits_for_one_call_after_another() -> None:
    streams = [started(three, num_cpus=1) for _ in range(20)]
    assert [[mpi_runtime.get(ref) for ref in stream] for stream in streams] == [[0, 1, 2]] * 20


def test_who_is_no_such_task_cannot_emit() -> None:
    with pytest.raises(RuntimeError, match="no task runs here"):
        emit(1)
    with pytest.raises(TaskError, match="@emits"):
        mpi_runtime.get(mpi_runtime.remote(lambda: emit(1)).remote())


def test_waiting_for_an_answer_keeps_the_cpu(tmp_path: Path) -> None:
    @emits
    def asks() -> None:
        emit(1)

    stream = started(asks, _generator_backpressure_num_objects=1, num_cpus=4)
    stream.next_ref(10, resume=False)
    other = mpi_runtime.remote(lambda: time.monotonic()).options(num_cpus=4).remote()
    assert mpi_runtime.wait([other], timeout=0.3)[0] == []
    stream.resume()
    assert mpi_runtime.get(other, timeout=10)


def test_what_is_said_together_is_sent_in_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = client_or_none().outbox  # type: ignore[union-attr]
    frames: list[int] = []
    send = outbox._send

    def counted(frame: Any, count: int) -> None:
        frames.append(count)
        send(frame, count)

    monkeypatch.setattr(outbox, "_send", counted)
    monkeypatch.setattr(outbox, "tick", lambda: None)  # else a thread might send meanwhile
    function = mpi_runtime.remote(three).options(**STREAM)
    warm = function.remote()
    assert [mpi_runtime.get(ref) for ref in warm] == [0, 1, 2]
    with together():
        first = function.remote()
        time.sleep(0.01)  # the connection is quiet: each call would be sent at once
        frames.clear()
        second = function.remote()
        assert not frames
        assert not second.next_ready(look=False)
        assert not frames, "it looked for messages, and so it sent"
    assert len(frames) == 1
    for stream in (first, second):
        assert [mpi_runtime.get(ref) for ref in stream] == [0, 1, 2]


def test_together_needs_no_job() -> None:
    code = "from mpi_runtime.util.streams import together\nwith together():\n    print('in')"
    assert run_program(code).expect(0).stdout == "in\n"
