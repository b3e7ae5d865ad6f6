"""What nodes exchange: fences end when all have sent their parts, questions find their way."""

import pytest

from mpi_runtime.core.gangs.gather import Answer, Fence, Fenced, Gather, Question, arrived, encode
from mpi_runtime.core.transport.codec import BadFrameError


def test_a_fence_ends_with_its_last_node_and_can_follow_itself() -> None:
    gather = Gather(3)
    for number in (1, 2):
        assert gather.receive(2, encode(Fence(b"k", [0, 2], b"two"))) == []
        out = gather.receive(0, encode(Fence(b"k", [0, 2], b"zero")))
        assert [node for node, _ in out] == [0, 2]
        assert {data for _, data in out} == {encode(Fenced(b"k", number, [b"zero", b"two"]))}


def test_a_fence_of_many_nodes_sends_one_message_to_each() -> None:
    gather, nodes = Gather(200), list(range(200))
    out = [gather.receive(node, encode(Fence(b"k", nodes, b"%d" % node))) for node in nodes]
    assert not any(out[:-1])
    assert [node for node, _ in out[-1]] == nodes
    assert len({id(data) for _, data in out[-1]}) == 1, "encoded once"
    assert arrived(out[-1][0][1]) == Fenced(b"k", 1, [b"%d" % node for node in nodes])


def test_fences_of_different_nodes_do_not_mix() -> None:
    gather = Gather(3)
    assert gather.receive(0, encode(Fence(b"k", [0, 1], b""))) == []
    assert gather.receive(0, encode(Fence(b"k", [0, 1, 2], b""))) == []
    assert [node for node, _ in gather.receive(1, encode(Fence(b"k", [0, 1], b"")))] == [0, 1]


def test_questions_and_answers_name_their_sender() -> None:
    gather = Gather(2)
    ((node, data),) = gather.receive(0, encode(Question(1, 7, b"what")))
    assert node == 1
    assert arrived(data) == Question(0, 7, b"what")
    ((node, data),) = gather.receive(1, encode(Answer(0, 7, b"that", 3)))
    assert node == 0
    assert arrived(data) == Answer(1, 7, b"that", 3)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        encode(["f"]),
        encode(Fenced(b"", 1, [])),
        encode(Fence(b"k", [], b"")),
        encode(Fence(b"k", [1], b"")),
        encode(Fence(b"k", [0, 0], b"")),
        encode(Fence(b"k", [0, 2], b"")),
        encode(Question(2, 1, b"")),
        encode(Answer(-1, 1, b"")),
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrameError, match="node 0 of a gang"):
        Gather(2).receive(0, data)


def test_a_node_enters_a_fence_once() -> None:
    gather = Gather(2)
    gather.receive(0, encode(Fence(b"k", [0, 1], b"")))
    with pytest.raises(BadFrameError, match="must not enter"):
        gather.receive(0, encode(Fence(b"k", [0, 1], b"")))
