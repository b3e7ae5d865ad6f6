"""Members of gangs as plain processes: both MPI libraries, on one node and on several."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.core.gangs import start as starting
from tests.gang_driver import Driver, Gang
from tests.helpers import mpi_python, run_program, start_command

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
SUM = "print(comm.rank, comm.size, comm.allreduce(comm.rank), comm.Split_type(MPI.COMM_TYPE_SHARED).size)"
SPLITS = """
found = []
for kind in ("mpi_shared_memory", "NUMANode", "hwloc://NUMANode", "hwloc://Core", ""):
    info = MPI.Info.Create()
    if kind:
        info["mpi_hw_resource_type"] = kind
    made = comm.Split_type(MPI.COMM_TYPE_HW_GUIDED if kind else MPI.COMM_TYPE_HW_UNGUIDED, 0, info)
    found.append(made.size if made != MPI.COMM_NULL else None)
if comm.rank == 0: print(found)
"""
SESSION = """
if comm.rank: MPI.COMM_SELF.Dup()  # so that numbers of communicators differ
session = MPI.Session.Init()
group = session.Create_group("mpi://WORLD")
for name in "ab":
    made = MPI.Intracomm.Create_from_group(group, name)
    print(made.allreduce(1))
    made.Free()
session.Finalize()
"""
LOGS = """
import ctypes
from mpi_runtime.core.gangs import pmix_types as types
path = next(line.split()[-1] for line in open("/proc/self/maps") if "libpmix.so" in line)
library = ctypes.CDLL(path)
types.declare(library)
library.PMIx_Log.argtypes = [ctypes.c_void_p, ctypes.c_size_t] * 2
info = library.PMIx_Info_create(1)
found = []
for name in b"pmix.log.stderr", b"pmix.log.email":
    library.PMIx_Info_load(info, name, ctypes.cast(ctypes.c_char_p(b"without an end"), ctypes.c_void_p), types.STRING)
    found.append(library.PMIx_Log(info, 1, None, 0))  # waits for the answer
assert found == [0, types.NOT_SUPPORTED], found
"""
ENDS = {
    "killed": "os.kill(os.getpid(), 9)",
    "segmentation fault": "ctypes.string_at(0)",
    "aborted": "comm.Abort(3)",
    "left": "os._exit(0)",
}


@pytest.fixture(params=["openmpi", "mpich"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = Driver(request.param, 3)
    yield driver
    driver.close()


@pytest.mark.parametrize("hosts", [[0], [0, 0], [0, 0, 1], [0, 1, 1, 2]])
def test_members_form_a_world(driver: Driver, hosts: list[int]) -> None:
    gang, ended = driver.run(hosts, SUM)
    size, total = len(hosts), sum(range(len(hosts)))
    assert ended == {rank: (0, f"{rank} {size} {total} {hosts.count(host)}\n", "") for rank, host in enumerate(hosts)}
    assert gang.initialised == gang.finalized == set(range(size))


def test_splits_by_hardware_are_those_of_the_launcher(driver: Driver) -> None:
    """What Open MPI knows of locality without a binding, and what both make of it."""
    command = [str(mpi_python(driver.mpi).with_name("mpiexec")), "-n", "2", *driver.code(SPLITS)]
    with start_command(command, env={"I_MPI_PIN": "0"}) as program:  # Intel's binds its ranks; members are not bound
        bare = program.finish().expect(0).stdout
    assert bare.startswith("[2, ")
    _, ended = driver.run([0, 0], SPLITS)
    assert [text for _, text, _ in ended.values()] == [bare, ""]


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1]])
def test_a_second_program_and_sessions(driver: Driver, hosts: list[int]) -> None:
    first, second = (" ".join(f"'{word}'" for word in driver.code(code)) for code in (SUM, SESSION))
    ended = driver.wait(driver.start(hosts, ["sh", "-c", f"{first} && {second}"]))
    assert [(code, text.split()[4:]) for code, text, _ in ended.values()] == [(0, ["2", "2"])] * 2


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1]])
@pytest.mark.parametrize("end", ENDS)
def test_how_members_end_is_known(driver: Driver, end: str, hosts: list[int]) -> None:
    """And the next gang is well: see the next case."""
    wait = "comm.Barrier(); __import__('time').sleep(60)"
    gang = driver.start(hosts, driver.code(f"import ctypes, os\n{ENDS[end]} if comm.rank else {wait}"))
    driver.until(lambda: bool(aborted(gang)) if end == "aborted" else gang.processes[1].poll() is not None)
    driver.until(lambda: gang.initialised == {0, 1})
    assert gang.finalized == set()
    if end == "aborted":
        assert (1, 3) in [(rank, code) for rank, code, _ in aborted(gang)]
    driver.kill(gang)


def test_texts_of_open_mpi_arrive_once_and_with_each_gang() -> None:
    """Open MPI sends them to its launcher. A server of PMIx by itself has those of each kind once."""
    driver = Driver("openmpi", 1)
    for _ in range(2):
        gang, ended = driver.run([0, 0], "comm.Set_errhandler(MPI.ERRORS_ARE_FATAL); comm.Send(b'x', 7)")
        texts = gang.nodes[0].texts
        assert [is_new for *_, is_new in texts] == [True, False][: len(texts)]
        assert {rank for rank, *_ in texts} <= {0, 1}
        for _, lines, _ in texts:
            assert b"*** An error occurred in MPI_Send\n" in lines
            assert b"*** MPI_ERR_RANK: invalid rank\n" in lines
            assert lines.endswith(b"\n")
        assert all("MPI_ERR_RANK" not in errors for _, _, errors in ended.values())
    gang, ended = driver.run([0], LOGS)
    assert ended[0][0] == 0, ended
    assert [text[1] for text in gang.nodes[0].texts] == [b"without an end\n"]
    driver.close()


def aborted(gang: Gang) -> list[tuple[int, int, str]]:
    return [node.aborted for node in gang.nodes if node.aborted]


def test_members_of_another_library_never_initialise(driver: Driver) -> None:
    other = str(mpi_python({"openmpi": "mpich", "mpich": "openmpi"}[driver.mpi]))
    gang = driver.start([0, 0], [other, *driver.code("print(comm.size)")[1:]])
    ended = driver.wait(gang)
    assert gang.initialised == set()
    if driver.mpi == "mpich":  # MPICH ends by itself under PMIx
        assert [(code, text.split()[-1]) for code, text, _ in ended.values()] == [(0, "1")] * 2


def all_have_initialised(gangs: list[Gang]) -> bool:
    return all(gang.initialised == {0, 1} for gang in gangs)


def test_many_gangs_leave_nothing() -> None:
    """And the helper is renewed meanwhile. What is left after a test is found by its fixtures; here descriptors too."""
    driver = Driver("openmpi", 1)
    driver.run([0], "")
    before = sorted(os.listdir("/proc/self/fd"))
    most, starting.GANGS_MAX = starting.GANGS_MAX, 5
    names: set[str] = set()
    try:
        for _ in range(4):
            gangs = [driver.start([0, 0], driver.code("__import__('time').sleep(60)")) for _ in range(3)]
            driver.until(partial(all_have_initialised, gangs))
            names |= {gang.nodes[0].name for gang in gangs}
            for gang in gangs:
                driver.kill(gang)
        assert len(driver.starts[0]._retired) <= 1
    finally:
        starting.GANGS_MAX = most
    assert len(names) == 12
    assert len(driver.helpers) >= 2
    driver.run([0], "")  # retired helpers that have no gang left end when the next gang begins
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    driver.close()


@pytest.mark.dies("gang helper")
def test_a_helper_that_dies_is_replaced() -> None:
    driver = Driver("openmpi", 1)
    driver.run([0], "")
    first = driver.starts[0]._helper
    os.kill(driver.helpers[-1].pid, signal.SIGTERM)  # as a batch system does at the end of a job: it goes on
    driver.run([0], "")
    assert driver.starts[0]._helper is first
    for moment in ("between gangs", "at the start of one"):
        helper = driver.starts[0]._helper
        assert helper is not None
        pid = driver.helpers[-1].pid
        os.kill(pid, signal.SIGSTOP if moment != "between gangs" else signal.SIGKILL)
        if moment == "between gangs":
            driver.until(partial(getattr, helper, "is_closed"))
        else:
            os.kill(pid, signal.SIGKILL)
        _, ended = driver.run([0, 0], SUM)
        assert [code for code, *_ in ended.values()] == [0, 0]
    driver.close()


def test_a_helper_that_members_have_not_reached_gets_no_further_gang() -> None:
    driver = Driver("openmpi", 1)
    driver.run([0], "")
    first = driver.starts[0]._helper
    driver.kill(driver.start([0, 0], ["sleep", "60"]))
    _, ended = driver.run([0, 0], SUM)
    assert [code for code, *_ in ended.values()] == [0, 0]
    assert driver.starts[0]._helper is not first
    driver.close()


WAITS = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print(comm.allreduce(1))
"""


