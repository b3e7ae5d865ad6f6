"""What is shown of experiments: lines and tables while they run, data frames, plots, one page, TensorBoard files."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import train, tune
from mpi_runtime.cli.main import main
from mpi_runtime.cli.watching import searches
from mpi_runtime.tune.experiment.journal_view import Watched
from mpi_runtime.tune.show.page import document as page_of
from mpi_runtime.tune.show.plots import importances
from mpi_runtime.tune.show.progress import CLIReporter, ProgressReporter
from mpi_runtime.tune.study.callback import Callback
from tests.browser import Browser, loads_nothing, needs_browser
from tests.helpers import ROOT, run_program, seconds_of

pytestmark = pytest.mark.usefixtures("job")


def fall(config: dict[str, Any]) -> None:
    for epoch in range(5):
        tune.report({"loss": config["a"] / (epoch + 1) + 0.001 * config["b"]})


def results(folder: Path, **more: Any) -> tune.ResultGrid:
    space = {"a": tune.grid_search([1, 2, 3, 4]), "b": tune.uniform(0, 1), "kind": tune.choice(["<x>", "y"])}
    run = tune.RunConfig(name="e", storage_path=folder, **{"verbose": 0, **more})
    return tune.Tuner(fall, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()


def test_the_place_of_a_second_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"again": {"run": fall, "config": {"a": 1, "b": 0}, "storage_path": tmp_path}}
    for name in ("again", "again_1"):
        tune.run_experiments(spec)
        assert f"results: {tmp_path / name}\n" in capsys.readouterr().out


def test_the_end_is_a_line_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results(tmp_path, progress_reporter=CLIReporter())
    last, place = capsys.readouterr().out.splitlines()[-2:]
    assert re.fullmatch(r"4 trials after [\d.]+ m?s: 4 done; best loss 0\.2\d* in trial \w+_00000", last)
    assert place == f"results: {tmp_path / 'e'}"


def ends(config: dict[str, Any]) -> None:
    """Trial 0 ends by itself after one report, 1 is stopped at the second, 2 at the last one, as all that get there."""
    for number in range(config["a"] if config["a"] == 1 else 9):
        tune.report({"loss": number, "a": config["a"]})


def rises(config: dict[str, Any]) -> None:
    for loss in config["losses"]:
        tune.report({"loss": loss})


def test_the_last_line_names_the_trial_that_is_the_best_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune.RunConfig(name="e", storage_path=tmp_path, progress_reporter=CLIReporter())
    space = {"losses": tune.grid_search([[1, 5], [3, 2]])}
    found = tune.Tuner(rises, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
    best = found.get_best_result()
    assert best.metrics["loss"] == 2, "the last report counts, not the best one"
    assert f"best loss 2 in trial {best.trial_id}" in capsys.readouterr().out


def test_a_trial_that_is_stopped_early_is_not_taken_for_a_finished_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(trial_id: str, report: dict[str, Any]) -> bool:
        return bool(report["training_iteration"] >= {2: 2, 3: 4}.get(report["a"], 9))

    run = tune.RunConfig(name="e", storage_path=tmp_path, stop=stop, progress_reporter=CLIReporter())
    space = {"a": tune.grid_search([1, 2, 3])}
    found = tune.Tuner(ends, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
    assert ": 2 done, 1 stopped early; best loss 0 in trial" in capsys.readouterr().out
    assert [one.status for one in found] == ["TERMINATED"] * 3, "as in Ray"
    assert [one.is_halted for one in found] == [False, True, True]
    for shown in (found, Watched(tmp_path / "e")):
        rows = block(page_of(shown), "trials")["rows"]
        words = [word for row in rows for word in row if word in ("done", "stopped early")]
        assert words == ["done", "stopped early", "done"]
    assert main(["tune", "show", str(tmp_path / "e")]) == 0
    states = [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert states == ["done", "stopped", "done"]


def turns(config: dict[str, Any]) -> None:
    """The second trial is best in between, the first at the end; the third fails."""
    if config["a"] == 3:
        raise ValueError("as planned")
    for loss in {1: [3.0, 2.0], 2: [1.0, 4.0]}[config["a"]]:
        tune.report({"loss": loss})


def test_the_last_line_names_the_best_result_and_the_cause_of_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune.RunConfig(name="e", storage_path=tmp_path, progress_reporter=CLIReporter())
    space = {"a": tune.grid_search([1, 2, 3])}
    found = tune.Tuner(turns, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
    last = capsys.readouterr().out.splitlines()[-2]
    best = found.get_best_result()
    assert f"; best loss {best.metrics['loss']:g} in trial {best.path.rpartition('/')[2]}; trial " in last
    assert last.endswith("_00002 failed: ValueError: as planned")


def test_a_table_has_the_best_trial_first(tmp_path: Path) -> None:
    tables: list[Any] = []

    class Keeps(ProgressReporter):
        def show(self, is_end: bool) -> None:
            tables.append(self.table())

        def __reduce__(self) -> Any:
            return CLIReporter, ()

    results(tmp_path, progress_reporter=Keeps())
    head, rows = tables[-1]
    assert head == ["trial", "status", "runs on", "reports", "seconds", "a", "b", "kind", "loss"]
    assert [row[0].partition("_")[2] for row in rows] == ["00000 *", "00003", "00002", "00001"]
    assert [row[3] for row in rows] == ["5"] * 4


def test_a_table_without_a_metric_has_what_trials_report(tmp_path: Path) -> None:
    heads: list[list[str]] = []

    class Keeps(ProgressReporter):
        def show(self, is_end: bool) -> None:
            heads.append(self.table()[0])

        def __reduce__(self) -> Any:
            return CLIReporter, ()

    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, progress_reporter=Keeps())
    tune.Tuner(fall, param_space={"a": 1, "b": 2}, run_config=run).fit()
    assert heads[-1] == ["trial", "status", "runs on", "reports", "seconds", "a", "b", "loss"]


def document_of(page: str) -> Any:
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]


def block(document: Any, id: str) -> Any:
    return next(one for one in document["blocks"] if one["id"] == id)


def test_a_page_has_a_curve_and_a_row_for_each_trial_and_needs_no_network(tmp_path: Path) -> None:
    text = Path(results(tmp_path).write_html()).read_text()
    document = document_of(text)
    trials = block(document, "progress")["blocks"][0]["trials"]
    assert [len(one["ys"]) for one in trials] == [5] * 4
    assert [one["top"] for one in trials if "top" in one] == [True], "the best tenth, at least one"
    axes = block(document, "parallel")["axes"]
    assert [axis["name"] for axis in axes] == ["a", "b", *(["kind"] if len(axes) == 4 else []), "loss"]
    assert len(block(document, "trials")["rows"]) == 4
    assert block(document, "answers")["cards"][0]["small"].endswith("_00000, after 5 reports")
    assert block(document, "importance")["halves"][0]["rows"] == [], "four trials say nothing about what matters"
    assert loads_nothing(text)
    assert "<x>" not in text


def rungs_of_four(config: dict[str, Any]) -> None:
    """The first trial makes one report, the fourth makes eight."""
    for epoch in range({1: 1, 2: 2, 3: 2, 4: 8}[config["a"]]):
        tune.report({"loss": 10 / config["a"] + 1 / (epoch + 1)})


@needs_browser
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """What a person sees: a mark for each trial, axes with values, where trials ended, a table that sorts."""
    space = {"a": tune.grid_search([1, 2, 3, 4]), "kind": tune.sample_from(lambda c: "xyxy"[c.a - 1])}
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    tuning = tune.TuneConfig("loss", "min")
    found = tune.Tuner(rungs_of_four, param_space=space, tune_config=tuning, run_config=run).fit()
    column = (
        "[...document.querySelectorAll('#trials tbody tr td:nth-child(%d)')]"
        ".map(one => one.textContent.replace(/^.*_/, '')).join(' ')"
    )
    with Browser(tmp_path) as browser:
        browser.open(Path(found.write_html(tmp_path / "page.html")).as_uri())
        browser.wait_for("document.querySelectorAll('#parallel path.ln').length === 4")
        browser.wait_for("document.querySelectorAll('#progress svg').length === 2")
        reports = "document.querySelectorAll('#progress svg')[1]"
        assert browser.run(f"{reports}.querySelectorAll('path.ln').length") == 3, "trials with several reports"
        assert browser.run(f"{reports}.querySelectorAll('circle').length") == 1, "one report is a ring"
        texts = browser.run("[...document.querySelectorAll('#parallel text')].map(one => one.textContent)")
        assert {"a", "kind", "loss", "1", "4", "x", "y"} <= {*texts}, "axes have names and values"
        rungs = browser.run("[...document.querySelectorAll('#rungs tbody tr')].map(row => row.dataset.id)")
        assert rungs == ["1", "2", "8"]
        assert browser.run(column % 1) == "00003 00002 00001 00000", "the best first"
        browser.run("document.querySelector('#trials th:nth-child(1) button').click()")
        assert browser.run(column % 1) == "00000 00001 00002 00003"
        browser.run("document.querySelector('#trials tr.row').click()")
        browser.wait_for("document.querySelector('#trials .detail dl')")
        browser.resize(400, 900)
        assert browser.run("document.documentElement.scrollWidth") <= 400
        assert not browser.problems


def test_whoever_looks_at_a_search_sees_when_it_ends(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Looks(Callback):
        def on_trial_complete(self, *args: Any, **info: Any) -> None:
            if not seen:  # the first of three, which run one at a time
                (place,) = searches(os.getpid())
                seen.extend((place, Watched(place).in_words(), page_of(Watched(place), "app.py")))

    config = tune.TuneConfig("loss", "min", max_concurrent_trials=1)
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, callbacks=[Looks()])
    space = {"a": tune.grid_search([1, 2, 3]), "b": 0}
    tune.Tuner(fall, param_space=space, tune_config=config, run_config=run).fit()
    place, words, page = seen
    assert place == tmp_path / "e"
    assert re.fullmatch(r"1 of 3 trials ended, about \S+ m?s left", words)
    card = block(page, "answers")["cards"][3]
    assert (card["q"], card["said"]) == ("When is it done?", "1 of 3 trials ended")
    assert card["small"].startswith("about, in ")
    assert not searches(os.getpid()), "the journal is closed"


IN_A_TERMINAL = """
import sys, time
import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.cli.main import main
from mpi_runtime.cli.watching import searches

