"""Any job as people see it: `mpi-runtime top` while it runs, and the page of `init(report=...)` when it has ended."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mpi_runtime.config import from_init
from mpi_runtime.core.head.inspection import prefix
from mpi_runtime.scheduler.protocol.past import RAISED, Run
from mpi_runtime.show.job import document
from mpi_runtime.show.page import write
from tests import helpers
from tests.browser import Browser, loads_nothing, needs_browser
from tests.unit.show.test_pages import facts, glance_of

JOB = """
import os, sys, time
import mpi_runtime as ray

@ray.remote
def work(gate):
    while not os.path.exists(gate):
        time.sleep(0.02)

@ray.remote
class Counter:
    def add(self, gate):
        work_until_open(gate)

def work_until_open(gate):
    while not os.path.exists(gate):
        time.sleep(0.02)

@ray.remote
def wrong():
    raise ValueError("wrong")

@ray.remote(max_retries=0)
def dies():
    os._exit(3)

with ray.init(num_cpus=2, num_gpus=2, report=sys.argv[2]):
    gate = sys.argv[1]
    counter = Counter.remote()
    first = [counter.add.remote(gate), *(work.remote(gate) for _ in range(3))]
    print("up", flush=True)
    ray.get(first)
    last = [wrong.remote(), dies.remote(), work.options(num_gpus=1).remote(gate)]
    ray.wait(last, num_returns=3)
