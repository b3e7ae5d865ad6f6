"""docs/patterns.md: every example runs, and both ways of a pattern give the same answer."""

from typing import Any

import pytest

from benchmarks.patterns import DOCUMENT, read
from tests.helpers import run_program

BEGINNING, PATTERNS = read()


def test_the_document_is_whole() -> None:
    text = DOCUMENT.read_text()
    assert text.count("```python") == 1 + 2 * len(PATTERNS)
    for title, _, _ in PATTERNS:
        assert f"\n| {title} | " in text, "it has a row in the table at the end"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "how", [{}, pytest.param({"ranks": 3, "mpi": "openmpi"}, marks=pytest.mark.mpi)], ids=["plain", "mpirun"]
)
def test_both_ways_give_the_same_answer(how: Any) -> None:
    examples = [example for _, *both in PATTERNS for example in both]
    program = BEGINNING + "".join(f"{example}print(repr(answer))\n" for example in examples)
    answers = run_program(program, timeout=150.0, **how).expect(0).stdout.splitlines()
    assert len(answers) == 2 * len(PATTERNS)
    for (title, _, _), worse, better in zip(PATTERNS, answers[::2], answers[1::2], strict=True):
        assert worse == better, title
