"""The verb `view`: the live page of a job, a batch, a search or a training."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.head import inspecting
from mpi_runtime.errors import LaunchError, MpiRuntimeError
from mpi_runtime.files.claim import living_owner_of
from mpi_runtime.files.segments import SUFFIX
from mpi_runtime.show import training
from mpi_runtime.show.page import Block, Document


def view(words: Sequence[str]) -> int:
    """Serve the page, and return the exit code."""
    options = view_parser().parse_args(words)
    source = _source(options.job)
    if options.metrics:
        source.sample()
        print(source.metrics(), end="")
        return 0
    try:
        from mpi_runtime.show.server import serve
    except ImportError as error:
        raise LaunchError(
            f"the live page needs starlette and uvicorn ({error}): pip install starlette uvicorn"
        ) from None

    until_end = ExitStack()

    def opened(address: str) -> None:
        print(
            f"{address}\nCtrl-C ends it. From another host: ssh -L {_port(address)}:127.0.0.1:{_port(address)} "
            f"{os.uname().nodename}, then the same address.",
            flush=True,
        )
        if not options.no_browser and os.environ.get("DISPLAY"):
            try:
                shown = leading_to(address, until_end)
            except OSError as error:
                print(f"No browser was opened, because the file for it cannot be written: {error}", flush=True)
            else:
                threading.Thread(target=webbrowser.open, args=(shown,), daemon=True).start()  # some wait for its end

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # as Ctrl-C, or the file for the browser would stay
            signal.signal(number, _as_ctrl_c)
    with until_end:
        try:
            serve(source, options.port, opened)
        except OSError as error:
            raise LaunchError(
                f"port {options.port} cannot be used: {error.strerror}; --port 0 takes a free one"
            ) from error
    return 0


def leading_to(address: str, until_end: ExitStack) -> str:
    """The address of a file that leads a browser to this address, which has a token. It goes at the end.

    Every user of the host sees the arguments of a browser, and only its owner reads the file (mode 600). It lies in the
    home directory, in sight: browsers installed by snap have a /tmp of their own, and no hidden files.
    """
    home = os.path.expanduser("~")
    place = home if os.access(home, os.W_OK) else None
    descriptor, path = tempfile.mkstemp(".html", "mpi-runtime-view-", place)
    until_end.callback(Path(path).unlink, missing_ok=True)
    with open(descriptor, "w") as file:
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><a href="{address}">job</a>\n'
        )
    return Path(path).as_uri()


def _port(address: str) -> str:
    return address.partition("127.0.0.1:")[2].partition("/")[0]


def _source(job: str | None) -> Any:
    """What to show: the job with a process id, what has written a directory, or the only job of this host."""
    if job is not None and not job.isdecimal():
        from mpi_runtime.batch.history.batch_history import FOLDER, readable  # not at the top: jobs need none of it

        directory = Path(job)
        for place in (directory, Path(f"batch-{directory.stem}")):
            with readable(str(place)):
                is_batch = (place / FOLDER).is_dir()
            if is_batch:
                return Files(place, _batch)
        if (last := training.newest(directory)) is not None:
            return Files(last, _training, f"*{training.RESULTS}")
        if list(directory.glob(f"*{SUFFIX}")):
            return Files(directory, _search)
        if not directory.exists():
            raise LaunchError(f"{job!r} is not the process id of a job, and there is no directory of this name")
        raise LaunchError(
            f"{job!r} is neither the process id of a job, nor the directory of a batch (with {FOLDER!r} in it), "
            f"that of a search (with files such as 000001{SUFFIX} in it), or that of a training (with "
            f"{training.PARAMETERS!r} in it)"
        )
    return Watching(inspecting.chosen(int(job) if job is not None else None, "view"))


class Files:
    """A batch, a search or a training, as the files in its directory show it."""

    def __init__(self, directory: Path, read: Callable[[Path], Document], pattern: str = f"**/*{SUFFIX}") -> None:
        """Show this directory; `read` makes the document. `pattern`: of the files that it is made of."""
        self._directory = directory
        self._read = read
        self._pattern = pattern
        self._seen: object = None
        self._document: Document = {}

    def sample(self) -> bool:
        """Read the files if one has changed. It never ends: a batch may be started again."""
        names = sorted(self._directory.glob(self._pattern))
        seen = [(one, one.stat().st_size) for one in names], living_owner_of(self._directory), int(time.time() / 5)
        if seen != self._seen:
            self._document, self._seen = self._read(self._directory), seen
        return True

    def document(self) -> Document:
        """The page now."""
        return self._document

    def detail(self, block: str, id: str) -> list[Block]:
        """What a row opens: it is in the document already."""
        return []

    def metrics(self) -> str:
        """Refuse: only jobs have them."""
        raise LaunchError("what is shown from files has no metrics; a running job has")

    def stack(self, host: str, pid: int) -> str:
        """None: its processes belong to a job."""
        return "What is shown from files has no stacks; a running job has."


def _batch(directory: Path) -> Document:
    from mpi_runtime.batch.cli.views import document_of  # not at the top: see `_source`

    try:
        return document_of(str(directory))
    except (MpiRuntimeError, OSError) as error:
        raise LaunchError(str(error)) from error


def _search(directory: Path) -> Document:
    from mpi_runtime.tune.experiment.journal_view import Watched  # not at the top: loads numpy
    from mpi_runtime.tune.show import page as search_page

    return search_page.document(Watched(directory.resolve()), living_owner_of(directory))


def _training(directory: Path) -> Document:
    try:
        return training.document(directory.resolve())
    except (OSError, ValueError, KeyError) as error:
        raise LaunchError(f"the files of the training in {directory} cannot be read: {error!r}") from error


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def view_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime view`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime view",
        description="Show a running job in a browser: what it is doing, what waits and why, what failed, when it is "
        "done.",
        epilog="The server is a program of yours on this host: it listens on 127.0.0.1 alone, its address has a token, "
        "and Ctrl-C ends it. The job itself opens no port. Start it on the host of rank 0; for the directory of a "
        "batch, a search or a training, on any host that sees it. From your own machine, with the port P of the "
        "address: ssh -L P:127.0.0.1:P HOST, and open the same address there.",
    )
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="the process id of its program, or the directory of a batch, a search or a training of `rl train`; "
        "default: the only job",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of 127.0.0.1; default: a free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--metrics", action="store_true", help="print the numbers once, as OpenMetrics text, and end")
    return parser
