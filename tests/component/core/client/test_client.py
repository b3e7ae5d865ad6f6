"""Cancelled at any line, the client leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT

ANYWHERE = Path(__file__).with_name("cancels_anywhere.py")


@pytest.mark.timeout(300)
def test_a_cancel_anywhere_leaves_nothing_behind() -> None:
    """In a process of its own, which ends with this test. Among others, in a worker of xdist, it stood still twice in
    many runs, in `gc.collect()` of Python 3.11.7; never alone, in thousands. The cause was not found. It traces each
    line, and raises there. What `helpers.frames` avoids is another place where 3.11 stands still as it collects.
    """
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(ANYWHERE)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