def train(config):
    for epoch in range(4):
        time.sleep(0.4)
        tune.report({"loss": config["a"] + 1 / (epoch + 1)})

mpi_runtime.init(num_cpus=2)
run = tune.RunConfig(name="e", storage_path=sys.argv[1])
space = {"a": tune.grid_search([1, 2, 3]), "[/b]": "[/c]\\udc80"}
tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
"""


def test_a_terminal_shows_a_table_that_is_drawn_anew(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    app = tmp_path / "app.py"
    app.write_text(IN_A_TERMINAL)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, str(app), str(tmp_path)]
    parts = []
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as program:
        os.close(theirs)
        with contextlib.suppress(OSError):  # at the end the terminal has no other side
            while part := os.read(ours, 65536):
                parts.append(part)
        os.close(ours)
        assert program.wait(60) == 0
    text = b"".join(parts).decode()
    assert "\x1b[1A" in text, "lines are drawn over those before"
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)
    assert re.search(r"trial\s+┃ status\s+┃ runs on", plain)
    assert re.search(r"running\s+│ \S+:\d+", plain), "what it runs on"
    assert "2 running" in plain
    assert re.search(
        r"3 trials after [\d.]+ m?s: 1 running, 2 done; .* in trial \w+_00000; about [\d.]+ m?s left", plain
    )
    assert re.search(r"3 trials after [\d.]+ m?s: 3 done; best loss 1.25 in trial \w+_00000", plain)
    assert "[/b]" in plain
    assert "[/c]\\udc80" in plain


IN_A_NOTEBOOK = '''
import sys
from jupyter_client.manager import start_new_kernel

cell = """
import time
import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.cli.main import main
from mpi_runtime.cli.watching import searches

