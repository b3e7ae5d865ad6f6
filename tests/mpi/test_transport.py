"""All transports against one contract, and what is particular to each."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest

from mpi_runtime.core.transport.alone import Alone
from mpi_runtime.core.transport.base import TransportError
from mpi_runtime.core.transport.mpi import MpiTransport
from tests.helpers import run_program
from tests.mpi import contract
from tests.mpi.memory_transport import MemoryTransport, network

HERE = Path(__file__).parent


def in_threads(transports: list[MemoryTransport]) -> None:
    """Run the contract with a thread for each rank; the first failure of a thread is the test's."""
    failures: list[BaseException] = []

    def run(transport: MemoryTransport) -> None:
        try:
            contract.check_all(transport)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(transport,), daemon=True) for transport in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(contract.HANG_S)
    for transport in transports:
        transport.close(clean=True)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)


def test_alone() -> None:
    transport = Alone()
    transport.send(0, b"frame")
    assert transport.prepare_sleep(1.0) == 0.0
    assert transport.receive() == [(0, b"frame")]
    with pytest.raises(TransportError, match="one rank"):
        transport.send_bulk(0, 1, b"data")
    assert transport.fileno() == -1
    assert transport.prepare_sleep(1.0) is None
    assert transport.share_descriptor(17, b"it") == 17
    transport.close(clean=True)


@pytest.mark.parametrize("hosts", [[0], [0, 0, 0], [0, 1, 0, 1]])
def test_network_in_threads(hosts: list[int]) -> None:
    in_threads(network(len(hosts), hosts))


def test_network_in_one_thread() -> None:
    left, right = network(2)
    left.send(1, b"frame")
    assert right.prepare_sleep(0.0) == 0.0
    assert right.receive() == [(0, b"frame")]
    assert right.prepare_sleep(0.0) is None
    left.send(1, b"ring")
    assert os.eventfd_read(right.fileno()) == 1
    target = bytearray(3)
    receive = right.receive_bulk(0, 5, memoryview(target))
    assert not receive.done()
    assert right.busy
    send = left.send_bulk(1, 5, b"abc")
    assert not send.done()
    assert receive.done()
    assert send.done()
    assert target == b"abc"
    assert not right.busy
    right.receive_bulk(0, 5, memoryview(target))
    left.send_bulk(1, 5, b"too long")
    wrong = right.receive_bulk(0, 5, memoryview(target))
    with pytest.raises(TransportError, match="8 bytes were sent for a buffer of 3"):
        wrong.done()
    left.close(clean=True)
    right.close(clean=True)


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize(("ranks", "megabytes"), [(1, 20), (2, 100), (4, 20)])
def test_mpi(mpi: str, ranks: int, megabytes: int) -> None:
    completed = run_program(HERE / "contract.py", str(ranks), str(megabytes), ranks=ranks, mpi=mpi).expect(0)
    for rank in range(ranks):
        assert f"rank {rank} is content" in completed.stdout


@pytest.mark.mpi
def test_ranks_that_mpi_tells_apart_share_their_host() -> None:
    """As MPICH does that is built for UCX alone; this has it do so."""
    env = {"MPIR_CVAR_NOLOCAL": "1"}
    completed = run_program(HERE / "contract.py", "3", "20", ranks=3, mpi="mpich", env=env).expect(0)
    assert completed.stdout.count("is content") == 3
    program = """
import mpi_runtime
mpi_runtime.init(num_cpus=2, num_gpus=1)
print(mpi_runtime.cluster_resources()["CPU"], mpi_runtime.cluster_resources()["GPU"])
"""
    assert run_program(program, ranks=3, mpi="mpich", env=env).expect(0).stdout == "2.0 1.0\n"


@pytest.mark.mpi
def test_mpi_of_another_launcher_is_noticed() -> None:
    program = """
from mpi_runtime.core.transport.base import TransportError
from mpi_runtime.core.transport.mpi import MpiTransport, mpi_is_initialised
try:
    MpiTransport(expected_size=4, cure="use the launcher of your MPI")
except TransportError as error:
    print("refused:", error, flush=True)
    # Nothing but Finalize is missing for a clean end.
    from mpi4py import MPI
    MPI.Finalize()
"""
    completed = run_program(program, mpi="openmpi").expect(0)
    assert "refused: use the launcher of your MPI" in completed.stdout


def test_without_mpi4py_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(TransportError, match=r"mpi4py cannot be loaded .*pip install mpi4py"):
        MpiTransport()


@pytest.mark.mpi
def test_state_of_mpi_is_known_without_starting_it() -> None:
    program = """
import sys
from mpi_runtime.core.transport.mpi import MpiTransport, mpi_is_initialised
assert not mpi_is_initialised()
assert not any(name.startswith("mpi4py") for name in sys.modules)
transport = MpiTransport()
assert mpi_is_initialised()
transport.close(clean=True)
assert not mpi_is_initialised()
print("known")
"""
    assert run_program(program, mpi="openmpi").expect(0).stdout == "known\n"


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_beside_a_program_that_uses_mpi(mpi: str) -> None:
    program = """
import threading
from mpi4py import MPI
from mpi_runtime.core.transport.mpi import MpiTransport
from tests.mpi import contract
def run():
    for _ in range(2):
        transport = MpiTransport(beside_user_mpi=True)
        loop = contract.Loop(transport)
        contract.check_collectives(loop)
        contract.check_order(loop)
        loop.meet(9)
        transport.close(clean=True)
thread = threading.Thread(target=run)
thread.start()
world = MPI.COMM_WORLD
for number in range(50):
    assert world.sendrecv(number, dest=(world.rank + 1) % 2, source=(world.rank + 1) % 2) == number
thread.join()
world.Barrier()
assert not MPI.Is_finalized()
print("is content")
"""
    assert run_program(program, ranks=2, mpi=mpi).expect(0).stdout.count("is content") == 2


