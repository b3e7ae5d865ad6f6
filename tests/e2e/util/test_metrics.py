"""What all processes of a job record in metrics, in the file of `init(metrics=...)` and in the job's window."""

import re
from pathlib import Path

import pytest

from tests.helpers import run_program

PROGRAM = """
import os, signal, sys, time
import mpi_runtime as ray
from mpi_runtime.core.head import inspecting
from mpi_runtime.show.metrics import rows_of
from mpi_runtime.util.metrics import Counter, Gauge, Histogram

early = Counter("early")
early.inc()
ray.init(num_cpus=3, metrics=sys.argv[1])
requests = Counter("requests_total", "how \\"many\\"\\nwere served", tag_keys=("kind",))
sizes = Histogram("sizes", boundaries=[1, 10])


@ray.remote
def work(number):
    requests.inc(number, tags={"kind": 'a"b'})
    sizes.observe(number)


@ray.remote
class Server:
    def set(self, load):
        Gauge("load").set(load)
        requests.inc(tags={"kind": "actor"})

    def is_killed(self):
        requests.inc(tags={"kind": "killed"})
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGKILL)

    def leaves(self):
        requests.inc(tags={"kind": "left"})
        sys.exit()


def rows():
    found = rows_of(lambda question: inspecting.ask(os.getpid(), question))
    return {(row.family.name, *row.labels): row.numbers for row in found}


assert rows() == {("early",): (1.0,)}
ray.get([work.remote(number) for number in range(1, 21)])
assert rows()["requests", ("kind", 'a"b')] == (210.0,), "it is there when the results are"
stays, *others = [Server.remote() for _ in range(3)]
ray.get([server.set.remote(1.5) for server in (stays, *others)])
assert sum(name[0] == "load" for name in rows()) == 3
for ref in (others[0].is_killed.remote(), others[1].leaves.remote()):
    try:
        ray.get(ref)
    except ray.errors.ActorDiedError:
        pass
requests.inc(tags={"kind": "driver"})
ray.shutdown()
"""


def test_metrics_of_all_processes_are_in_the_file_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    run_program(PROGRAM, str(path)).expect(0)
    text = path.read_text()
    own = [line for line in text.splitlines() if "mpi_runtime_" not in line]
    host, pid = re.findall(r'^load\{node="(.*)",pid="(\d+)"\} 1.5$', text, re.MULTILINE)[0]
    assert own == [
        "# TYPE early counter",
        "early_total 1",
        "# TYPE load gauge",
        f'load{{node="{host}",pid="{pid}"}} 1.5',
        "# TYPE requests counter",
        r"# HELP requests how \"many\"\nwere served",
        r'requests_total{kind="a\"b"} 210',
        'requests_total{kind="actor"} 3',
        'requests_total{kind="driver"} 1',
        'requests_total{kind="killed"} 1',
        'requests_total{kind="left"} 1',
        "# TYPE sizes histogram",
        'sizes_bucket{le="1.0"} 1',
        'sizes_bucket{le="10.0"} 10',
        'sizes_bucket{le="+Inf"} 20',
        "sizes_count 20",
        "sizes_sum 210",
        "# EOF",
    ]
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    families = {one.name: one for one in parser.text_string_to_metric_families(text)}
    assert families["requests"].type == "counter"


AGAIN = """
import sys
import mpi_runtime as ray
from mpi_runtime.util.metrics import Counter

counted = Counter("counted")


@ray.remote
def count():
    counted.inc()


for path in sys.argv[1:]:
    with ray.init(num_cpus=1, metrics=path):
        counted.inc()
        ray.get([count.remote() for _ in range(2)])
"""


def test_a_second_job_of_a_program_has_what_the_program_has_counted(tmp_path: Path) -> None:
    """Its executors are new."""
    paths = [tmp_path / "first", tmp_path / "second"]
    run_program(AGAIN, *map(str, paths)).expect(0)
    assert [[line for line in path.read_text().splitlines() if line[:8] == "counted_"] for path in paths] == [
        ["counted_total 3"],
        ["counted_total 4"],
    ]


ON_RANKS = """
import sys
import mpi_runtime as ray
from mpi_runtime.util.metrics import Counter

counted = Counter("counted", tag_keys=("rank",))


@ray.remote(num_cpus=1)
def count(number):
    counted.inc(tags={"rank": "any"})


with ray.init(num_cpus=2, metrics=sys.argv[1]):
    ray.get([count.remote(number) for number in range(50)])
"""


@pytest.mark.mpi
def test_ranks_without_direct_lines_forward_them(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    run_program(ON_RANKS, str(path), ranks=3, env={"MPI_RUNTIME_DIRECT_LINES": "0"}).expect(0)
    assert 'counted_total{rank="any"} 50' in path.read_text()
