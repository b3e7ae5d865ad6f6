"""Names of actors: taken by the first creation, free when the actor is told to end or could not be created."""

import msgspec

from mpi_runtime.scheduler.protocol.effects import Answer
from mpi_runtime.scheduler.protocol.events import ActorSpec, Call, KillRequested, NamedActorRequested
from mpi_runtime.scheduler.protocol.questions import ActorName, Actors, NamedActor, NamedActors
from tests.builders import DRIVER, Cluster


def wish(
    cluster: Cluster, actor: bytes, name: str = "a", client: int = DRIVER, detached: bool = False, **spec: int
) -> bytes:
    """Want an actor with this id and name; whose the name is then."""
    made = cluster.spec("Actor", kind=ActorSpec, held_cpu=0, **spec)
    creation = Call(actor, made.id, b"")
    cluster.client_says(client, made, NamedActorRequested(1, "", name, b"handle of " + actor, detached, creation))
    found, handle = msgspec.msgpack.decode(cluster.one(Answer, to=client).data)
    assert handle == b"handle of " + found
    return found  # type: ignore[no-any-return]


def create(cluster: Cluster, id: bytes, detached: bool = False) -> int:
    """Create an actor with this id under the name; its executor."""
    assert wish(cluster, id, detached=detached) == id
    executor = cluster.placed(id)
    cluster.done(executor, id)
    cluster.forget()
    return executor


def look_up(cluster: Cluster, name: str = "a") -> bytes | None:
    found = cluster.ask(NamedActor("", name))
    return found.id if found else None


def test_the_first_gets_the_name() -> None:
    with Cluster().node(cpus=2) as cluster:
        other = cluster.placed(cluster.submit())
        first, second = cluster.id(), cluster.id()
        assert wish(cluster, first, client=other) == first
        cluster.forget()
        assert wish(cluster, second) == first
        cluster.released(second)
        assert look_up(cluster) == first
        assert cluster.ask(NamedActors()) == [ActorName("", "a")]
        assert [(one.ray_namespace, one.name) for one in cluster.ask(Actors(first))] == [("", "a")]


def test_a_dead_actor_keeps_its_name_which_is_free() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.id(), cluster.id()
        cluster.died(create(cluster, first))
        create(cluster, second)
        cluster.client_says(DRIVER, KillRequested(first, True))  # it is dead: the name stays with the other
        cluster.forget()
        assert look_up(cluster) == second
        assert {one.actor_id: (one.name, one.state) for one in cluster.ask(Actors())} == {
            first.hex(): ("a", "DEAD"),
            second.hex(): ("a", "ALIVE"),
        }
        cluster.released(first)
        assert look_up(cluster) == second


def test_what_is_refused_is_not_created() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.id(), cluster.id()
        create(cluster, first)
        assert wish(cluster, second) == first
        cluster.released(second)
        cluster.forget()
        cluster.nothing()
        assert list(cluster.scheduler.state.actors) == [first]


def test_an_actor_that_cannot_be_created_has_no_name() -> None:
    with Cluster().node() as cluster:
        first, second = cluster.id(), cluster.id()
        assert wish(cluster, first, cpu=500_000) == first
        cluster.forget()
        assert look_up(cluster) is None
        assert wish(cluster, second) == second
        cluster.forget()


def test_the_name_is_free_when_its_maker_dies_before_the_creation() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(max_retries=0)
        executor = cluster.placed(call)
        first, second = cluster.id(), cluster.id()
        assert wish(cluster, first, client=executor) == first
        cluster.died(executor, running=call)
        cluster.forget()
        assert look_up(cluster) is None
        assert wish(cluster, second) == second
        cluster.forget()


def test_the_name_is_free_when_the_last_handle_goes() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        executor = create(cluster, actor)
        cluster.released(actor)
        assert look_up(cluster) is None
        cluster.forget()
        cluster.died(executor)
        cluster.forget()
        assert cluster.is_clean()


def test_the_name_is_free_when_the_process_dies() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        cluster.died(create(cluster, actor))
        cluster.forget()
        assert look_up(cluster) is None


def test_a_detached_actor_lives_without_handles_until_it_is_killed() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        executor = create(cluster, actor, detached=True)
        cluster.released(actor)
        cluster.nothing()
        assert look_up(cluster) == actor
        call = cluster.method(actor)
        assert cluster.placed(call) == executor
        cluster.done(executor, call)
        cluster.told(call)
        cluster.client_says(DRIVER, KillRequested(actor))
        assert look_up(cluster) is None
        cluster.forget()
        cluster.died(executor)
        cluster.released(call)
        cluster.forget()
        assert cluster.is_clean()


def test_a_detached_actor_needs_no_name() -> None:
    with Cluster().node(cpus=2) as cluster:
        actors, executors = [cluster.id(), cluster.id()], list[int]()
        for actor in actors:
            assert wish(cluster, actor, name="", detached=True) == actor
            executors.append(cluster.placed(actor))
            cluster.done(executors[-1], actor)
            cluster.released(actor)
            cluster.forget()
        assert look_up(cluster, "") is None
        assert cluster.ask(NamedActors()) == []
        assert list(cluster.scheduler.state.actors) == actors
        for actor, executor in zip(actors, executors, strict=True):
            cluster.client_says(DRIVER, KillRequested(actor))
            cluster.died(executor)
            cluster.forget()
        assert cluster.is_clean()


def test_a_detached_actor_whose_process_dies_is_forgotten() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        executor = create(cluster, actor, detached=True)
        cluster.released(actor)
        cluster.died(executor)
        cluster.forget()
        assert cluster.is_clean()
