"""The source of a value dies in the middle of sending it, under Open MPI with ULFM; or who wants it is cancelled."""

from __future__ import annotations

import pytest

from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(240)]
RANKS = {f"host{number}": 1 for number in range(1, 5)}

SLOWER = """
import os, signal, time
from mpi_runtime.core.objects import sends

RANK = os.environ.get("OMPI_COMM_WORLD_RANK")
ORDERS = os.path.dirname(os.path.abspath(__file__))
send = sends.Sends._send

def slowly(self, outgoing, chunk, is_large):
    "Each large chunk takes a while. Who is told to dies in the middle of a value."
    send(self, outgoing, chunk, is_large)
    if len(chunk) < 1 << 18:
        return
    time.sleep(0.05)
    if outgoing.at > outgoing.pull.size / 2:
        try:
            os.rename(f"{ORDERS}/die{RANK}", f"{ORDERS}/died{RANK}")
        except OSError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

sends.Sends._send = slowly
"""

BEGIN = (
    SLOWER
    + """
import numpy as np
import mpi_runtime as ray

SIZE = 96 << 20
ray.init(num_cpus=1)

def on(host):
    return dict(resources={f"node:{host}": 0.001}, num_cpus=0)

def soft(host):
    "There, or elsewhere when it is gone."
    number = next(node["NodeID"] for node in ray.nodes() if node["NodeManagerHostname"] == host)
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(number, soft=True)
    return dict(scheduling_strategy=strategy)

@ray.remote
def make(seed):
    return np.random.default_rng(seed).integers(0, 255, SIZE, dtype=np.uint8)

@ray.remote
def check(seed, array):
    assert np.array_equal(array, np.random.default_rng(seed).integers(0, 255, SIZE, dtype=np.uint8))
    return os.uname().nodename

def made(host, **options):
    value = make.options(**soft(host), **options).remote(1)
    ray.wait([value], fetch_local=False)
    return value

def is_to_die(rank):
    open(f"{ORDERS}/die{rank}", "w").close()

def died():
    return [int(name[4:]) for name in os.listdir(ORDERS) if name.startswith("died")]

def ranks():
    return sorted(rank for node in ray.nodes() for rank in node["ranks"])

def stores():
    return {node["hostname"]: node for node in ray.util.memory_summary()}

def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, stores()
        time.sleep(0.01)

@ray.remote
def sent():
    with open("/proc/net/dev") as lines:
        return sum(int(line.split(":")[1].split()[8]) for line in lines if ":" in line and " lo:" not in line)

class Sent:
    "How much a host sends, in sizes of the value."
    def __init__(self, host):
        self.host, self.before = host, ray.get(sent.options(**on(host)).remote())
    def so_far(self):
        return (ray.get(sent.options(**on(self.host)).remote()) - self.before) / SIZE
"""
)

ANOTHER = """
value = made("host2", max_retries=0)  # it cannot be made again
assert ray.get(check.options(**on("host3")).remote(1, value)) == "host3"
is_to_die(1)
before = Sent("host3")
assert ray.get(check.options(**on("host4")).remote(1, value)) == "host4"
assert before.so_far() < 0.7, before.so_far()  # what had come from host2 was kept
"""

IN_CHAIN = """
value = made("host2", max_retries=0)
ray.get([sent.options(**on(host)).remote() for host in ("host3", "host4")])  # their executors are there
before = Sent("host2")
is_to_die(2)
first = check.options(**on("host3"), max_retries=0).remote(1, value)
until(lambda: stores()["host3"]["in_flight"])
assert ray.get(check.options(**on("host4")).remote(1, value)) == "host4"  # by way of host3, at first
assert before.so_far() < 1.4, before.so_far()
"""

AGAIN = """
value = made("host2", max_retries=3)
is_to_die(1)
assert ray.get(check.options(**on("host4")).remote(1, value)) == "host4"
"""

LOST = """
value = made("host2", max_retries=0)
is_to_die(1)
try:
    ray.get(check.options(**on("host4")).remote(1, value))
except ray.exceptions.ObjectLostError as error:
    assert "rank 1 on host2" in str(error), error
else:
    raise AssertionError("there is a value")
assert ray.get(check.options(**on("host4")).remote(2, make.remote(2))) == "host4"  # all others are well
"""

CANCELLED = """
def begun(*hosts):
    until(lambda: all(stores()[host]["in_flight"] for host in hosts))
    until(lambda: before.so_far() > 0.1)

def ended(*hosts):
    "Nothing more comes to these hosts, and nothing is kept for it."
    until(lambda: not any(stores()[host]["in_flight"] for host in hosts))
    until(lambda: not any(stores()[host]["used"] for host in hosts))
    at_end = before.so_far()  # and what is in the hands of MPI
    time.sleep(0.5)
    assert before.so_far() < at_end + 0.25, (at_end, before.so_far())
    return at_end

value = made("host2")
for how in ("call", "two calls", "get"):
    before = Sent("host2")
    if how == "get":
        try:
            ray.get(value, timeout=0.3)
        except ray.exceptions.GetTimeoutError:
            del value
        begun("host1")
        assert ended("host1") < 0.9
        until(lambda: not stores()["host2"]["used"])
        continue
    hosts = ("host4",) if how == "call" else ("host3", "host4")
    calls = [check.options(**on(host)).remote(1, value) for host in hosts]
    begun(*hosts)
    for call in calls:
        ray.cancel(call)
    for call in calls:
        try:
            ray.get(call)
        except ray.exceptions.TaskCancelledError:
            continue
        raise AssertionError("it was not cancelled")
    assert ended(*hosts) < 0.9
"""

END = """
assert len(died()) == 1, died()
assert ranks() == [rank for rank in range(4) if rank not in died()]
"""


CASES = {"another source": ANOTHER, "a link of a chain": IN_CHAIN, "made again": AGAIN, "lost": LOST}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.dies("rank with ulfm")
def test_a_source_is_killed_in_the_middle(case: str, four_hosts: Lab) -> None:
    """Another one takes over, or the value is made again, or whoever wants it gets an error that says why."""
    with four_hosts.mpirun(BEGIN + CASES[case] + END, ranks=RANKS, options=("--with-ft", "ulfm")) as program:
        program.finish(timeout=200).expect()


def test_who_wants_a_value_is_cancelled_in_the_middle(four_hosts: Lab) -> None:
    """Or has waited long enough: the rest of the value stays where it is, and memory is given back."""
    with four_hosts.mpirun(BEGIN + CANCELLED, ranks=RANKS, mpi="mpich") as program:
        program.finish(timeout=200).expect()
