"""Life cycles: what may happen in which state, and the stories of what did."""

from typing import Any

import pytest

from mpi_runtime.scheduler.protocol.events import CancelRequested
from mpi_runtime.scheduler.protocol.limits import STORIES_MAX, STORY_CAUSE_CHARS_MAX, STORY_MOVES_MAX
from mpi_runtime.scheduler.records.lifecycle import (
    BLOCK,
    FINISH,
    LOSE,
    MOVES,
    READY,
    SENT,
    TAKE_BACK,
    IllegalTransitionError,
    Named,
    Stories,
    advance,
    so_far,
)
from tests.builders import DRIVER, Cluster


class Thing:
    def __init__(self, state: int, id: bytes = b"id") -> None:
        self.state = state
        self.id = id

    def __str__(self) -> str:
        return f"thing {self.id.decode()}"


@pytest.mark.parametrize("known", MOVES, ids=lambda known: f"{known.thing} {known.name}")
def test_only_what_is_in_the_table_may_happen(known: Named) -> None:
    stories = Stories()
    for state, name in enumerate(known.states):
        thing = Thing(state)
        if state in known.move:
            advance(stories, thing, known.move)
            assert thing.state == known.move[state]
            assert thing.state in range(len(known.states))
        else:
            with pytest.raises(IllegalTransitionError, match=f"thing id is {name!r} and cannot be {known.name!r}"):
                advance(stories, thing, known.move)
            assert thing.state == state
    assert stories.of(b"id") == ""


def test_every_state_but_the_first_is_reached_and_every_name_is_one() -> None:
    for kind in {(known.thing, known.states) for known in MOVES}:
        moves = [known for known in MOVES if (known.thing, known.states) == kind]
        assert {state for known in moves for state in known.move.values()} >= set(range(1, len(kind[1])))
        assert len({known.name for known in moves}) == len(moves)


def test_an_illegal_transition_tells_the_story() -> None:
    with Cluster().node() as cluster:
        task = cluster.state.objects[cluster.submit(name="fit")].task
        cluster.forget()
        assert task is not None
        advance(cluster.state.stories, task, TAKE_BACK, "it stood behind another call")
        with pytest.raises(IllegalTransitionError) as caught:
            advance(cluster.state.stories, task, FINISH)
        assert str(caught.value) == (
            f"call {task.id.hex()} of fit (attempt 0, order 1) is 'ready' and cannot be 'finished'. "
            "Its story: 0 s ago the call was taken back (it stood behind another call)."
        )
        assert task.state == READY


# Stories


def test_a_story_says_when_what_and_why() -> None:
    stories, thing = Stories(), Thing(SENT)
    stories.now = 1_000_000
    advance(stories, thing, LOSE, "its process died\nwith a long tale")
    stories.now = 3_500_000
    assert stories.of(b"id") == "2.5 s ago the call was lost (its process died)"
    assert so_far(stories.of(b"id")).startswith(" What had happened before: 2.5 s ago")
    assert stories.of(b"id", besides="its process died\nand more") == ""
    assert so_far("") == ""


def test_the_same_in_a_row_is_told_once() -> None:
    stories = Stories()
    for second in range(3):
        stories.now = second * 1_000_000
        advance(stories, Thing(SENT), BLOCK, "it waits for objects")
    assert stories.of(b"id") == "0 s ago the call was blocked, 3 times in a row (it waits for objects)"


def test_stories_are_bounded() -> None:
    stories = Stories()
    for number in range(2 * STORY_MOVES_MAX):
        advance(stories, Thing(SENT), LOSE, f"{number} " + "x" * 1000)
    told = stories.of(b"id").split("; ")
    assert len(told) == STORY_MOVES_MAX
    assert f"({2 * STORY_MOVES_MAX - 1} x" in told[-1]
    assert all(len(one) < STORY_CAUSE_CHARS_MAX + 100 for one in told)
    for number in range(STORIES_MAX):
        advance(stories, Thing(SENT, str(number).encode()), LOSE, "why")
    assert stories.of(b"id") == "", "the oldest goes first"
    assert stories.of(b"0")


def test_the_straight_path_has_no_story() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cluster.started(executor)
        cluster.done(executor, call)
        cluster.told(call)
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        method = cluster.method(actor)
        cluster.done(cluster.placed(method), method)
        cluster.told(method)
        assert [cluster.state.stories.of(id) for id in (call, actor, method, executor)] == [""] * 4
        assert not cluster.explain(call).story


def test_a_call_that_crashes_again_and_again_says_how() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(name="fit", max_retries=1)
        first = cluster.placed(call)
        cluster.started(first)
        cluster.died(first, call, "was killed by signal 9")
        cluster.now += 2_000_000
        second = cluster.placed(call)
        where = f"executor {first} (pid {4000 + first}, rank 0, host0)"
        story = f"2 s ago the call was lost ({where} was killed by signal 9)"
        assert cluster.explain(call).story == story
        cluster.died(second, call, "exited with code 3")
        message = cluster.told(call).message
        assert "exited with code 3. It was run 2 times; max_retries is 1." in message
        assert message.endswith(f" What had happened before: {story}.")
        assert "given an error (WorkerCrashedError)" in cluster.explain(call).story
        cluster.released(call)
        gone = cluster.explain(call)
        assert gone.state == "unknown"
        assert "was lost" in gone.story, "a story outlives its thing"


def test_an_actor_that_dies_for_good_says_what_it_went_through() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor = cluster.actor(max_restarts=1)
        for _ in range(2):
            executor = cluster.placed(actor)
            cluster.done(executor, actor)
            cluster.forget()
            method = cluster.method(actor)
            cluster.placed(method)
            cluster.died(executor, method, "was killed by signal 9")
            reason: Any = cluster.told(method)
        assert reason.code == "ActorDiedError"
        assert "What had happened before: 0 s ago the actor was to start again (executor 1" in reason.message
        assert "the object was to be rebuilt" not in reason.message
        cluster.forget()


def test_a_story_is_told_of_a_call_that_was_taken_back() -> None:
    with Cluster().node(cpus=1) as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        cluster.done(executor, first, us=1000)
        cluster.told(first)
        running, behind = cluster.submit_many(2)
        assert cluster.running(running, behind) == [executor] * 2
        cluster.blocked(executor, b"x" * 16)
        cluster.forget()
        cluster.taken_back(executor, behind)
        assert "taken back (it stood behind another call)" in cluster.explain(behind).story
        assert "blocked (it waits for objects)" in cluster.explain(running).story
        cluster.forget()


def test_a_cancelled_call_says_so() -> None:
    with Cluster().node(cpus=1) as cluster:
        cluster.placed(cluster.submit())
        waiting = cluster.submit()
        cluster.client_says(DRIVER, CancelRequested(waiting, False, False))
        assert cluster.told(waiting, DRIVER).code == "TaskCancelledError"
        assert "the call was cancelled (TaskCancelledError)" in cluster.explain(waiting).story


def test_a_dead_actor_tells_of_the_actor_not_of_the_call_that_made_it() -> None:
    with Cluster().node(cpus=1) as cluster:
        actor = cluster.actor(cpu=4)
        assert cluster.told(actor).code == "InfeasibleResourceError"
        message = cluster.told(cluster.method(actor)).message
        assert "could not be created" in message
        assert "What had happened before" not in message
        assert "given an error (InfeasibleResourceError)" in cluster.explain(actor).story
