"""Calls that bring their own scheduler: what works inside, what does not leave them, and how they end."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import mpi_runtime
from mpi_runtime import cancel, get, get_gpu_ids, get_runtime_context, put, remote
from mpi_runtime.core.client.object_ref import adopt
from mpi_runtime.core.executor.own_scheduler_mark import CALL_OF
from mpi_runtime.core.head import inspecting
from mpi_runtime.errors import ActorDiedError, MpiRuntimeError, TaskCancelledError, WorkerCrashedError
from mpi_runtime.scheduler.protocol.window_questions import Glance
from mpi_runtime.util import placement_group, state
from tests.e2e.shared import is_open, raised
from tests.helpers import process_ids, run_program, start_program, wait_until

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "num_gpus": 2, "resources": {"licence": 3}}


@remote
def double(value: Any) -> Any:
    return value * 2


@remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def own(function: Any) -> Any:
    return remote(num_cpus=2, own_scheduler=True, max_retries=0)(function)


def inside_of(executor: int) -> list[int]:
    """The processes inside a call that this executor runs."""
    found = []
    for pid in process_ids():
        with contextlib.suppress(OSError):
            if f"{CALL_OF}={executor}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def heads_of(executor: int) -> list[int]:
    """The process of the scheduler inside: the child of the executor."""
    children = Path(f"/proc/{executor}/task/{executor}/children").read_text().split()
    return [int(pid) for pid in children if "head" in Path(f"/proc/{pid}/comm").read_text()]


@own
def everything(value: Any) -> dict[str, Any]:
    counter = Counter.options(name="counter").remote()
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    get(group.ready())
    mpi_runtime.util.remove_placement_group(group)
    return {
        "task": get(double.remote(21)),
        "map": sum(double.map(range(100))),
        "actor": get([counter.add.remote() for _ in range(3)]),
        "array": get(double.remote(value)),
        "resources": mpi_runtime.cluster_resources(),
        "calls": len(state.list_tasks()),
        "id": get_runtime_context().get_task_id(),
        "pid": os.getpid(),
    }


def ran_in(pid: int) -> int:
    """How many attempts have ended in a job."""
    glance = inspecting.ask(pid, Glance())
    assert glance is not None
    return glance.counts.ran


def test_the_api_works_inside_and_the_head_outside_sees_none_of_it() -> None:
    array = np.arange(100_000.0)
    before = ran_in(os.getpid())
    refs = [everything.remote(put(array)) for _ in range(2)]
    for ref in refs:
        found = get(ref)
        assert (found["task"], found["map"], found["actor"]) == (42, 9900, [1, 2, 3]), "a name is free again"
        assert np.array_equal(found["array"], array * 2)
        assert found["resources"]["CPU"] == 2
        assert "licence" not in found["resources"]
        assert found["resources"]["object_store_memory"] <= mpi_runtime.cluster_resources()["object_store_memory"]
        assert found["id"] == ref.task_id().hex()
    assert ran_in(os.getpid()) == before + 2
    assert not state.list_actors()


@remote(num_cpus=1, num_gpus=1, own_scheduler=True, resources={"licence": 2})
def devices() -> Any:
    @remote(num_gpus=1)
    def seen() -> Any:
        return get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    return get_gpu_ids(), get(seen.remote()), mpi_runtime.cluster_resources()


def test_gpus_and_custom_resources_are_those_of_the_grant() -> None:
    first, second = get([devices.remote(), devices.remote()])
    assert {first[0][0], second[0][0]} <= {0, 1}
    for outer, (ids, visible), resources in (first, second):
        assert (ids, visible) == (outer, str(outer[0]))
        assert (resources["GPU"], resources["licence"]) == (1, 2)


@own
def returns(what: str) -> Any:
    kinds = {
        "ref": lambda: double.remote(1),
        "nested": lambda: {"a": [put(1)]},
        "handle": Counter.remote,
        "method": lambda: Counter.remote().add,
        "group": lambda: placement_group([{"CPU": 1}]),
        "kept": lambda: setattr(sys, "kept_by_test", put(1)),
    }
    return kinds[what]()


@own
def raises() -> None:
    raise ValueError("with a reference", put(1))


@own
def yields() -> Iterator[Any]:
    yield get(double.remote(1))
    yield double.remote(1)


@own
def uses_kept() -> str:
    return str(raised(get, sys.kept_by_test))


def test_references_and_handles_do_not_leave() -> None:
    for what in ("ref", "nested", "handle", "method", "group"):
        with pytest.raises((MpiRuntimeError, ActorDiedError), match="own_scheduler=True and works only inside"):
            get(returns.remote(what))
    with pytest.raises(MpiRuntimeError, match="with a reference"):
        get(raises.remote())
    items = yields.remote()
    assert get(next(items)) == 2
    with pytest.raises(MpiRuntimeError, match="works only inside"):
        get(next(items))
    get(returns.remote("kept"))
    assert "works only inside" in get(uses_kept.remote())


def test_references_do_not_enter() -> None:
    ref = put(1)
    counter = Counter.options(num_cpus=0).remote()

    @own
    def captures() -> Any:
        return get(ref)

    @own
    def takes(value: Any) -> Any:
        return value

    @own
    def adopts(id: bytes) -> Any:
        return repr(raised(lambda: get(adopt(id), timeout=5)))

    for function in (captures.remote, lambda: takes.remote([ref]), lambda: takes.remote(counter)):
        with pytest.raises(ValueError, match="reference or a handle"):
            function()
    assert get(takes.remote(ref)) == 1
    assert "Lost" in get(adopts.remote(ref.binary()))


@own
def nests() -> str:
    @remote
    def deeper() -> str:
        return str(raised(nests.remote))

    return f"{raised(nests.remote)} {get(deeper.remote())}"


@own
def leaves_a_thread(path: Path) -> int:
    def run() -> None:
        is_open(path)
        path.with_suffix(".said").write_text(str(raised(double.remote, 1)))

    threading.Thread(target=run, daemon=True).start()
    return os.getpid()


@own
def pid() -> int:
    return os.getpid()


def test_no_nesting_and_no_thread_that_stays(tmp_path: Path) -> None:
    assert get(nests.remote()).count("Schedulers are not nested") == 2
    process = get(leaves_a_thread.remote(tmp_path / "go"))
    assert get(pid.remote()) != process
    process = get(pid.remote())
    assert get(pid.remote()) == process, "kept warm"


def test_the_head_of_many_calls_keeps_nothing_of_those_that_have_ended() -> None:
    """Python's collector ignores what existed before a fork of the head, so that circle was kept: 60 kB a call."""

    @own
    def memory_of_head() -> tuple[int, int]:
        counter = Counter.remote()
        assert get(counter.add.remote()) == 1
        (head,) = heads_of(os.getpid())
        return head, psutil.Process(head).memory_info().rss

    found = [get(memory_of_head.remote()) for _ in range(60)]
    assert len({head for head, _ in found}) == 1, "one head serves all calls"
    assert found[-1][1] - found[9][1] < 1_000_000


