"""The coordinator of a collective group, without a job."""

import pytest

from mpi_runtime.util import collective_group
from mpi_runtime.util.collective_group import _OVER, Coordinator


def test_nobody_joins_a_group_that_its_last_member_is_about_to_end() -> None:
    coordinator = Coordinator(2, None, {})
    assert [coordinator.join(rank, 2, None, b"") for rank in range(2)] == [(0, ""), (0, "")]
    assert not coordinator.leave(0, 1)
    assert coordinator.join(1, 2, None, b"") == (1, ""), "as long as somebody is in it"
    assert not coordinator.leave(0, 0)
    assert coordinator.join(0, 2, None, b"") == (1, "")
    assert [coordinator.leave(1, rank) for rank in range(2)] == [False, True]
    assert coordinator.join(0, 2, None, b"") == (_OVER, "")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_task_that_has_failed_and_joins_from_another_process_leaves_its_rank_of_then(
    is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective_group, "_has_ended", lambda process: False)
    coordinator = Coordinator(2, None, {})
    if is_full:
        assert coordinator.join(0, 2, "a", b"task 0") == (0, "")
    assert coordinator.join(1, 2, "b", b"task 1") == (0, "")
    if not is_full:
        assert coordinator.join(1, 2, "c", b"task 1") == (0, ""), "it has replaced itself"
        return
    assert coordinator.meet(0, 0, 0, "barrier", [], [0, 1]).gone == []
    assert coordinator.join(1, 2, "c", b"task 1") == (1, "")
    assert coordinator.look(0, 0, 0).gone == [1]
    assert coordinator.join(0, 2, "a", b"task 0") == (1, "")
    assert coordinator.meet(1, 0, 0, "barrier", [], [0, 1]).gone == []
    assert coordinator.join(0, 2, "d", b"task 0") == (2, ""), "the first room is gone"
    assert not coordinator.leave(0, 0), "a process of the first attempt leaves late"
