"""The table "what dies, what happens", row by row; each row is shown by tests that kill just that.

Such a test is marked `@pytest.mark.dies("executor")`, with the name of its row. `python -m tests.deaths` writes the
table into README.md, and with the files of these tests into docs/failures.md. `tests/rules/test_deaths.py` compares.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.helpers import ROOT

PAGE = ROOT / "docs" / "failures.md"
README = ROOT / "README.md"
BEGINS = "| what dies |"
ROWS = {
    "code": (
        "your code raises",
        "the error, with the remote traceback, is the result of the call; it is run again if you ask for that "
        "(`retry_exceptions`)",
    ),
    "executor": (
        "a process that runs your code",
        "its call is run again (`max_retries`, 3) or fails with `WorkerCrashedError`; its actor is created again "
        "(`max_restarts`) or dies with `ActorDiedError`",
    ),
    "memory": (
        "a process that uses up the memory",
        "its call is run again, or fails with `OutOfMemoryError`, which says what was used",
    ),
    "forkserver": (
        "a forkserver, the parent of a rank's processes that run your code",
        "they and all that they have started die with it, with the same consequences; another one is started",
    ),
    "rank with ulfm": (
        "a worker rank, under Open MPI started with ULFM",
        "the job goes on without it: its calls are run again elsewhere, its values made again, its actors restarted",
    ),
    "rank": (
        "a worker rank, else",
        "the job ends at once. An error names the rank, and what would have kept the job alive, unless the launcher is "
        "faster in killing all: MPICH's mostly is",
    ),
    "rank at start": (
        "a rank, while the ranks meet",
        "the job ends, at the latest when `start_timeout_s` is over",
    ),
    "head": ("the head", "the program gets `HeadDiedError` and can save its work; the job ends"),
    "host": (
        "a host, or the network to it",
        "the job ends on all hosts when nothing was heard of it for `heartbeat_timeout_s`",
    ),
    "launcher": ("the launcher", "the job ends, and your program with it after 5 seconds"),
    "driver": ("your program", "the job ends, and nothing of it is left"),
    "journal": (
        "any of these so that the job ends, with `init(journal=DIR)`",
        "the next run takes finished calls from the journal, and actors begin with the last state that they saved; "
        "`mpi-runtime run --restarts` starts it by itself",
    ),
    "time": (
        "the time of a Slurm job, with `init(journal=DIR, requeue=True)`",
        "before that actors save their states; the job is queued again, and goes on from its journal",
    ),
    "disk": (
        "room on the disk of the journal",
        "the job goes on without it, and a line says so; with `init(journal_required=True)` it ends with an error",
    ),
}
"""By name: what dies, and what happens."""


def shown_by() -> dict[str, set[str]]:
    """The files with tests for each row, by its name."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in marks(path):
            found.setdefault(name, set()).add(path.relative_to(ROOT / "tests").as_posix())
    return found


def marks(path: Path) -> list[str]:
    """The rows that the tests of a file are marked with."""
    decorators = [
        decorator
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    ]
    return [
        argument.value
        for call in decorators
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.dies"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def table(with_tests: bool = True) -> str:
    """The table as the page has it, or, without the files of the tests, as the README has it."""
    files = shown_by()
    rows = [["what dies", "what happens", "shown by"], ["---"] * 3]
    for name, (what, happens) in ROWS.items():
        rows.append([what, happens, ", ".join(f"`{file}`" for file in sorted(files.get(name, ())))])
    return "".join(f"| {' | '.join(row if with_tests else row[:2])} |\n" for row in rows)


def main() -> None:
    for page, with_tests in ((PAGE, True), (README, False)):
        before, _, rest = page.read_text().partition(BEGINS)
        after = rest.partition("\n\n")[2]
        page.write_text(f"{before}{table(with_tests)}\n{after}")


if __name__ == "__main__":
    main()