def train(config):
    for epoch in range(4):
        time.sleep(0.4)
        tune.report({"loss": config["a"] / (epoch + 1)})

mpi_runtime.init(num_cpus=1)
run = tune.RunConfig(name="e", storage_path=FOLDER)
space = {"a": tune.grid_search([2, 1])}
tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
mpi_runtime.shutdown()
"""
seen = []

def hook(message):
    content = message["content"]
    if "text/html" in content.get("data", {}):
        seen.append((message["msg_type"], content["transient"]["display_id"], content["data"]["text/html"]))

manager, client = start_new_kernel()
reply = client.execute_interactive(cell.replace("FOLDER", repr(sys.argv[1])), timeout=60, output_hook=hook)
assert reply["content"]["status"] == "ok", reply
client.stop_channels()
manager.shutdown_kernel()
kinds = [kind for kind, _, _ in seen]
print(kinds[0], {*kinds[1:]}, len({one for _, one, _ in seen}))
print(seen[-1][2])
'''


def test_a_notebook_shows_one_table_that_is_replaced(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    lines = run_program(IN_A_NOTEBOOK, str(tmp_path), timeout=90).expect(0).stdout.splitlines()
    assert lines[0] == "display_data {'update_display_data'} 1"
    assert re.match(r"<p>2 trials after [\d.]+ m?s: 2 done; best loss 0.25 in trial \w+_00001</p><table>", lines[1])
    assert [lines[1].count(f"_{number}</td>") for number in ("00001 *", "00000")] == [1, 1]


def test_the_parameter_that_matters_is_the_important_one(tmp_path: Path) -> None:
    shares = importances(results(tmp_path), "loss")
    assert shares.keys() == {"a", "b", "kind"}
    assert shares["a"] > 0.7, "of four trials, in two bins"


def test_data_frames_have_a_row_for_each_trial_and_report(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    found = results(tmp_path)
    frame = found.get_dataframe()
    assert list(frame["config/a"]) == [1, 2, 3, 4]
    assert len(found[0].metrics_dataframe) == 5
    assert tune.ExperimentAnalysis(found).results_df.loc[found[1].trial_id, "config/a"] == 2


@pytest.mark.filterwarnings("default")
def test_plots_are_axes(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    found = results(tmp_path)
    assert len(found.plot_history().lines) == 4
    assert len(found.plot_parallel().lines) == 4
    assert len(found.plot_importance().patches) == 3
    with pytest.raises(ValueError, match="no trial has a number as its last 'nothing'"):
        found.plot_parallel("nothing")
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.filterwarnings("default")
def test_tensorboard_reads_what_the_logger_writes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = results(tmp_path, callbacks=[tune.TBXLoggerCallback()])
    events = reader.EventAccumulator(found[1].path)
    events.Reload()
    scalars = events.Scalars("ray/tune/loss")
    assert [one.step for one in scalars] == [1, 2, 3, 4, 5]
    assert scalars[0].value == pytest.approx(found[1].history[0]["loss"])


def trains(config: dict[str, Any]) -> None:
    time.sleep(0.5)
    for epoch in range(5):
        tune.report({"loss": 1 / (epoch + 1), "accuracy": epoch / 5})


@needs_browser
def test_the_page_of_a_training_has_its_curves_its_numbers_and_its_time(tmp_path: Path) -> None:
    """One trial without a metric: no value is the best, but all have a last one and a curve."""
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    found = tune.Tuner(trains, param_space={"lr": 1}, run_config=run).fit()
    page = Path(found.write_html(tmp_path / "page.html"))
    document = document_of(page.read_text())
    last, did, _, when = block(document, "answers")["cards"]
    assert (last["q"], last["big"], last["small"]) == ("What did it report last?", "0.8", "accuracy, report 5")
    assert last["rows"] == [["accuracy, lowest and highest", "0, 0.8"], ["loss, lowest and highest", "0.2, 1"]]
    assert did["rows"] == [["done", "1"]]
    assert when["small"] == "from the start to the last report"
    number, unit = when["big"].split()
    assert seconds_of(number, unit) >= 0.5, "the time before the first report counts"
    assert [len(one["points"]) for one in block(document, "figures")["blocks"]] == [5, 5]
    with Browser(tmp_path) as browser:
        browser.years_later(1)
        for theme, width in (("light", 1600), ("dark", 390)):
            browser.resize(width, 900)
            browser.open(f"{page.as_uri()}?theme={theme}")
            browser.wait_for("document.querySelectorAll('#figures path.step').length === 2")
            assert browser.run("document.documentElement.scrollWidth") <= width
            meta = browser.run("document.querySelector('#meta').innerText")
            assert re.search(rf"started {time.strftime('%Y')}-\d\d-\d\d [\d:]+\s*last report \d{{4}}-", meta), meta
        assert not browser.problems


def train_loop(config: dict[str, Any]) -> None:
    for epoch in range(3):
        train.report({"loss": 1 / (epoch + 1)})


def test_the_page_of_a_trainer_has_a_date_and_speaks_of_a_training(tmp_path: Path) -> None:
    """Its reports have what was reported alone, so no time; the journal has one."""
    before_s = time.time()
    run, scaling = train.RunConfig(name="t", storage_path=tmp_path), train.ScalingConfig(num_workers=1)
    train.DataParallelTrainer(train_loop, scaling_config=scaling, run_config=run).fit()
    document = page_of(Watched(tmp_path / "t"))
    _, *dates = document["meta"]
    assert [date.partition(" 2")[0] for date in dates] == ["started", "last report"]
    for date in dates:
        made_s = time.mktime(time.strptime(" ".join(date.split()[-2:]), "%Y-%m-%d %H:%M:%S"))
        assert before_s - 2 <= made_s <= time.time() + 1
    _, did, failed, when = block(document, "answers")["cards"]
    assert (did["small"], failed["small"], when["said"]) == ("training", "of 1 ended training", "1 of 1 training ended")
    assert block(document, "trials")["title"] == "Training"


def drawn(config: dict[str, Any]) -> None:
    if config["number"] == 3:
        raise ValueError("as planned")
    tune.report({"loss": 1.0 + config["even"]})


@needs_browser
def test_axes_follow_the_distribution_and_failures_are_found(tmp_path: Path) -> None:
    space: dict[str, Any] = {"number": tune.grid_search([*range(24)])}
    space |= {"even": tune.sample_from(lambda c: 0.01 + c.number / 24)}
    space |= {"spread": tune.sample_from(lambda c: 10.0 ** (c.number / 6 - 4))}
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    found = tune.Tuner(drawn, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
    page = Path(found.write_html(tmp_path / "page.html"))
    axes = {axis["name"]: axis.get("log") for axis in block(document_of(page.read_text()), "parallel")["axes"]}
    assert axes == {"number": False, "even": False, "spread": True, "loss": False}
    with Browser(tmp_path) as browser:
        browser.open(page.as_uri())
        browser.wait_for("document.body.dataset.ready === 'yes'")
        browser.run(
            "[...document.querySelectorAll('#answers a')].find(a => a.textContent === 'Errors and tracebacks').click()"
        )
        browser.wait_for("document.querySelector('#trials .detail .err')")
        rows = "[...document.querySelectorAll('#trials tbody tr.row')].map(row => row.innerText).join('|')"
        assert "ValueError: as planned" in browser.run(rows)
        assert "|" not in browser.run(rows), "the others are filtered out"
        assert not browser.problems


def odd(config: dict[str, Any]) -> None:
    if config["a"] == 0:
        raise ValueError("bytes that are no text: \udcff")
    for loss in {1: [0.1 + 0.2] * 2, 2: [0.3] * 2, 3: [float("nan")]}[config["a"]]:
        tune.report({"loss": loss})


@needs_browser
def test_a_page_of_odd_values_is_drawn(tmp_path: Path) -> None:
    """Losses that differ in rounding alone, one that is no number, an error with a byte that is no text."""
    space = {"a": tune.grid_search([0, 1, 2, 3]), "constructor": tune.choice(["x" * 300])}
    run = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    found = tune.Tuner(odd, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()
    text = Path(found.write_html(tmp_path / "page.html")).read_text()
    for document in (document_of(text), page_of(Watched(tmp_path / "e"))):
        _, did, failed, _ = block(document, "answers")["cards"]
        assert ["without a finite number", "1"] in did["rows"]
        ((error, number),) = failed["rows"]
        assert (error[:33], number) == ("ValueError: bytes that are no tex", "1"), "not the process that raised it"
    with Browser(tmp_path, width=400) as browser:
        browser.open((tmp_path / "page.html").as_uri())
        browser.wait_for("document.querySelectorAll('#progress svg').length === 2")
        assert browser.run("document.documentElement.scrollWidth") <= 400
        assert not browser.problems
