"""A batch as people see it: status, logs, the archive of outputs, a live view, and the report in a browser."""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import Began, Capacity, Ended, Finished, History, Run, read_history
from mpi_runtime.batch.history.outputs import ARCHIVE
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.batch.show import report
from mpi_runtime.batch.show.overview import in_lines, overview
from mpi_runtime.show import page as pages
from tests import helpers
from tests.browser import Browser, loads_nothing, needs_browser
from tests.e2e.cli.test_batch import run_batch, written


def view(folder: Path, *words: str, code: int = 0) -> str:
    return run_batch(*words, cwd=folder).expect(code).stdout


def test_status_and_logs_while_it_runs_and_after(tmp_path: Path) -> None:
    text = (
        "echo first words; touch begun; while [ ! -e go ]; do sleep 0.05; done; exit 3\necho two #batch after=line-1\n"
    )
    file = written(tmp_path / "jobs.txt", text)
    with helpers.start_command([sys.executable, "-m", "mpi_runtime", "batch", file], cwd=tmp_path) as program:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        helpers.wait_until(lambda: " running, 1 waiting" in view(tmp_path, "status", "jobs"), 60, "where it runs")
        seen = view(tmp_path, "status", "jobs").splitlines()
        assert re.fullmatch(rf"jobs: run by .* \(pid {program.pid}\) since \d{{4}}-.*", seen[0])
        assert seen[1] == "0 of 2 done, 1 running, 1 waiting"
        assert re.fullmatch(rf"  runs    line-1 for [\d.]+ [mµ]?s on {os.uname().nodename}", seen[3])
        assert view(tmp_path, "log", "jobs", "line-1") == "first words\n"
        (tmp_path / "go").touch()
        program.finish().expect(1)
    seen = view(tmp_path, "status", "batch-jobs", code=1).splitlines()
    assert seen[0].startswith("jobs: not running; last started ")
    assert seen[1] == "0 of 2 done, 1 failed, 1 skipped", "as the run has said"
    assert seen[3] == "  failed  line-1: exit code 3"
    assert view(tmp_path, "log", file, "line-1") == "first words\n"
    assert "the command 'line-2' has not ended" in run_batch("log", "jobs", "line-2", cwd=tmp_path).stderr
    assert "there is no batch 'other' here" in run_batch("status", "other", cwd=tmp_path).expect(2).stderr


def test_all_outputs_in_one_file(tmp_path: Path) -> None:
    text = "echo one\nprintf 'no end'\necho three >&2; exit 1\necho own #batch stdout=own\ntrue\n"
    file = written(tmp_path / "jobs.txt", text)
    done = run_batch(file, "--log-archive", cwd=tmp_path).expect(1)
    assert "    | three\n" in done.stderr
    assert sorted(os.listdir(tmp_path / "batch-jobs")) == ["journal", ARCHIVE]
    logs = [view(tmp_path, "log", "jobs", f"line-{number}") for number in range(1, 6)]
    assert logs == ["one\n", "no end", "three\n", "own\n", ""]
    run_batch(file, "--log-archive", cwd=tmp_path).expect(1)
    assert view(tmp_path, "log", "jobs", "line-3") == "three\n"
    assert (tmp_path / "batch-jobs" / ARCHIVE).read_text() == "one\nno endthree\nthree\n" or sorted(
        (tmp_path / "batch-jobs" / ARCHIVE).read_text()
    ) == sorted("one\nno endthree\nthree\n"), "in the order of their ends"


def test_a_terminal_has_a_picture_that_goes_when_it_is_over(tmp_path: Path) -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    file = written(tmp_path / "jobs.txt", "while [ ! -e go ]; do sleep 0.05; done\nexit 4\n")
    child = pexpect.spawn(
        sys.executable, ["-m", "mpi_runtime", "batch", file], cwd=str(tmp_path), dimensions=(30, 120), timeout=60,
        env={**os.environ, "PYTHONPATH": str(helpers.ROOT), "TERM": "xterm"},
    )  # fmt: skip
    try:
        child.expect("failed: line-2: exit code 4")
        child.expect("0 of 2 done, 1 failed, 1 running")
        child.expect("runs    line-1 for ")
        (tmp_path / "go").touch()
        child.expect("1 of 2 done, 1 failed; ")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 1
    finally:
        child.close(force=True)