def test_no_connection_holds_up_a_start_or_ends_what_runs(tmp_path: Path) -> None:
    driver = Driver("openmpi", 1)
    runs = driver.start([0, 0], [*driver.code(WAITS), str(tmp_path / "end")])
    driver.until(lambda: runs.initialised == {0, 1})
    with contextlib.ExitStack() as opened:
        for port in listening_ports(driver.helpers[-1].pid):
            for first in (b"", b"", bytes(20), b"GET / HTTP/1.1\r\n\r\n"):
                one = opened.enter_context(socket.socket())
                one.settimeout(0.2)
                with contextlib.suppress(TimeoutError):  # the kernel drops what does not come from the gate
                    one.connect(("127.0.0.1", port))
                    one.sendall(first)
        _, ended = driver.run([0, 0], SUM)
        assert [code for code, *_ in ended.values()] == [0, 0]
        (tmp_path / "end").touch()
        assert driver.wait(runs) == dict.fromkeys((0, 1), (0, "2\n", ""))
    assert len(driver.helpers) == 1
    driver.close()


def listening_ports(pid: int) -> list[int]:
    """The ports of IPv4 at which a process listens."""
    own = {os.readlink(path) for path in glob.glob(f"/proc/{pid}/fd/*")}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


FIND = "import mpi4py\nimport sys\n{}\nfrom mpi_runtime.core.gangs.library import find\nfound = find()\n"


@pytest.mark.parametrize(("mpi", "protocol"), [("openmpi", "pmix"), ("mpich", "pmi1")])
def test_the_library_is_found(mpi: str, protocol: str) -> None:
    program = FIND.format("") + "print(found.protocol, found.version, 'mpi4py.MPI' in sys.modules)"
    done = run_program(program, python=mpi_python(mpi)).expect(0)
    assert done.stdout.split()[0] == protocol
    assert done.stdout.split()[-1] == "False"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("sys.modules['mpi4py.MPI'] = None", "there is no MPI library for gangs: |Install mpi4py"),
        ("class Ends: exit = __import__('os')._exit; rc = property(lambda self: self.exit(3))\n"
         "sys.modules['mpi4py'] = Ends()", "the process in which mpi4py loads it ended with 3"),
    ],
)  # fmt: skip
def test_without_a_library_the_problem_says_what_to_install(cause: str, words: str) -> None:
    done = run_program(FIND.format(cause) + "print(found.problem)").expect(0)
    assert all(word in done.stdout for word in words.split("|"))
