"""Files about the job that the driver writes: the page of `init(report=...)` and the numbers of `init(metrics=...)`.

Both are written at the end, and with `report_every_s` while the job runs too, each time as a whole. So a job that is
killed leaves the last complete files.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

from mpi_runtime.core.client.questions import Questions
from mpi_runtime.core.head import inspecting
from mpi_runtime.errors import HeadDiedError, LaunchError
from mpi_runtime.files.writing import replace_file
from mpi_runtime.scheduler.protocol.questions import Report
from mpi_runtime.scheduler.protocol.window_questions import (
    Errors,
    FirstActors,
    Glance,
    MeasuredHosts,
    Output,
    WholeStore,
)
from mpi_runtime.show import job as job_page
from mpi_runtime.show import log, metrics, page
from mpi_runtime.show.facts import NO_ACTORS, Facts
from mpi_runtime.show.measures import Measured, measured_of
from mpi_runtime.show.metrics import rows_of


class Reporter:
    """Writes the files of one job."""

    def __init__(self, report: str, metrics: str, every_s: float, quiet: bool, questions: Questions) -> None:
        """Write to these paths, of which one may be empty: no such file. `questions` asks the scheduler."""
        self._report, self._metrics = report, metrics
        self._quiet = quiet
        self._questions = questions
        self._begin_s = time.time()
        self._measured: dict[str, Measured] = {}
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        if every_s:
            self._thread = threading.Thread(
                target=self._write_often, args=(every_s,), name="mpi_runtime report", daemon=True
            )
            self._thread.start()

    def _write_often(self, every_s: float) -> None:
        while not self._is_over.wait(every_s):
            self._write("running")

    def end(self) -> None:
        """Write the final state."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self._write("ended")

    def _write(self, state: str) -> None:
        target = self._report or self._metrics
        try:
            facts = self._facts(state)
            if self._report:
                page.write(self._report, job_page.document(facts))
            target = self._metrics
            if self._metrics:
                replace_file(self._metrics, metrics.text(facts))
        except (HeadDiedError, LaunchError, LookupError, OSError) as error:
            if not self._is_over.is_set() or state == "ended":
                what = "report" if target == self._report else "file of metrics"
                text = f"the {what} {target} could not be written: {error}"
                log.say(log.line(log.WARNING, log.REPORT, text), self._quiet)

    def _facts(self, state: str) -> Facts:
        pid = os.getpid()
        glance = inspecting.ask(pid, Glance())
        if glance is None:
            raise OSError("the job's window is closed, which has the numbers")
        found = self._questions.ask(Report())
        store = inspecting.ask(pid, WholeStore())
        if (measures := inspecting.ask(pid, MeasuredHosts())) is not None:
            self._measured = measured_of(measures, self._measured, glance.nodes, store)
        output = inspecting.ask(pid, Output(0))
        own = rows_of(lambda question: inspecting.ask(pid, question)) if self._metrics else []
        return Facts(
            name=os.path.basename(sys.argv[0]) or "job",
            pid=pid,
            host=socket.gethostname(),
            state=state,
            begin_s=self._begin_s,
            now_s=time.time(),
            glance=glance,
            runs=found.runs,
            ran=found.ran,
            actors=inspecting.ask(pid, FirstActors()) or NO_ACTORS,
            store=store,
            measured=self._measured,
            recorded=own,
            output=output.pieces if output is not None else (),
            errors={name: inspecting.ask(pid, Errors(name)) or [] for name in {one.function for one in glance.errors}},
        )