def ended(name: str, start: float, took: float, code: int = 0, host: str = "a", gpus: tuple[int, ...] = ()) -> Ended:
    result = CommandResult(
        name=name, command=f"run </script> {name}", exit_code=code, is_success=not code, start=start, end=start + took,
        host=host, gpu_ids=gpus, cpu_time=took / 2, peak_memory=1 << 20,
    )  # fmt: skip
    return Ended(1, b"k" * 16, result, 1.0, float(len(gpus)))


def some_history() -> History:
    history = History()
    names = [f"c.{number}" for number in range(8)]
    history.plan = {"c": Group("c", tuple(Command(text="true", name=name) for name in names), is_array=True)}
    history.runs = [Run("vm (pid 1)", 100.0, [Capacity("a", 2, 0, 0), Capacity("b", 2, 2, 0)])]
    for one in (
        ended("c.0", 100, 10), ended("c.1", 100, 5, 3), ended("c.2", 105, 5), ended("c.3", 100, 20, 0, "b", (0, 1)),
        ended("c.4", 110, 10, 0, "b", ()),
    ):  # fmt: skip
        history.note(one)
    history.began["c.5"] = Began("c.5", 115.0, "a")
    return history


def test_an_overview_counts_and_tells_when_it_may_end() -> None:
    found = overview(some_history(), 120.0, True)
    assert (found.total, found.done, len(found.failed), len(found.running), found.waiting) == (8, 4, 1, 1, 2)
    assert found.cpu_use == pytest.approx((10 + 5 + 5 + 20 + 10) / (4 * 20))
    assert found.gpu_use == pytest.approx(1.0)
    assert found.left_s == pytest.approx(10), "three at a time, 10 s each"
    assert in_lines("c", found, "vm (pid 1)", 120.0)[1:] == [
        "4 of 8 done, 1 failed, 1 running, 2 waiting",
        "CPUs used: 62%, GPUs used: 100%; at this pace it ends in 10 s",
        "  runs    c.5 for 5 s on a",
        "  failed  c.1: exit code 3",
    ]
    found = overview(some_history(), 500.0, False)
    assert (len(found.running), found.waiting, found.left_s, found.end_s) == (0, 3, None, 120.0)
    found = overview(History(), 500.0, False)
    assert (found.total, found.cpu_use) == (0, 0.0)


def test_what_a_failure_or_a_cancel_keeps_from_running_is_skipped_for_all() -> None:
    history = some_history()
    history.plan["d"] = Group("d", (Command(text="true", name="d", after=("c.1",)),), ("c.1",))
    history.plan["e"] = Group("e", (Command(text="true", name="e"),))
    history.controls["e"] = "cancel"
    found = overview(history, 120.0, True)
    assert (found.total, found.waiting, found.skipped) == (10, 2, 2)
    assert in_lines("c", found, "vm (pid 1)", 120.0)[1] == "4 of 10 done, 1 failed, 1 running, 2 waiting, 2 skipped"
    assert (
        in_lines("c", overview(history, 500.0, False), "", 500.0)[1] == "4 of 10 done, 1 failed, 3 not run, 2 skipped"
    )
    history.finished = Finished(1)
    assert in_lines("c", overview(history, 500.0, False), "", 500.0)[1] == "4 of 10 done, 1 failed, 5 skipped"


def test_a_cancelled_command_counts_once_also_while_it_ends() -> None:
    history = some_history()
    history.began["c.6"] = Began("c.6", 115.0, "")  # submitted, and cancelled before it started
    history.controls |= {"c.5": "cancel", "c.6": "cancel"}
    found = overview(history, 120.0, True)
    assert in_lines("c", found, "vm (pid 1)", 120.0)[1] == "4 of 8 done, 1 failed, 1 running, 1 waiting, 1 skipped"
    found = overview(history, 120.0, False)
    assert in_lines("c", found, "", 120.0)[1] == "4 of 8 done, 1 failed, 1 not run, 2 skipped"


