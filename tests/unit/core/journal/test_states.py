"""Which actor of an earlier run an actor continues: never one that may be another."""

from mpi_runtime.core.journal.states import States
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Fresh, Recall
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.protocol.ids import PREFIX_BYTES

KEY = b"k" * 16


def id_of(number: int, parent: int = 0) -> bytes:
    return bytes([parent]) * PREFIX_BYTES + number.to_bytes(16 - PREFIX_BYTES, "big")


def saved(id: bytes, number: bytes, base: bytes = b"") -> Checkpoint:
    return Checkpoint(id, KEY, "Adder", number, id + number, base, 0, Kept(number))


def begin(states: States, id: bytes) -> bytes:
    """The name of the state with which an actor begins; empty: none."""
    wanted = Recall(id, KEY, b"c" * 16, "Adder", is_actor=True)
    found = states.candidates(wanted)
    if not found:
        return b""
    states.begin(wanted, found[0])
    return found[0].number


def states_of(*bodies: Checkpoint | Fresh) -> States:
    states = States()
    for body in bodies:
        if isinstance(body, Fresh):
            states.began(body)
        else:
            states.saved(body)
    return states


def test_the_last_state_of_the_actor_itself_is_taken() -> None:
    states = states_of(
        Fresh(id_of(1), KEY), Fresh(id_of(2), KEY), saved(id_of(2), b"a"), saved(id_of(1), b"b"), saved(id_of(2), b"c")
    )
    assert [begin(states, id_of(number)) for number in (1, 2)] == [b"b", b"c"]


def test_an_equal_actor_that_had_no_state_begins_without() -> None:
    states = states_of(Fresh(id_of(1), KEY), Fresh(id_of(2), KEY), saved(id_of(2), b"a"))
    assert [begin(states, id_of(number)) for number in (1, 2)] == [b"", b"a"]


def test_the_only_actor_is_found_when_the_calls_before_it_have_changed() -> None:
    states = states_of(Fresh(id_of(1), KEY), saved(id_of(1), b"a"))
    assert [begin(states, id_of(number)) for number in (5, 1)] == [b"a", b""], "once"


def test_one_that_was_continued_by_another_counts_as_that() -> None:
    states = states_of(Fresh(id_of(1), KEY), saved(id_of(1), b"a"), saved(id_of(5), b"b", base=b"a"))
    assert begin(states, id_of(9)) == b"b"


def test_of_several_equal_actors_none_is_guessed() -> None:
    states = states_of(saved(id_of(1), b"a"), saved(id_of(2), b"b"))
    assert begin(states, id_of(5)) == b""


def test_an_equal_actor_of_another_call_is_another_one() -> None:
    states = states_of(Fresh(id_of(1), KEY), saved(id_of(1), b"a"))
    assert begin(states, id_of(1, parent=7)) == b""


def test_a_state_that_cannot_be_used_is_not_replaced_by_that_of_an_equal_actor() -> None:
    """A record of a call that the first state contains is damaged."""
    damaged = Checkpoint(id_of(1), KEY, "Adder", b"a", b"life", b"", 3, Kept(b"a"))
    states = states_of(Fresh(id_of(1), KEY), damaged, Fresh(id_of(2), KEY), saved(id_of(2), b"b"))
    assert [begin(states, id_of(number)) for number in (1, 2)] == [b"", b"b"]
