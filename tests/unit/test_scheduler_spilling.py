"""Who may still use a place in an arena that is to be used again."""

from types import SimpleNamespace
from typing import Any, cast

from mpi_runtime.scheduler import spilling
from mpi_runtime.scheduler.events import Forgotten
from mpi_runtime.scheduler.state import Client, Object, State

ID = bytes(16)


def told_after(told: dict[int, int], asked: int, forgets: bool) -> dict[int, int] | None:
    """Whom the scheduler takes to know a place after client 7 has answered the question with this number."""
    state = State()
    found = state.objects[ID] = Object(ID, -1, 1)
    found.told = told
    client = cast(Client, SimpleNamespace(id=7, node=SimpleNamespace(is_full=False)))
    spilling.forgotten(state, client, cast(Any, Forgotten(asked, [ID], [ID] if forgets else [])))
    return found.told


def test_who_forgets_a_place_is_not_known_to_use_it() -> None:
    assert told_after({7: 3, 8: 0}, asked=3, forgets=True) == {8: 0}


def test_who_looks_at_a_value_keeps_it_and_may_be_asked_again() -> None:
    assert told_after({7: 3}, asked=3, forgets=False) == {7: 0}


def test_an_answer_that_has_crossed_a_new_telling_does_not_count() -> None:
    assert told_after({7: 0}, asked=3, forgets=True) == {7: 0}
    assert told_after({7: 4}, asked=3, forgets=True) == {7: 4}