def test_options_are_checked() -> None:
    for options in ({"num_cpus": 0}, {"num_cpus": 1.5}, {"num_gpus": 0.5}, {"gpu_memory": 1}, {"num_ranks": 2}):
        with pytest.raises(ValueError, match="own_scheduler=True"):
            remote(**{"num_cpus": 1, **options, "own_scheduler": True})(lambda *_: None)
    with pytest.raises(ValueError, match="own_scheduler"):
        remote(own_scheduler=True)(Counter.__wrapped__ if hasattr(Counter, "__wrapped__") else type("A", (), {}))
    with pytest.raises(TypeError):
        remote(own_scheduler="yes")(lambda: None)
    with pytest.raises(ValueError, match="map"):
        pid.map([1])


SLEEPER = "import time; time.sleep(100)"


@remote(num_cpus=2, own_scheduler=True, max_retries=1)
def tree(folder: Path, how: str) -> int:
    """Start processes inside that would live on, report, and end in this way."""

    @remote
    def starts() -> int:
        return subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True).pid

    @remote
    def sleeps() -> None:
        time.sleep(100)

    again = (folder / "first").exists()
    if again:
        return os.getpid()
    get(starts.remote())
    ref = sleeps.remote()
    (folder / "first").write_text(str(os.getpid()))
    if how == "exit":
        os._exit(3)
    elif how == "head":
        os.kill(heads_of(os.getpid())[0], signal.SIGKILL)
    get(ref)
    return 0


