"""A running job as the command line sees it: its answers, and its end."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import socket
from functools import partial
from pathlib import Path

from mpi_runtime.core.head import inspecting
from mpi_runtime.core.host.process_tree import open_files
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.files.segments import SUFFIX
from mpi_runtime.scheduler.protocol.window_questions import Watch
from mpi_runtime.show.facts import Search
from mpi_runtime.show.live import LiveJob

SEARCHES_S = 5.0


class Watching(LiveJob):
    """A running job, with a connection that shows its end."""

    def __init__(self, pid: int) -> None:
        words = shlex.split(inspecting.command_of(pid))
        scripts = [word for word in words[1:] if not word.startswith("-")]
        name = os.path.basename(scripts[0]) if scripts else words[0] if words else f"job {pid}"
        super().__init__(name, pid, partial(inspecting.reply, pid))
        self._watched: socket.socket | None = None
        try:
            if super().sample():
                self._watched = inspecting.watch(pid)
                self._look_at_searches()
        except LookupError as error:
            raise LaunchError(f"job {pid} cannot answer: {error}") from error
        except OSError:
            pass
        if self._watched is None:
            raise inspecting.gone(pid)

    def sample(self) -> bool:
        """Look once; return whether the job still runs."""
        if self._watched is None:
            return False
        has_ended = bool(select.select([self._watched], [], [], 0)[0])
        if not has_ended:
            try:
                has_ended = not super().sample()
            except (LaunchError, LookupError) as error:  # the head is busy or stopped, or the answer is too large
                self.facts.state, self.facts.cause = "lost", str(error)
                return True
            self.facts.state, self.facts.cause = "running", ""
            self._slowly("searches", self._look_at_searches, SEARCHES_S)
        if has_ended:
            final = None
            with contextlib.suppress(OSError, LookupError):
                reply = inspecting.read(self._watched)
                final = reply.to(Watch()) if reply is not None else None
            self._watched.close()
            self._watched = None
            self.end(final)
        return not has_ended

    def _look_at_searches(self) -> None:
        self.facts.searches = [
            Search(place.name, progress) for place in searches(self.facts.pid) if (progress := _seen(place))
        ]


def searches(pid: int) -> list[Path]:
    """Return the directories of the experiments that a program runs: it has their journals open."""
    journals = (path for path in map(Path, open_files(pid)) if path.suffix == SUFFIX)
    return sorted({path.parent for path in journals if (path.parent / "tuner.pickle").is_file()})


def _seen(directory: Path) -> str:
    from mpi_runtime.tune.experiment.journal_view import Watched  # not at the top: few jobs search

    with contextlib.suppress(JournalError, OSError, ValueError):
        return Watched(directory).in_words()
    return ""
