"""A short run of the soak: two programs, one of them killed and started again."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.sessions.soak import soak


def test_nothing_is_wrong_and_nothing_is_left(tmp_path: Path) -> None:
    seen = soak(tmp_path, 12.0, 1.0)
    assert seen.kills >= 2
    assert seen.rounds > seen.kills
    assert seen.wrong == []
    assert seen.left == "[0, 0, 0, 0, 0]"
