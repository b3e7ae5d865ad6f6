"""A login node of a system that has a stand-in: its commands on PATH, and a queue that runs what they submit."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import MARK, OPENMPI_ENVIRONMENT, ROOT, mpi_python
from tests.standins import core

JOB_LIMIT_S = 90.0
SYSTEMS = ("pbs", "lsf", "flux")


class Farm:
    """A queue that runs."""

    def __init__(self, folder: Path, system: str) -> None:
        self.folder, self.system = folder, system
        self.bin, self.work, self.queue = (folder / name for name in ("bin", "work", "queue"))
        for one in (self.bin, self.work, self.queue, folder / "home"):
            one.mkdir()
        (self.queue / "history").touch()  # of PBS: `job_history_enable`
        names = ["flux"] if system == "flux" else list(import_module(f"tests.standins.{system}").COMMANDS)
        for name in names:
            self._command(name, f"{shlex.quote(sys.executable)} -m tests.standins.{system} {name}")
        self._command("mpi-runtime", "python -m mpi_runtime.cli.main")
        (folder / "profiles.toml").write_text(f'[default]\nsystem = "{system}"\n')

    def _command(self, name: str, line: str) -> None:
        (self.bin / name).write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {line} "$@"\n')
        (self.bin / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        """What a user has on the login node."""
        keep = {name: value for name, value in OPENMPI_ENVIRONMENT.items() if "mapping" not in name}
        return {
            **keep, "HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT), core.PLACE: str(self.queue),
            "PATH": f"{self.bin}:{mpi_python('openmpi').parent}:/usr/bin:/bin",
            "MPI_RUNTIME_PROFILES": str(self.folder / "profiles.toml"), "MPI_RUNTIME_QUIET": "1",
            "TMPDIR": str(self.folder), MARK: os.environ[MARK],
        }  # fmt: skip

    def run(
        self, *command: str, code: int | None = 0, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node to its end, which must be with this exit code (None: any)."""
        done = subprocess.run(
            command, cwd=self.work, env={**self.environment(), **(env or {})}, input=stdin, capture_output=True,
            text=True, timeout=JOB_LIMIT_S * 2,
        )  # fmt: skip
        if code is not None and done.returncode != code:
            own = "\n".join(one.read_text() for one in self.queue.glob("*.own"))
            outputs = "\n".join(one.read_text() for one in self.work.glob("*.out"))
            pytest.fail(f"{command}: {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}\n{own}\n{outputs}")
        return done

    def program(self, text: str) -> None:
        """Write the program app.py."""
        (self.work / "app.py").write_text(text)

    def submit(self, *words: str) -> str:
        """Submit, and return the id."""
        return self.run("mpi-runtime", "submit", *words).stdout.strip()

    def status(self, job: str) -> list[dict[str, Any]]:
        """What `mpi-runtime status --json` shows."""
        found: list[dict[str, Any]] = json.loads(self.run("mpi-runtime", "status", "--json", job).stdout)
        return found


@contextmanager
def farm(folder: Path, system: str) -> Generator[Farm]:
    """A queue that runs until the block is left."""
    made = Farm(folder, system)
    with open(folder / "queue.log", "w") as log:
        queue = subprocess.Popen(
            [sys.executable, "-m", "tests.standins.core", str(made.queue), system], env=made.environment(), cwd=folder,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield made
    finally:
        with core.locked(made.queue) as known:
            for job in known.values():
                job.wanted = job.wanted or (core.END if job.state == core.RUNS else "")
                if job.state != core.RUNS:
                    job.state = core.ENDED
        for _ in range(100):
            with core.locked(made.queue) as known:
                if queue.poll() is not None or all(job.state == core.ENDED for job in known.values()):
                    break
            import time

            time.sleep(0.1)
        queue.kill()
        queue.wait()
        if problem := (folder / "queue.log").read_text():
            pytest.fail(problem)
