"""The table "what dies, what happens", row by row; each row is shown by tests that kill just that.

Such a test is marked `@pytest.mark.dies("executor")`, with the name of its row. `python -m tests.deaths` writes the
table, and that of the files of these tests, into docs/failures.md. `tests/rules/test_deaths.py` compares.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.helpers import ROOT

PAGE = ROOT / "docs" / "failures.md"
CONTINUES, ENDS = "continues", "ends"
ROWS = {
    "code": (
        "your code raises",
        CONTINUES,
        "`get` raises the error, with the remote traceback; with `retry_exceptions` the call is retried",
    ),
    "executor": (
        "a process that runs your code",
        CONTINUES,
        "its call is retried (`max_retries`, 3) or fails with `WorkerCrashedError`; its actor restarts "
        "(`max_restarts`) or dies with `ActorDiedError`",
    ),
    "member": (
        "one member of a gang",
        CONTINUES,
        "the other members are killed; the whole call is retried, or fails with `WorkerCrashedError`, which names the "
        "rank",
    ),
    "gang helper": (
        "the process that starts MPI for the gangs of a host (Open MPI)",
        CONTINUES,
        "members there end, and their calls are retried; gangs that start get another such process",
    ),
    "own scheduler": (
        "a call with `own_scheduler=True`, or the process of its scheduler",
        CONTINUES,
        "all its processes, actors and values end with it; the whole call is retried, or fails with "
        "`WorkerCrashedError`",
    ),
    "memory": (
        "a process that uses up the memory",
        CONTINUES,
        "its call is retried, or fails with `OutOfMemoryError`, which names the largest users",
    ),
    "forkserver": (
        "a forkserver, the parent of a rank's processes that run your code",
        CONTINUES,
        "these processes die with it, and all that they started, with the consequences above; another one starts",
    ),
    "rank with ulfm": (
        "a worker rank, with `--fault-tolerant`",
        CONTINUES,
        "its calls run elsewhere, its values are rebuilt, its actors restart",
    ),
    "rank": (
        "a worker rank, otherwise",
        ENDS,
        "at once; most often an error names the rank",
    ),
    "rank at start": (
        "a rank, before all ranks have met",
        ENDS,
        "most often at once, with MPICH up to 5 s later, else after `start_timeout_s`",
    ),
    "head": (
        "the head",
        ENDS,
        "the program gets `HeadDiedError` and can save its work; a launcher ends it within 5 s",
    ),
    "host": (
        "a host, or the network to it",
        ENDS,
        "on all hosts, `heartbeat_timeout_s` after the last message",
    ),
    "launcher": (
        "the launcher",
        ENDS,
        "your program ends after 5 s, with MPICH at once",
    ),
    "driver": (
        "your program",
        ENDS,
        "nothing is left behind",
    ),
    "journal": (
        "any of the above that ends the job, with `init(journal=DIR)`",
        ENDS,
        "the next run takes finished calls from the journal, and actors begin with their last saved state; "
        "`mpi-runtime run --restarts` starts that run",
    ),
    "time": (
        "the time of a Slurm job, with `init(journal=DIR, requeue=True)`",
        ENDS,
        "actors save their states before; the job is requeued and continues from its journal",
    ),
    "disk": (
        "the disk of the journal is full",
        CONTINUES,
        "without a journal, after an error in the log; with `init(journal_required=True)` it ends with an error",
    ),
}
"""By name: what dies, what the job does, and what happens."""


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
    """Return the table of what happens as the page has it."""
    return _in_lines([["what dies", "the job", "what happens"], ["---"] * 3, *ROWS.values()])


def table_of_tests() -> str:
    """Return the table of the tests as the page has it."""
    files = shown_by()
    rows = [[what, ", ".join(f"`{file}`" for file in sorted(files.get(name, ())))] for name, (what, *_) in ROWS.items()]
    return _in_lines([["what dies", "tests"], ["---"] * 2, *rows])


def _in_lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    text = PAGE.read_text()
    for new in (table(), table_of_tests()):
        before, begin, rest = text.partition(new.partition("\n")[0])
        assert begin, "the page lacks this table"
        text = f"{before}{new}\n{rest.partition(chr(10) * 2)[2]}"
    PAGE.write_text(f"{text.rstrip()}\n")


if __name__ == "__main__":
    main()
