"""The coordinator of a collective group, without a job."""

from mpi_runtime.util.collective_group import _OVER, Coordinator


def test_nobody_joins_a_group_that_its_last_member_is_about_to_end() -> None:
    coordinator = Coordinator(2, None, {})
    assert [coordinator.join(rank, 2, None) for rank in range(2)] == [(0, ""), (0, "")]
    assert not coordinator.leave(0, 1)
    assert coordinator.join(1, 2, None) == (1, ""), "as long as somebody is in it"
    assert not coordinator.leave(0, 0)
    assert coordinator.join(0, 2, None) == (1, "")
    assert [coordinator.leave(1, rank) for rank in range(2)] == [False, True]
    assert coordinator.join(0, 2, None) == (_OVER, "")