@pytest.mark.mpi
def test_beside_a_program_whose_mpi_allows_no_threads() -> None:
    program = """
import mpi4py
mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI
from mpi_runtime.core.transport.base import TransportError
from mpi_runtime.core.transport.mpi import MpiTransport
MpiTransport().send(0, b"")
try:
    MpiTransport(beside_user_mpi=True)
except TransportError as error:
    print(error)
"""
    assert "without MPI_THREAD_MULTIPLE" in run_program(program, mpi="openmpi").expect(0).stdout


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_close_does_not_wait_for_ever(mpi: str) -> None:
    program = """
import os, time
from mpi_runtime.core.transport import mpi
from mpi_runtime.core.transport.base import TransportError
mpi.CLOSE_LIMIT_S = 0.5
transport = mpi.MpiTransport()
if transport.rank == 1:
    time.sleep(3)
else:
    try:
        transport.close(clean=True)
    except TransportError as error:
        print("gave up:", error, flush=True)
        time.sleep(1)
os._exit(3)
"""
    completed = run_program(program, ranks=2, mpi=mpi)
    assert completed.returncode != 0
    assert "gave up: rank 0 has waited" in completed.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_rank_that_hangs_in_finalize_does_not_keep_the_others(mpi: str) -> None:
    program = """
import os, signal
from mpi_runtime.core.transport import mpi
mpi.FINALIZE_LIMIT_S = 0.5
transport = mpi.MpiTransport()
if transport.rank == 1:
    mpi.faulthandler.dump_traceback_later = lambda *_, **options: os.kill(os.getpid(), signal.SIGSTOP)
transport.close(clean=True)
print("closed", flush=True)
"""
    completed = run_program(program, ranks=2, mpi=mpi)
    assert completed.returncode != 0
    assert "closed" not in completed.stdout
    assert re.search(r"mpi\.py\", line \d+ in close", completed.stderr)


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_abort_ends_all_ranks(mpi: str) -> None:
    program = """
import time
from mpi_runtime.core.transport.mpi import MpiTransport, abort_job
transport = MpiTransport()
if transport.rank == 1:
    abort_job(7)
time.sleep(100)
"""
    assert run_program(program, ranks=2, mpi=mpi).returncode in (7, -signal.SIGKILL, 9)


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_sleepers_cost_little_and_wake(mpi: str) -> None:
    # The figures for a quiet machine are in `benchmarks/transport.py`; here, only what no load can excuse.
    completed = run_program(HERE / "sleepers.py", ranks=8, mpi=mpi).expect(0)
    print(completed.stdout)
    percent = float(completed.stdout.partition("idle: ")[2].split()[0])
    assert percent < 10, completed.stdout


@pytest.mark.mpi
def test_large_frames_are_refused() -> None:
    program = """
import mmap
from mpi_runtime.core.transport.base import TransportError
from mpi_runtime.core.transport.mpi import FRAME_BYTES_MAX, MpiTransport
transport = MpiTransport()
try:
    transport.send(0, memoryview(mmap.mmap(-1, FRAME_BYTES_MAX + 1)))
except TransportError as error:
    print(error)
transport.close(clean=True)
"""
    assert "use bulk transfers" in run_program(program, mpi="openmpi").expect(0).stdout


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_open_mpi_does_not_yield_between_start_and_end(mpi: str) -> None:
    # Whatever it was told: ours never wait inside MPI.
    program = """
import os
os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
from mpi_runtime.core.transport import mpi, mpi_libraries as open_mpi
transport = mpi.MpiTransport()
os.write(1, f"yields: {open_mpi.set_yields(False)}\\n".encode())
told = []
mpi.set_yields = lambda yields: told.append((yields, open_mpi.set_yields(yields)))
transport.close(clean=True)
os.write(1, f"end: {told}\\n".encode())
"""
    completed = run_program(program, ranks=2, mpi=mpi).expect(0)
    assert completed.stdout.count("yields: False") == 2
    assert completed.stdout.count("end: [(True, False)]" if mpi == "openmpi" else "end: []") == 2


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("frame_bytes", [300, 3_000, 300_000])
def test_a_sender_sleeps_until_its_frame_is_taken(mpi: str, frame_bytes: int) -> None:
    # Open MPI calls a send finished only when its receiver has looked. The sender must not poll for that.
    program = f"""
import time
from mpi_runtime.core.transport.mpi import MpiTransport
from tests.mpi.contract import Loop
transport = MpiTransport()
loop = Loop(transport)
loop.meet(1)
if transport.rank == 0:
    loop.send(2, 1, bytes({frame_bytes}))
    pauses = transport.prepare_sleep(0.0)
    transport.wake()
    print("pause:", pauses, flush=True)
else:
    time.sleep(0.5)
    ((_, frame),) = loop.expect(2, 1)
    print("taken:", len(frame), flush=True)
loop.meet(3)
transport.close(clean=True)
"""
    completed = run_program(program, ranks=2, mpi=mpi).expect(0)
    assert f"taken: {frame_bytes}" in completed.stdout
    pause = completed.stdout.partition("pause: ")[2].split()[0]
    assert float(pause) == 0 or float(pause) >= 1e-3, completed.stdout
