"""States of searchers and callbacks, in files beside the journal: for later experiments, and for later runs."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from mpi_runtime.files.writing import replace_file
from mpi_runtime.show import log
from mpi_runtime.tune.search.base import Searcher
from mpi_runtime.tune.study.callback import Callback

FILE = "callbacks.pickle"
EVERY_S = 10.0
"""How often the states of callbacks are written."""


class States:
    """Writes them now and then, and at the end."""

    def __init__(self, searcher: Searcher, callbacks: Sequence[Callback], directory: Path) -> None:
        """Write states of these. Most callbacks have none."""
        self._searcher, self._directory = searcher, directory
        self._callbacks = [one for one in callbacks if type(one).get_state is not Callback.get_state]
        self._written_s = time.monotonic()

    def restore(self) -> None:
        """Give callbacks the states of an earlier run, in their order."""
        path = self._directory / FILE
        if not self._callbacks or not path.exists():
            return
        for callback, state in zip(self._callbacks, pickle.loads(path.read_bytes()), strict=False):
            if state is not None:
                callback.set_state(state)

    def turn(self) -> None:
        """Write those of callbacks if it is time."""
        if self._callbacks and time.monotonic() - self._written_s >= EVERY_S:
            self._write()

    def end(self) -> None:
        """Write all of them. What cannot be written is logged: another error may end the experiment."""
        try:
            if self._callbacks:
                self._write()
        except OSError as error:
            _warn(f"The states of callbacks cannot be saved: {error}")
        try:
            self._searcher.save_to_dir(os.fspath(self._directory))
        except Exception as error:  # code of a program's searcher
            name = type(self._searcher).__name__
            _warn(f"The state of {name} cannot be saved, which only restore_from_dir() needs: {error}")

    def _write(self) -> None:
        self._written_s = time.monotonic()
        states: list[Any] = [one.get_state() for one in self._callbacks]
        replace_file(os.fspath(self._directory / FILE), cloudpickle.dumps(states))


def _warn(text: str) -> None:
    log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)
