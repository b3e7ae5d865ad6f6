"""Tracebacks without the frames of this package."""

import sys
import traceback

import pytest

from mpi_runtime.errors import frames

NO_LINE = b"\xff" * 40 if sys.version_info >= (3, 11) else b"\xfe\x80" * 2
"""A table of lines without any, for some hundred bytes of code."""


def test_code_without_a_line_stays_in_the_traceback() -> None:
    """Python compiles the start of some functions so, and Ctrl-C may come there."""

    def stops() -> None:
        raise KeyboardInterrupt

    stops.__code__ = stops.__code__.replace(co_linetable=NO_LINE)
    with pytest.raises(KeyboardInterrupt) as caught:
        stops()
    before = traceback.format_exception(caught.value)
    frames.fold(caught.value, lambda _: False)
    assert traceback.format_exception(caught.value) == before
    assert before[-2].rstrip().endswith("in stops")
