"""Who may connect to a session, and what the others are told."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mpi_runtime.core.transport.hello import LENGTH_BYTES, Hello, address_of, ways
from mpi_runtime.core.transport.start import read_welcome
from tests.e2e.sessions.started import content, driver, said, session


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a running session."""
    found = tmp_path_factory.mktemp("state")
    with session(found, "--num-cpus", "1"):
        yield found


def visitor(state: Path) -> socket.socket:
    """A connection to the door of the session."""
    found = content(state)
    assert found is not None
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.connect(address_of(found.secret))
    end.settimeout(30.0)
    return end


def answer(end: socket.socket, hello: Hello) -> str:
    """The problem with a hello, in words."""
    data = msgspec.msgpack.encode(hello)
    socket.send_fds(end, [len(data).to_bytes(LENGTH_BYTES, "little") + data], [1, 2])
    welcome, arena = read_welcome(end)
    if arena >= 0:
        os.close(arena)
    return welcome.problem


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("package", "0.0.0", "mpi_runtime is 0.0.0 in the program"),
        ("python", "2.7", "Python is 2.7 in the program"),
        ("protocol", 77, "the protocol of connections is 77"),
        ("byte_order", "middle", "the byte order is middle"),
        ("machine", "abacus", "the machine is abacus"),
    ],
)
def test_another_version_is_refused_in_words(state: Path, what: str, value: str | int, words: str) -> None:
    found = content(state)
    assert found is not None
    with visitor(state) as end:
        assert words in answer(end, Hello(secret=found.secret, ways={**ways(), what: value}))
    with visitor(state) as end:  # and this one is let in
        assert answer(end, Hello(secret=found.secret, ways=ways())) == ""


def test_a_wrong_secret_is_refused(state: Path) -> None:
    with visitor(state) as end:
        assert "its secret is not that of this session" in answer(end, Hello(secret="guessed", ways=ways()))


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", b"\x02\0\0\0{}"], ids=["long", "junk", "other"]
)
def test_junk_is_refused(state: Path, data: bytes) -> None:
    with visitor(state) as end:
        end.sendall(data)
        assert "refuses the connection" in read_welcome(end)[0].problem


def test_silent_visitors_keep_nobody_out(state: Path) -> None:
    silent = [visitor(state) for _ in range(80)]
    try:
        with driver(state, "print(ray.get(ray.put(1)))") as program:
            assert program.finish().expect(0).stdout == "1\n"
    finally:
        for one in silent:
            one.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_is_turned_away(state: Path) -> None:
    found = content(state)
    assert found is not None
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(12345)
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            end.connect("\0" + address_of(found.secret)[1:].replace("-12345-", "-0-"))
            end.settimeout(30.0)
            os.write(writer, b"closed" if end.recv(1) == b"" else b"answered")
        except OSError as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 100)
    os.close(reader)
    assert said in (b"closed", b"ConnectionResetError")


def test_a_file_that_others_may_read_is_not_used(state: Path) -> None:
    (path,) = state.glob("mpi_runtime/sessions/*/s.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    try:
        with driver(state, "") as program:
            assert "there is no session of this name" in program.finish().expect(1).stderr
    finally:
        path.chmod(0o600)


WRONG = """
import mpi_runtime as ray
for address, arguments in {cases}:
    try: print(ray.init(address, **arguments))
    except Exception as error: print(type(error).__name__, error)
    if ray.is_initialized(): ray.shutdown()
"""


def test_addresses_and_arguments_are_refused_in_words(state: Path) -> None:
    cases = [
        ("session:none", {}), ("session:..", {}), ("ray://host:1", {}), ("slurm:4711", {}), ("10.0.0.1:6379", {}),
        ("session:s", {"num_cpus": 2}), ("session:s", {"journal": "x"}), ("auto", {"report": "x.html"}), (7, {}),
    ]  # fmt: skip
    with driver(state, WRONG.format(cases=cases), connects=False) as program:
        lines = program.finish().expect(0).stdout.splitlines()
    begins = [
        "ConnectionError init('session:none'): there is no session of this name; "
        "start one with `mpi-runtime session start --name none`.",
        "ValueError init('session:..')",
        "ValueError init(address) is 'ray://host:1'",
        "ConnectionError init('slurm:4711'): no session of this user is in this job",
        "ValueError init(address) is '10.0.0.1:6379'",
        "ValueError When connecting to an existing cluster, num_cpus must not be provided",
        "ValueError When connecting to an existing cluster, journal must not be provided",
        "ValueError When connecting to an existing cluster, report must not be provided",
        "TypeError address must be a string",
    ]
    others = [line for line in lines if line.startswith("  s: ")]
    assert others == 2 * ["  s: it runs on this host: init('session:s')"]
    lines = [line for line in lines if line not in others]
    assert len(lines) == len(begins)
    for line, begin in zip(lines, begins, strict=True):
        assert line.startswith(begin)


def test_auto_without_a_session_and_with_two(state: Path, tmp_path: Path) -> None:
    source = "import mpi_runtime as ray\nray.init('auto', quiet=True)"
    with driver(tmp_path, source, connects=False) as program:
        assert "ConnectionError: init('auto'): no session of this user runs" in program.finish().expect(1).stderr
    with session(state, "--num-cpus", "1", name="second"):
        with driver(state, source, connects=False) as program:
            stderr = program.finish().expect(1).stderr
        assert "2 sessions of this user run on this host; name one:" in stderr
        assert "init('session:s')" in stderr
        assert "init('session:second')" in stderr


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"MPI_RUNTIME_ADDRESS": "session:s"}, "session:s"),
        ({"RAY_ADDRESS": "auto"}, "session:s"),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, "local"),
        ({"MPI_RUNTIME_ADDRESS": "local", "RAY_ADDRESS": "auto"}, "local"),
        ({}, "local"),
    ],
    ids=str,
)
def test_variables_name_the_session(
    state: Path, variables: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import os, json, mpi_runtime as ray
found = ray.init(quiet=True)
names = [name for name in os.environ if name.endswith("_ADDRESS")]
@ray.remote
def inside(): return [name for name in names if name in os.environ]
print(json.dumps([found["address"], ray.get(inside.remote())]))
"""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with driver(state, source, connects=False) as program:
        ended = program.finish().expect(0)
    is_foreign = variables.get("RAY_ADDRESS", "").startswith("10.")
    assert json.loads(ended.stdout) == [address, ["RAY_ADDRESS"] if is_foreign else []]
    assert ("a cluster of Ray: ignored" in ended.stderr) == is_foreign


def test_a_program_with_its_own_mpi_is_refused(state: Path) -> None:
    source = """
from mpi4py import MPI
import mpi_runtime as ray
try: ray.init("session:s")
except Exception as error: print(type(error).__name__, "has started MPI itself" in str(error))
"""
    with driver(state, source, connects=False) as program:
        assert program.finish().expect(0).stdout == "LaunchError True\n"


def test_the_list_has_it(state: Path) -> None:
    found = content(state)
    assert found is not None
    rows = [line.split() for line in said(state, "list").stdout.splitlines()]
    assert rows[0] == ["NAME", "HOST", "PID", "JOB", "BEGAN", "STATE"]
    assert next(row for row in rows[1:] if row[0] == "s")[2] == str(found.pid)
    assert rows[1][-1] == "running"
