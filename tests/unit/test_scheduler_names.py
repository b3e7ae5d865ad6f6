"""Names of actors: claimed before the creation, free when the actor is told to end or its maker has died."""

import msgspec

from mpi_runtime.scheduler.effects import Answer
from mpi_runtime.scheduler.events import ACTOR, Call, Killed, Named
from tests.builders import DRIVER, Cluster


def claim(cluster: Cluster, actor: bytes, name: str = "a", client: int = DRIVER, detached: bool = False) -> bytes:
    """Claim a name; whose it is then."""
    cluster.client_says(client, Named(1, "", name, actor, b"handle of " + actor, detached))
    found, handle = msgspec.msgpack.decode(cluster.one(Answer, to=client).data)
    assert handle == b"handle of " + found
    return found  # type: ignore[no-any-return]


def create(cluster: Cluster, id: bytes, client: int = DRIVER) -> int:
    """Create an actor with this id; its executor."""
    spec = cluster.spec("Actor", kind=ACTOR, held_cpu=0)
    cluster.client_says(client, spec, Call(id, spec.id, b""))
    executor = cluster.placed(id)
    cluster.done(executor, id)
    cluster.forget()
    return executor


def look_up(cluster: Cluster, name: str = "a") -> bytes | None:
    found = cluster.ask("named_actor", msgspec.msgpack.encode(("", name)))
    return found[0] if found else None


def test_the_first_claim_gets_the_name() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.id(), cluster.id()
        assert claim(cluster, first) == first
        create(cluster, first)
        assert claim(cluster, second) == first
        assert look_up(cluster) == first
        assert cluster.ask("named_actors") == [["", "a"]]


def test_of_two_claims_before_any_creation_the_first_counts() -> None:
    """The second one is answered after the creation, so that what it calls comes after it too."""
    with Cluster().node(cpus=2) as cluster:
        other = cluster.placed(cluster.submit())
        first, second = cluster.id(), cluster.id()
        assert claim(cluster, first, client=other) == first
        cluster.client_says(DRIVER, Named(2, "", "a", second, b""))
        cluster.nothing()
        assert look_up(cluster) is None
        spec = cluster.spec("Actor", kind=ACTOR, held_cpu=0)
        cluster.client_says(other, spec, Call(first, spec.id, b""))
        assert msgspec.msgpack.decode(cluster.one(Answer, to=DRIVER).data) == [first, b"handle of " + first]
        cluster.forget()
        assert look_up(cluster) == first


def test_who_waits_for_a_claim_gets_the_name_if_its_client_dies() -> None:
    with Cluster().node(cpus=2) as cluster:
        call, third_call = cluster.submit(max_retries=0), cluster.submit(max_retries=0)
        other, third = cluster.placed(call), cluster.placed(third_call)
        first, second = cluster.id(), cluster.id()
        assert claim(cluster, first, client=other) == first
        cluster.client_says(third, Named(2, "", "a", cluster.id(), b""))
        cluster.client_says(DRIVER, Named(3, "", "a", second, b"mine"))
        cluster.died(third, running=third_call)
        cluster.forget()
        cluster.died(other, running=call)
        assert msgspec.msgpack.decode(cluster.one(Answer, to=DRIVER).data) == [second, b"mine"]
        cluster.forget()
        create(cluster, second)
        assert look_up(cluster) == second


def test_who_claims_again_without_having_created_gets_it() -> None:
    """Ctrl-C may have come between the claim and the creation."""
    with Cluster().node() as cluster:
        first, second = cluster.id(), cluster.id()
        assert claim(cluster, first) == first
        assert claim(cluster, second) == second
        create(cluster, second)
        assert look_up(cluster) == second


def test_a_claim_of_a_dead_client_counts_for_nothing() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(max_retries=0)
        executor = cluster.placed(call)
        claim(cluster, cluster.id(), client=executor)
        cluster.died(executor, running=call)
        cluster.forget()
        assert look_up(cluster) is None
        mine = cluster.id()
        assert claim(cluster, mine) == mine


def test_the_name_is_free_when_the_last_handle_goes() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        claim(cluster, actor)
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
        claim(cluster, actor)
        cluster.died(create(cluster, actor))
        cluster.forget()
        assert look_up(cluster) is None


def test_a_detached_actor_lives_without_handles_until_it_is_killed() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        claim(cluster, actor, detached=True)
        executor = create(cluster, actor)
        cluster.released(actor)
        cluster.nothing()
        assert look_up(cluster) == actor
        call = cluster.method(actor)
        assert cluster.placed(call) == executor
        cluster.done(executor, call)
        cluster.told(call)
        cluster.client_says(DRIVER, Killed(actor))
        assert look_up(cluster) is None
        cluster.forget()
        cluster.died(executor)
        cluster.released(call)
        cluster.forget()
        assert cluster.is_clean()


def test_a_detached_actor_whose_process_dies_is_forgotten() -> None:
    with Cluster().node() as cluster:
        actor = cluster.id()
        claim(cluster, actor, detached=True)
        executor = create(cluster, actor)
        cluster.released(actor)
        cluster.died(executor)
        cluster.forget()
        assert cluster.is_clean()
