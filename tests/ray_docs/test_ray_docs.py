"""What Ray's documentation says, chapter by chapter, holds here as it does in Ray 2.60: see `__main__.py`."""

import re

import pytest

from tests.helpers import ROOT, run_program
from tests.ray_docs import __main__ as ray_docs

DIFFERS = re.compile(r"Differs: (not yet)?", re.DOTALL)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("chapter", ray_docs.CHAPTERS)
def test_a_chapter(chapter: str) -> None:
    if library := ray_docs.NEEDS.get(chapter):
        pytest.importorskip(library)
    run_program(f"import sys; sys.argv[1:] = ['{chapter}']; from tests.ray_docs.__main__ import main; sys.exit(main())",
                cwd=ROOT, timeout=150).expect(0)  # fmt: skip


def test_most_is_the_same() -> None:
    entries = [entry for chapter in ray_docs.CHAPTERS for entry in ray_docs.recorded(chapter).values()]
    assert len(entries) > 300
    assert all("ray" in entry for entry in entries)
    assert sum("here" in entry for entry in entries) <= 0.04 * len(entries)
