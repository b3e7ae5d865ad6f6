"""Name look-ups of half a second each: submit first, get later; then through an actor; then as they come.

Shows the mistake of calling `get` inside the loop that submits, a reference to a reference, and `wait`.

    python examples/lookups.py
    mpi-runtime run -n 4 examples/lookups.py
"""

import time
from typing import Any

import mpi_runtime

mpi_runtime.init(num_cpus=4)

ADDRESSES = {"alpha": "192.0.2.1", "beta": "192.0.2.2", "gamma": "192.0.2.3", "delta": "192.0.2.4"}


@mpi_runtime.remote
def look_up(name: str, seconds: float = 0.5) -> str:
    time.sleep(seconds)
    return ADDRESSES[name]


@mpi_runtime.remote
class NameServer:
    """Holds the table once, for everybody."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table
        self.questions = 0

    def address(self, name: str) -> str:
        self.questions += 1
        return self.table[name]

    def question_count(self) -> int:
        return self.questions


@mpi_runtime.remote
def ask(server: Any, name: str) -> Any:
    """Return the reference of the answer, without waiting for it."""
    time.sleep(0.5)
    return server.address.remote(name)


started = time.perf_counter()


def report(name: str, address: str) -> None:
    assert address == ADDRESSES[name]
    print(f"  {name:6} {address:12} after {time.perf_counter() - started:.2f} s")


mpi_runtime.get([look_up.remote(name, 0.0) for name in ADDRESSES])  # the first tasks wait for processes to start

print("get inside the loop: each look-up waits for the one before")
started = time.perf_counter()
for name in ADDRESSES:
    report(name, mpi_runtime.get(look_up.remote(name)))

print("submit all, then get: half a second for all")
started = time.perf_counter()
refs = [look_up.remote(name) for name in ADDRESSES]
for name, address in zip(ADDRESSES, mpi_runtime.get(refs), strict=True):
    report(name, address)

print("through an actor that holds the table: each task returns a reference, so get twice")
server = NameServer.remote(ADDRESSES)
started = time.perf_counter()
answers = [ask.remote(server, name) for name in ADDRESSES]
for name, address in zip(ADDRESSES, mpi_runtime.get(mpi_runtime.get(answers)), strict=True):
    report(name, address)
assert mpi_runtime.get(server.question_count.remote()) == len(ADDRESSES)

print("wait: the quick ones first")
delays = {"alpha": 0.6, "beta": 0.2, "gamma": 0.4, "delta": 0.0}
started = time.perf_counter()
names = {look_up.remote(name, seconds): name for name, seconds in delays.items()}
pending = list(names)
while pending:
    [ready], pending = mpi_runtime.wait(pending)
    report(names.pop(ready), mpi_runtime.get(ready))
assert not names
