"""The login host of a batch system that tests have started: a directory that all hosts see, and commands of a user."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tests.helpers import MARK, OPENMPI_ENVIRONMENT, ROOT, mpi_python
from tests.hosts.namespaces import child, enter

JOB_LIMIT_S = 120.0
"""How long a job may take: a bound on hangs."""
_numbers = count(1)


@dataclass
class Login:
    """A batch system that is up."""

    place: Path
    """A directory that all hosts see."""
    login: subprocess.Popen[str]
    nodes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    """The process that holds each node."""
    variables: dict[str, str] = field(default_factory=dict)
    """What a user of this system has in the environment besides."""

    def environment(self, mpi: str = "openmpi") -> dict[str, str]:
        """Return what a user has in a shell on the login host, with the environment of this MPI activated."""
        keep = {name: value for name, value in OPENMPI_ENVIRONMENT.items() if "mapping" not in name}
        return {
            **keep,
            "HOME": str(self.place / "home"),
            "PATH": f"{self.place}/bin:{mpi_python(mpi).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "MPI_RUNTIME_PROFILES": str(self.place / "profiles.toml"),
            "MPI_RUNTIME_QUIET": "1",
            MARK: os.environ[MARK],
            **self.variables,
        }

    def directory(self) -> Path:
        """Make a directory that all hosts see."""
        made = self.place / f"work{next(_numbers)}"
        made.mkdir()
        return made

    def program(self, text: str) -> Path:
        """Make a directory with this program, app.py."""
        place = self.directory()
        (place / "app.py").write_text(text)
        return place

    def run(
        self,
        *command: str,
        cwd: Path | None = None,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
        limit_s: float = JOB_LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login host to its end, which must be with this exit code (None: any)."""
        done = subprocess.run(
            self.on_login(command, cwd),
            env={**self.environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        if code is not None and done.returncode != code:
            pytest.fail(f"{shlex.join(command)}: {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
        return done

    def on_login(self, command: Sequence[str], cwd: Path | None) -> list[str]:
        """Return the words that run a command on the login host."""
        return [*enter(child(self.login)), "sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self.place), *command]

    def submit(self, place: Path, *words: str) -> str:
        """Submit a job in this directory, and return its id."""
        return self.run("mpi-runtime", "submit", *words, cwd=place).stdout.strip()

    def status(self, place: Path, job: str) -> dict[str, object]:
        """Return the status of a job of this directory."""
        found: list[dict[str, object]] = json.loads(self.run("mpi-runtime", "status", "--json", job, cwd=place).stdout)
        return found[0]


def write_command(place: Path, system: str) -> None:
    """Give the users of a login host the command and a file of profiles: Slurm's commands may be installed too."""
    for name in ("log", "home", "bin"):
        (place / name).mkdir(parents=True)
    command = place / "bin/mpi-runtime"  # the project need not be installed
    command.write_text('#!/bin/sh\nexec python -m mpi_runtime.cli.main "$@"\n')
    command.chmod(0o755)
    (place / "profiles.toml").write_text(f'[default]\nsystem = "{system}"\n')