@pytest.mark.dies("own scheduler")
@pytest.mark.parametrize("how", ["exit", "head", "kill", "cancel", "force"])
def test_all_processes_inside_end_with_the_call(tmp_path: Path, how: str) -> None:
    ref = tree.remote(tmp_path, how)
    wait_until(lambda: (tmp_path / "first").exists() and (tmp_path / "first").read_text())
    process = int((tmp_path / "first").read_text())
    if how == "kill":
        assert inside_of(process), "the check finds them"
        os.kill(process, signal.SIGKILL)
    elif how in ("cancel", "force"):
        wait_until(lambda: len(inside_of(process)) >= 4)
        for _ in range(1 if how == "force" else 3):
            cancel(ref, force=how == "force")
        with pytest.raises((TaskCancelledError, WorkerCrashedError)):
            get(ref)
    if how in ("exit", "head", "kill"):
        assert get(ref) != process, "retried as a whole, in another process"
    left = inside_of(process)
    assert left == [] or (how == "cancel" and len(left) == 1 and left == heads_of(process)), left


@pytest.mark.dies("own scheduler")
def test_the_error_names_the_process_of_the_scheduler_if_that_has_died(tmp_path: Path) -> None:
    how = "the process with the scheduler of its call was killed by signal 9"
    with pytest.raises(WorkerCrashedError, match=how):
        get(tree.options(max_retries=0).remote(tmp_path, "head"))


@own
def waits(path: Path) -> int:
    get(double.remote(1))
    path.touch()
    is_open(path.with_suffix(".go"))
    return os.getpid()


def test_it_keeps_its_cpus_and_is_a_job_within_the_job(tmp_path: Path) -> None:
    ref = waits.remote(tmp_path / "runs")
    wait_until((tmp_path / "runs").exists)
    assert mpi_runtime.available_resources().get("CPU", 0) == 0
    other = double.remote(2)
    why = str(mpi_runtime.explain(ref))
    executor = int(why.partition("its calls: `mpi-runtime top ")[2].partition("`")[0])
    assert ran_in(executor) >= 1
    assert executor not in inspecting.jobs()
    (tmp_path / "runs.go").touch()
    assert get([ref, other]) == [executor, 4]


@remote(num_cpus=1, own_scheduler=True, memory=300 << 20, max_retries=0)
def too_large() -> str:
    @remote(max_retries=0)
    def fills() -> None:
        data = np.ones(80 << 20)
        time.sleep(100 + data[0])

    return type(raised(get, fills.remote())).__name__


def test_memory_inside_is_that_of_the_grant() -> None:
    assert get(too_large.remote()) == "OutOfMemoryError"


PROGRAM = """
import os, sys, time
import numpy as np
import mpi_runtime as ray

@ray.remote
def inner(x):
    if "wait" in sys.argv:
        print("inside", flush=True)
        time.sleep(100)
    return os.environ.get("FLAVOUR"), x.sum()

@ray.remote(num_cpus=2, own_scheduler=True, runtime_env={"env_vars": {"FLAVOUR": "sweet"}})
def outer(x):
    found = ray.get([inner.remote(x) for _ in range(5)])
    return found, x * 2

ray.init(num_cpus=2)
x = np.ones(200_000)
for n in range(2):
    found, twice = ray.get(outer.remote(x + n))
    assert found == [("sweet", 200_000 * (n + 1))] * 5, found
    assert twice.sum() == 400_000 * (n + 1)
"""


@pytest.mark.mpi
def test_under_mpirun(tmp_path: Path) -> None:
    """The journal and the recording are those of the outer job."""
    files = {"MPI_RUNTIME_RECORD": str(tmp_path / "record"), "MPI_RUNTIME_JOURNAL": str(tmp_path / "journal")}
    for _ in range(2):
        run_program(PROGRAM, ranks=3, env=files).expect(0)
    assert sorted(os.listdir(tmp_path)) == ["journal", "record", "record.2"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_program_ends(number: int) -> None:
    with start_program(PROGRAM, "wait") as program:
        program.wait_for_line("inside")
        program.signal(number, group=number == signal.SIGINT)
        program.finish()
