"""The table "what dies, what happens", row by row; each row is shown by tests that kill just that.

Such a test is marked `@pytest.mark.dies("executor")`, with the name of its row. `python -m tests.deaths` writes the
table, with the files of these tests, into docs/failures.md. `tests/rules/test_deaths.py` compares.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.helpers import ROOT

PAGE = ROOT / "docs" / "failures.md"
BEGINS = "| what dies |"
ROWS = {
    "code": (
        "your code raises",
        "the result of the call is the error, with the remote traceback; with `retry_exceptions` the call runs again",
    ),
    "executor": (
        "a process that runs your code",
        "its call runs again (`max_retries`, 3) or fails with `WorkerCrashedError`; its actor restarts "
        "(`max_restarts`) or dies with `ActorDiedError`",
    ),
    "member": (
        "one member of a gang",
        "the others are killed, and the call is retried as a whole or fails with `WorkerCrashedError`, which names the "
        "rank; the job lives, and the next gang works",
    ),
    "gang helper": (
        "the helper process of a host that answers MPI_Init of Open MPI in gangs",
        "members there end, and their calls are retried as a whole; a gang that was starting, and each later one, gets "
        "another helper",
    ),
    "own scheduler": (
        "a call with `own_scheduler=True`, or the process of its scheduler",
        "all processes, actors and values inside end with it; the call is retried as a whole or fails with "
        "`WorkerCrashedError`",
    ),
    "memory": (
        "a process that uses up the memory",
        "its call runs again, or fails with `OutOfMemoryError`, which names the largest users",
    ),
    "forkserver": (
        "a forkserver, the parent of a rank's processes that run your code",
        "they die with it, and all that they have started, with the same consequences; another one starts. "
        "A stopped one is continued or killed at the end of the job. If a debugger holds one while the head is killed, "
        "it ends when the debugger detaches",
    ),
    "rank with ulfm": (
        "a worker rank, under Open MPI started with ULFM",
        "the job continues: its calls run again elsewhere, its values are rebuilt, its actors restart",
    ),
    "rank": (
        "a worker rank, otherwise",
        "the job ends at once. An error names the rank, and what would have kept the job alive, unless the launcher "
        "kills all ranks first, as MPICH's mostly does, or the rank was on another host and MPI ends the job with an "
        'error of its own, as Open MPI does ("Socket closed")',
    ),
    "rank at start": (
        "a rank, while the ranks meet",
        "the job ends: most often at once, otherwise `init()` fails after `start_timeout_s`; with MPICH the job ends "
        "up to 5 seconds later",
    ),
    "head": (
        "the head",
        "the job ends; the program gets `HeadDiedError` and can save its work. A launcher ends it after 5 seconds; "
        "with several hosts and without `--fault-tolerant` MPI may end it at once",
    ),
    "host": ("a host, or the network to it", "the job ends on all hosts after `heartbeat_timeout_s` without a message"),
    "launcher": (
        "the launcher",
        "the job ends, and your program with it after 5 seconds, MPICH's at once. Open MPI's leaves a directory "
        "`ompi.PID` in `TMPDIR` or `/tmp`; the next `mpi-runtime run` removes it",
    ),
    "driver": ("your program", "the job ends and leaves nothing behind"),
    "journal": (
        "any of the above that ends the job, with `init(journal=DIR)`",
        "the next run takes finished calls from the journal, and actors begin with their last saved state; "
        "`mpi-runtime run --restarts` starts it",
    ),
    "time": (
        "the time of a Slurm job, with `init(journal=DIR, requeue=True)`",
        "actors save their states before it; the job is requeued and continues from its journal",
    ),
    "disk": (
        "the disk of the journal is full",
        "the job continues without a journal and logs an error; with `init(journal_required=True)` it ends with an "
        "error",
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


def table() -> str:
    """Return the table as the page has it."""
    files = shown_by()
    rows = [["what dies", "what happens", "shown by"], ["---"] * 3]
    for name, (what, happens) in ROWS.items():
        rows.append([what, happens, ", ".join(f"`{file}`" for file in sorted(files.get(name, ())))])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGINS)
    PAGE.write_text(f"{before}{table()}\n{rest.partition(chr(10) * 2)[2]}")


if __name__ == "__main__":
    main()
