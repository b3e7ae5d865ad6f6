"""Files of each trial, by the names that Ray Tune gives them: JSON lines, CSV, TensorBoard.

They are optional: the journal has every report. Lines are written once a second. When an experiment is resumed, the
files are rewritten from the journal, so they have every report once.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import cloudpickle

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.files.writing import replace_file
from mpi_runtime.tune.study.callback import Callback
from mpi_runtime.tune.trial import Config, Report, Trial, count_in, flat
from mpi_runtime.tune.trials.json_values import written

FLUSH_S = 1.0


@published("mpi_runtime.tune")
class LoggerCallback(Callback):
    """Receives trials by `log_trial_start`, `log_trial_result` and `log_trial_end`. Subclass it for a logger."""

    replays = True

    _begun: set[str]

    def setup(self, *args: object, path: str = "", **info: object) -> None:
        self._begun = set()

    def log_trial_start(self, trial: Trial) -> None:
        """A trial starts for the first time."""

    def log_trial_result(self, iteration: int, trial: Trial, result: Report) -> None:
        """A trial has reported."""

    def log_trial_save(self, trial: Trial) -> None:
        """A trial has a new checkpoint."""

    def log_trial_restore(self, trial: Trial) -> None:
        """Never called, as `on_trial_restore`."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """A trial has ended."""

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """Pass on the first start. The directory of the trial exists from then on."""
        self._start(trial)

    def _start(self, trial: Trial) -> None:
        begun = self.__dict__.setdefault("_begun", set())  # a subclass may override `setup`
        if trial.trial_id not in begun:
            begun.add(trial.trial_id)
            os.makedirs(trial.local_path, exist_ok=True)
            self.log_trial_start(trial)

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        self._start(trial)  # by hand it may be the first event
        self.log_trial_result(iteration, trial, result)

    def on_trial_save(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        self.log_trial_save(trial)

    def on_trial_restore(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        self.log_trial_restore(trial)

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        self.log_trial_end(trial)

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        self.log_trial_end(trial, failed=True)


class _Lines(LoggerCallback):
    """Collects lines for each trial, and appends them to its file once a second."""

    file_name = ""

    def __init__(self) -> None:
        self._waiting: dict[str, list[str]] = {}
        self._paths: dict[str, Path] = {}
        self._flushed_s = 0.0

    def log_trial_start(self, trial: Trial) -> None:
        self._paths[trial.trial_id] = path = Path(trial.local_path, self.file_name)
        path.write_text("", encoding="utf-8")

    def add(self, trial: Trial, line: str) -> None:
        """Add a line to a file."""
        self._waiting.setdefault(trial.trial_id, []).append(line)

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        if time.monotonic() - self._flushed_s >= FLUSH_S:
            self.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self.flush()

    def on_experiment_end(self, trials: Sequence[Trial], **info: object) -> None:
        self.flush()

    def flush(self) -> None:
        """Write waiting lines."""
        self._flushed_s = time.monotonic()
        waiting, self._waiting = self._waiting, {}
        for trial_id, lines in waiting.items():
            with self._paths[trial_id].open("a", encoding="utf-8") as file:
                file.write("".join(lines))


@published("mpi_runtime.tune")
class JsonLoggerCallback(_Lines):
    """`result.json`: a report in each line. `params.json` and `params.pkl`: the configuration."""

    file_name = "result.json"

    def log_trial_start(self, trial: Trial) -> None:
        super().log_trial_start(trial)
        Path(trial.local_path, "params.json").write_text(
            json.dumps(written(trial.config), default=repr, indent=2) + "\n"
        )
        with contextlib.suppress(Exception):  # code of a class: by hand a configuration may have anything
            Path(trial.local_path, "params.pkl").write_bytes(cloudpickle.dumps(trial.config))

    def log_trial_result(self, iteration: int, trial: Trial, result: Report) -> None:
        self.add(trial, json.dumps(written(result), default=repr) + "\n")


@published("mpi_runtime.tune")
class CSVLoggerCallback(_Lines):
    """`progress.csv`: a report in each line. A report with new names rewrites the file."""

    file_name = "progress.csv"

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, list[str]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        super().log_trial_start(trial)
        self._names[trial.trial_id] = []

    def log_trial_result(self, iteration: int, trial: Trial, result: Report) -> None:
        values = flat({name: value for name, value in result.items() if name != "config"})
        names = self._names[trial.trial_id]
        new = [name for name in values if name not in names]
        if new:
            self._widen(trial, [*names, *new])
        self.add(trial, _csv([values.get(name, "") for name in self._names[trial.trial_id]]))

    def _widen(self, trial: Trial, names: list[str]) -> None:
        self.flush()
        path = self._paths[trial.trial_id]
        longest = csv.field_size_limit(sys.maxsize)
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))[1:]
        finally:
            csv.field_size_limit(longest)
        self._names[trial.trial_id] = names
        replace_file(os.fspath(path), "".join(_csv(row + [""] * (len(names) - len(row))) for row in [names, *rows]))


def numbers_in(result: Mapping[str, object], with_config: bool = False) -> dict[str, float]:
    """The numbers of a report, by names such as `a/b`. Not a number is left out."""
    shown = result if with_config else {name: value for name, value in result.items() if name != "config"}
    return {
        name: value
        for name, value in flat(written(shown)).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    }


def step_of(result: Report) -> int:
    """The steps of the environment behind a report, or without them the number of the report."""
    return int(count_in(result, "timesteps_total") or result["training_iteration"])


@published("mpi_runtime.tune")
class TBXLoggerCallback(LoggerCallback):
    """Files for TensorBoard, by tensorboardX: `tensorboard --logdir DIRECTORY` shows a curve for each trial."""

    def __init__(self) -> None:
        self._writer_of = load("TBXLoggerCallback", "tensorboardX").SummaryWriter
        self._writers: Config = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Remove the files of an earlier run: its events are replayed."""
        for path in Path(trial.local_path).glob("events.out.tfevents.*"):
            path.unlink()

    def log_trial_result(self, iteration: int, trial: Trial, result: Report) -> None:
        writer = self._writers.get(trial.trial_id)
        if writer is None:
            writer = self._writers[trial.trial_id] = self._writer_of(trial.local_path, flush_secs=5)
        for name, value in numbers_in(result).items():
            writer.add_scalar(f"ray/tune/{name}", value, global_step=step_of(result))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        writer = self._writers.pop(trial.trial_id, None)
        if writer is not None:
            writer.close()

    def on_experiment_end(self, trials: Sequence[Trial], **info: object) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


LOGGERS = {"csv": CSVLoggerCallback, "json": JsonLoggerCallback, "tensorboard": TBXLoggerCallback}
"""By the names in `RunConfig(files=...)`."""


def _csv(values: Sequence[object]) -> str:
    text = io.StringIO()
    texts = ["" if one is None else str(one).replace("\0", "\\0") for one in values]  # Python 3.10 writes no NUL
    csv.writer(text, lineterminator="\n").writerow(texts)
    return text.getvalue()