def test_the_first_end_of_many_commands_that_run_at_a_time_says_how_long_the_rest_takes() -> None:
    history = History()
    names = [f"c.{number}" for number in range(24)]
    history.plan = {"c": Group("c", tuple(Command(text="true", name=name) for name in names), is_array=True)}
    history.runs = [Run("vm (pid 1)", 100.0, [Capacity("a", 8, 0, 0)])]
    history.began = {name: Began(name, 100.0, "a") for name in names[:8]}
    history.note(ended("c.0", 100, 60))
    found = overview(history, 160.0, True)
    assert found.left_s == pytest.approx(120), "two more rounds of 60 s, and not 23 times 60 s"


def block(document: Any, id: str) -> Any:
    return next(one for one in document["blocks"] if one["id"] == id)


def test_the_report_has_everything_in_it_and_loads_nothing() -> None:
    page = pages.page(report.document("c<b>", "/nowhere", some_history(), 120.0, True))
    assert "<title>c&lt;b&gt;</title>" in page
    assert loads_nothing(page)
    document = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    rows = block(document, "commands")["rows"]
    assert [(row[1], row[2]) for row in rows] == [
        ("c.0", "done"), ("c.1", "exit code 3"), ("c.2", "done"), ("c.3", "done"), ("c.4", "done"), ("c.5", "running")
    ]  # fmt: skip
    doing, waits, failed, when = block(document, "answers")["cards"]
    assert [card["big"] for card in (doing, waits, failed)] == ["1", "2", "1"]
    assert failed["rows"] == [["exit code 3", "1"]]
    assert (when["small"], when["said"]) == ("about, in 10 s", "5 of 8 ended")
    lanes = block(document, "timeline")
    assert [(lane["node"], lane["label"], len(lane["bars"])) for lane in lanes["lanes"]] == [
        ("a", "1", 2), ("a", "2", 2), ("b", "1", 1), ("b", "2", 1), ("b", "GPU 0", 1), ("b", "GPU 1", 1)
    ]  # fmt: skip
    cpus, gpus = block(document, "use")["series"]
    assert (cpus["of"], gpus["of"]) == (4, 2)
    assert sum(cpus["values"]) * 20 / len(cpus["values"]) == pytest.approx(55, abs=0.5)
    assert sum(gpus["values"]) * 20 / len(gpus["values"]) == pytest.approx(40, abs=0.5)


@needs_browser
def test_the_report_in_a_browser(tmp_path: Path) -> None:
    """What a person sees: charts with bars in them, a table that is sorted and searched."""
    path = tmp_path / "page.html"
    pages.write(str(path), report.document("sweep", "/nowhere", some_history(), 120.0, False))
    names = "[...document.querySelectorAll('#commands tbody td:first-child')].map(one => one.textContent).join(' ')"
    with Browser(tmp_path) as browser:
        browser.open(path.as_uri())
        browser.wait_for("document.querySelectorAll('#timeline rect').length === 7")
        assert browser.run("document.querySelectorAll('#use path').length") == 4
        assert browser.run(names).endswith("c.2 c.4"), "in the order of their starts"
        browser.run("const head = document.querySelector('#commands th button'); head.click(); head.click()")
        assert browser.run(names) == "c.4 c.3 c.2 c.1 c.0"
        search = "const field = document.querySelector('#commands input'); field.dispatchEvent(new Event('input'))"
        browser.run(search.replace("; ", "; field.value = 'exit c.1'; ", 1))
        assert browser.run(names) == "c.1"
        assert browser.run("document.querySelector('#commands [role=status]').textContent") == "1 of 5"
        assert "last started 1970-01-01 " in browser.run("document.querySelector('#meta').innerText")
        browser.run("document.querySelector('#failures tr.row .tog').click()")
        browser.run("document.querySelector('#answers li span[title=\"exit code 3\"] a').click()")
        browser.wait_for("document.querySelector('#failures tr.open')")
        assert not browser.problems


def test_the_page_is_written_for_a_batch(tmp_path: Path) -> None:
    run_batch(written(tmp_path / "jobs.txt", "echo the last words; exit 1\ntrue\n"), cwd=tmp_path).expect(1)
    assert view(tmp_path, "report", "jobs") == "jobs.html\n"
    page = (tmp_path / "jobs.html").read_text()
    assert '"q":"What did it do?","big":"1","small":"of 2 commands done"' in page
    assert "the last words" in page
    assert read_history(str(tmp_path / "batch-jobs")).runs[0].nodes[0].cpus > 0
    assert time.time() - read_history(str(tmp_path / "batch-jobs")).runs[0].begin_s < 600