"""


def top(*words: str, code: int = 0) -> str:
    program = helpers.start_command([sys.executable, "-m", "mpi_runtime", "top", *words])
    with program:
        done = program.finish().expect(code)
        return done.stderr if code else done.stdout


def data_of(page: str) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("ranks", [None, pytest.param(2, marks=pytest.mark.mpi)])
def test_a_job_is_seen_while_it_runs_and_has_a_page_when_it_has_ended(tmp_path: Path, ranks: int | None) -> None:
    gate, path = tmp_path / "gate", tmp_path / "job.html"
    with helpers.start_program(JOB, str(gate), str(path), ranks=ranks) as program:
        program.wait_for_line("up")
        pids = [pid for pid in program.processes() if f"{prefix()}{pid}" in Path("/proc/net/unix").read_text()]
        assert len(pids) == 1, "the program of rank 0 has the address, whoever started it"
        pid = str(pids[0])
        helpers.wait_until(lambda: "3 running" in top(pid), 30, "all that runs")
        seen = top(pid).splitlines()
        assert re.fullmatch(rf"python.*/app.py /.* \(pid {pid}\), .*", seen[0])
        assert re.fullmatch(r"calls: 1 ended, 3 running, 1 waiting; 1 actor, \d+ processes", seen[1])
        assert "2 of 2 CPUs in use; 0 of 2 GPUs in use" in seen[2]
        assert seen[3] == "waiting: 1 of work for room"
        assert seen[4] == "  [>>>>>>>>>>>>>.......] work: 2 running, 1 waiting"
        assert "  [>>>>>>>>>>>>>>>>>>>>] Counter.add: 1 running" in seen
        assert any(re.fullmatch(r"  actor \w+ \(Counter\): alive, 0 calls waiting", line) for line in seen)
        assert sum(bool(re.fullmatch(r"  runs  \S+  for .*s  on \S+, rank \d, pid \d+", line)) for line in seen) == 3
        assert not path.exists()
        gate.touch()
        program.finish().expect(0)
    assert "no running job with the process id" in top(pid, code=2)

    check_page(path)


def block(document: Any, id: str) -> Any:
    return next(one for one in document["blocks"] if one["id"] == id)


def check_page(path: Path) -> None:
    """The page of an ended job: the headline agrees with what is listed, and errors have their texts."""
    page = path.read_text()
    assert [one.name for one in path.parent.iterdir() if "html" in one.name] == ["job.html"]
    document = data_of(page)
    did, went, failed, when = block(document, "answers")["cards"]
    assert (did["big"], did["small"]) == ("8", "calls ended")
    assert (failed["big"], failed["small"].partition(",")[0]) == ("2", "of 8 ended calls")
    assert sorted(text.partition(":")[0] for text, _, _ in failed["rows"]) == ["ValueError", "WorkerCrashedError"]
    assert went["big"].endswith("%")
    assert when["rows"] == [["calls done", "6"], ["calls not done", "2"]]
    rows = block(document, "calls")["rows"]
    assert sorted((row[1], row[2]) for row in rows) == sorted(
        [("work", "done")] * 4
        + [("Counter", "done"), ("Counter.add", "done"), ("wrong", "failed"), ("dies", "failed: its process died")]
    )
    functions = block(document, "functions")
    assert {row[0]: (row[6], row[7]) for row in functions["rows"]} == {
        "work": (4, 0), "Counter": (1, 0), "Counter.add": (1, 0), "wrong": (0, 1), "dies": (0, 1),
    }  # fmt: skip
    (error,) = functions["details"]["wrong"][0]["errors"]
    assert error["text"] == "ValueError: wrong"
    assert error["trace"].endswith("ValueError: wrong")
    assert 'raise ValueError("wrong")' in error["trace"]
    assert len(set(document["colours"].values())) == 5, "each function has its own colour"
    assert [one["name"] for one in block(document, "use")["series"]] == ["CPUs", "GPUs"]
    assert any(lane["label"].startswith("GPU") for lane in block(document, "timeline")["lanes"])
    assert loads_nothing(page)


def test_watching_ends_with_the_job_or_with_an_interrupt(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate), str(tmp_path / "job.html")) as program:
        program.wait_for_line("up")
        words = [sys.executable, "-m", "mpi_runtime", "top", str(program.pid), "--watch"]
        with helpers.start_command(words) as stays, helpers.start_command(words) as goes:
            helpers.wait_until(lambda: "calls:" in stays.stdout and "calls:" in goes.stdout, 30, "the first picture")
            goes.signal(signal.SIGINT)
            goes.finish().expect(130)
            gate.touch()
            program.finish().expect(0)
            assert stays.finish().expect(0).stdout.endswith("the job has ended\n")


def test_a_visitor_who_goes_at_once_or_reads_nothing_does_no_harm(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate), str(tmp_path / "job.html")) as program:
        program.wait_for_line("up")
        with ExitStack() as stack:
            visitors = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(30)]
            for number, visitor in enumerate(visitors):  # connect() waits while too many are in line
                visitor.connect(f"\0{prefix()}{program.pid}")
                with suppress(BrokenPipeError):
                    visitor.sendall(b"x" * 1000 if number % 3 else b"")
                if number % 2:
                    visitor.close()
            assert "calls:" in top(str(program.pid))
        gate.touch()
        program.finish().expect(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root")
def test_another_user_is_told_nothing(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = """
import os, socket, sys
os.setresuid(65534, 65534, 65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
    visitor.settimeout(20)
    visitor.connect("\\0" + sys.argv[1])
    try:
        print(visitor.recv(100))
    except ConnectionResetError:
        print(b"")
"""
    with helpers.start_program(JOB, str(gate), str(tmp_path / "job.html")) as program:
        program.wait_for_line("up")
        words = [sys.executable, "-c", code, f"{prefix()}{program.pid}"]
        told = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert told.stdout == "b''\n", told.stderr
        gate.touch()
        program.finish().expect(0)


def test_somebody_else_s_address_is_not_believed() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{prefix()}999999999")
        listener.listen(1)
        listener.settimeout(20)
        with helpers.start_command([sys.executable, "-m", "mpi_runtime", "top", "999999999"]) as program:
            visitor, _ = listener.accept()
            with visitor:
                visitor.sendall(b"\xc1 no message")
            assert "no running job with the process id 999999999" in program.finish().expect(2).stderr


def test_where_a_report_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a directory"):
        from_init(report=str(tmp_path))
    with pytest.raises(ValueError, match="its directory does not exist"):
        from_init(report=tmp_path / "none" / "job.html")
    with pytest.raises(TypeError, match="report must be the path of a file"):
        from_init(report=5)
    source = (
        "import os, sys, shutil, mpi_runtime as ray\n"
        "ray.init(num_cpus=1, report=sys.argv[1] + '/job.html'); shutil.rmtree(sys.argv[1]); print('end')\n"
    )
    place = tmp_path / "goes"
    place.mkdir()
    done = helpers.run_program(source, str(place)).expect(0)
    assert done.stdout == "end\n"
    assert "job.html could not be written" in done.stderr


@needs_browser
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """What a person sees and does: opens an error, sorts, searches; narrow and dark nothing is cut off."""
    (tmp_path / "gate").touch()
    path = tmp_path / "job.html"
    helpers.run_program(JOB, str(tmp_path / "gate"), str(path)).expect(0)
    with Browser(tmp_path) as browser:
        browser.years_later(1)
        browser.open(path.as_uri())
        browser.wait_for("document.body.dataset.ready === 'yes'")
        assert browser.run("new Date().getFullYear()") > time.localtime().tm_year
        assert f"started {time.strftime('%Y-%m-')}" in browser.run("document.querySelector('#meta').innerText")
        assert f"last at {time.strftime('%Y-%m-')}" in path.read_text()
        assert browser.run("document.querySelector('#actors tbody .pill').textContent") == "ended"
        browser.run("document.querySelector('#answers .more a[href=\"#functions\"]').click()")
        opened = "[...document.querySelectorAll('#functions tr.open')].map(one => one.dataset.id).sort().join()"
        browser.wait_for(f"{opened} === 'dies,wrong'")
        browser.wait_for("document.querySelectorAll('#functions .detail .err').length === 2")
        assert "ValueError: wrong" in browser.run("document.querySelector('#functions').innerText")
        browser.run("document.querySelector('#functions [data-id=dies] .tog').click()")
        browser.run("document.querySelector('#functions [data-id=wrong] .tog').click()")
        browser.run(
            "[...document.querySelectorAll('#answers li a')].find(a => a.textContent.startsWith('ValueError')).click()"
        )
        browser.wait_for(f"{opened} === 'wrong'")
        names = "[...document.querySelectorAll('#calls tbody tr td:first-child')].map(one => one.textContent)"
        assert len(browser.run(names)) == 8
        browser.run(
            "const field = document.querySelector('#calls input'); field.value = 'failed'; "
            "field.dispatchEvent(new Event('input'))"
        )
        assert sorted(browser.run(names)) == ["dies", "wrong"]
        browser.run("document.querySelector('#functions th:nth-child(1) button').click()")
        order = "[...document.querySelectorAll('#functions tbody tr.row')].map(one => one.dataset.id).join()"
        assert browser.run(order) == "Counter,Counter.add,dies,work,wrong"
        browser.wait_for("document.querySelectorAll('#timeline rect').length >= 8")
        for width in (400, 1600):
            browser.resize(width, 900)
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert not browser.problems


@needs_browser
def test_a_page_with_names_of_any_kind(tmp_path: Path) -> None:
    """A long name moves no column out of the page, and one that JavaScript knows is a name like others."""
    names = ["constructor", "__proto__", "long" * 100]
    glance = glance_of()
    (function,), (error,) = glance.functions, glance.errors
    glance.functions = [replace(function, name=name) for name in names]
    glance.errors = [replace(error, function=name, trace="") for name in names[1:]]
    runs = [Run(name, 0, "a", 0, 7, "", 10, 20, 30, RAISED, 0, 1.0, 0.0, []) for name in names]
    write(str(tmp_path / "page.html"), document(facts(state="ended", glance=glance, runs=runs, ran=3, errors={})))
    with Browser(tmp_path, width=1600) as browser:
        browser.open((tmp_path / "page.html").as_uri())
        for name, seen in (("constructor", "nothing more is known"), ("__proto__", "1 call failed")):
            browser.run(f"document.querySelector('#functions [data-id={name}] .tog').click()")
            browser.wait_for(f"document.querySelector('[data-id={name}] + .detail').innerText.includes('{seen}')")
        assert browser.run("document.querySelector('#functions .scroll').scrollWidth") <= 1600
        browser.resize(400, 900)
        assert browser.run("document.documentElement.scrollWidth") <= 400
        assert not browser.problems
