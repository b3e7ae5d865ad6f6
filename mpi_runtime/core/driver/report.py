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
from collections.abc import Callable
from typing import Any

from mpi_runtime.core.head import inspecting
from mpi_runtime.errors import HeadDiedError, LaunchError
from mpi_runtime.files.writing import replace_file
from mpi_runtime.show import job as job_page
from mpi_runtime.show import log, metrics, page
from mpi_runtime.show.facts import Facts
from mpi_runtime.show.measures import Measured, measured_of
from mpi_runtime.show.series import of_job


class Reporter:
    """Writes the files of one job."""

    def __init__(self, report: str, metrics: str, every_s: float, quiet: bool, query: Callable[[str], Any]) -> None:
        """Write to these paths, of which one may be empty: no such file. `query` asks the scheduler."""
        self._report, self._metrics = report, metrics
        self._quiet = quiet
        self._query = query
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
        glance = inspecting.ask(pid, "glance")
        if glance is None:
            raise OSError("the job's window is closed, which has the numbers")
        found = self._query("report")
        store = inspecting.ask(pid, "store") or {}
        own = of_job(lambda what, first: inspecting.ask(pid, what, first)) if self._metrics else []
        if (measures := inspecting.ask(pid, "measures")) is not None:
            self._measured = measured_of(measures, self._measured, glance["nodes"], store)
        return Facts(
            name=os.path.basename(sys.argv[0]) or "job",
            pid=pid,
            host=socket.gethostname(),
            state=state,
            begin_s=self._begin_s,
            now_s=time.time(),
            glance=glance,
            runs=found["runs"],
            ran=found["ran"],
            actors=inspecting.ask(pid, "list", "actors") or {},
            store=store,
            measured=self._measured,
            recorded=own,
            output=(inspecting.ask(pid, "output", 0) or {}).get("pieces", ()),
            errors={
                name: inspecting.ask(pid, "errors", name) or []
                for name in {one["function"] for one in glance["errors"]}
            },
        )
