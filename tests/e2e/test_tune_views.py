"""What is shown of experiments: lines and tables while they run, data frames, plots, one page, TensorBoard files."""

import re
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.plots import importances
from mpi_runtime.tune.progress_reporter import CLIReporter, ProgressReporter

pytestmark = pytest.mark.usefixtures("job")


def fall(config: dict[str, Any]) -> None:
    for epoch in range(5):
        tune.report({"loss": config["a"] / (epoch + 1) + 0.001 * config["b"]})


def results(folder: Path, **more: Any) -> tune.ResultGrid:
    space = {"a": tune.grid_search([1, 2, 3, 4]), "b": tune.uniform(0, 1), "kind": tune.choice(["<x>", "y"])}
    run = tune.RunConfig(name="e", storage_path=folder, **{"verbose": 0, **more})
    return tune.Tuner(fall, param_space=space, tune_config=tune.TuneConfig("loss", "min"), run_config=run).fit()


def test_the_end_is_a_line_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results(tmp_path, progress_reporter=CLIReporter())
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"4 trials after \d+ s: 4 terminated; best loss 0\.2\d* in trial 00000", last)


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
    assert [row[0] for row in rows] == ["00000 *", "00003", "00002", "00001"]
    assert [row[3] for row in rows] == ["5"] * 4


def test_a_page_has_a_curve_and_a_row_for_each_trial_and_needs_no_network(tmp_path: Path) -> None:
    text = Path(results(tmp_path).write_html()).read_text()
    curves, coordinates = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert curves.count("<polyline") == coordinates.count("<polyline") == 4
    assert text.count("<tr>") == 5
    assert "&lt;x&gt;" in text
    assert "<x>" not in text
    assert not re.search(r"(src|href)=|https?:", text)


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
    assert tune.ExperimentAnalysis(found).results_df.loc["00001", "config/a"] == 2


@pytest.mark.filterwarnings("default")
def test_plots_are_axes(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    found = results(tmp_path)
    assert len(found.plot_history().lines) == 4
    assert len(found.plot_parallel().lines) == 4
    assert len(found.plot_importance().patches) == 3
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
