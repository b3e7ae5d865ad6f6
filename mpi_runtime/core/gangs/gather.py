"""What members on different nodes exchange while they start: the head's part, and its messages.

Pure: no socket, no clock. A fence ends when each of its nodes has sent its part, and each then receives all parts. A
question goes to one node, and its answer comes back. What the bytes mean only the nodes know.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpi_runtime.core.transport.codec import BadFrameError

FENCES_MAX = 1000
"""Fences of a gang that are under way at a time. Each member can wait for one in each of its threads."""


class Fence(msgspec.Struct, array_like=True, tag="f", frozen=True):
    """A node has its part of a fence."""

    key: bytes
    """Equal on all nodes of the fence. It may be used again for a later one."""
    nodes: list[int]
    """The nodes that take part, ascending."""
    part: bytes


class Fenced(msgspec.Struct, array_like=True, tag="F", frozen=True):
    """All nodes have sent their parts."""

    key: bytes
    number: int
    """Counts the fences of the gang from 1: the same on all nodes, and never used again."""
    parts: list[bytes]
    """In the order of the nodes."""


class Question(msgspec.Struct, array_like=True, tag="q", frozen=True):
    """A node asks another one."""

    node: int
    """The node that is asked; on arrival the one that asks."""
    number: int
    """Chosen by the node that asks."""
    body: bytes


class Answer(msgspec.Struct, array_like=True, tag="a", frozen=True):
    """A node answers the `Question` with this number."""

    node: int
    """The node that has asked; on arrival the one that answers."""
    number: int
    body: bytes
    status: int = 0


_from_node = msgspec.msgpack.Decoder(Fence | Question | Answer)
_to_node: msgspec.msgpack.Decoder[Fenced | Question | Answer] = msgspec.msgpack.Decoder(Fenced | Question | Answer)
encode = msgspec.msgpack.encode


def arrived(data: bytes) -> Fenced | Question | Answer:
    """Return the message in the bytes that a node receives."""
    return _to_node.decode(data)


class Gather:
    """The exchange of one gang."""

    def __init__(self, nodes: int) -> None:
        """Begin. `nodes`: the number of nodes of the gang; they are numbered from 0."""
        self._nodes = nodes
        self._parts: dict[tuple[bytes, tuple[int, ...]], dict[int, bytes]] = {}
        self._fences = 0

    def receive(self, node: int, data: bytes) -> Sequence[tuple[int, bytes]]:
        """Take a message of a node, and return messages to send: node and bytes.

        Raises:
            BadFrameError: it cannot be read, or names a node that the gang does not have.
        """
        try:
            message = _from_node.decode(data)
        except msgspec.DecodeError as error:
            raise BadFrameError(f"node {node} of a gang has sent a message that cannot be read: {error}") from error
        if isinstance(message, Fence):
            return self._fence(node, message)
        self._check(node, [message.node])
        return [(message.node, encode(msgspec.structs.replace(message, node=node)))]

    def _fence(self, node: int, message: Fence) -> Sequence[tuple[int, bytes]]:
        self._check(node, message.nodes)
        key = message.key, tuple(message.nodes)
        parts = self._parts.setdefault(key, {})
        if node not in message.nodes or node in parts or len(self._parts) > FENCES_MAX:
            raise BadFrameError(f"node {node} of a gang must not enter the fence {message.key!r} of {message.nodes}")
        parts[node] = message.part
        if len(parts) < len(message.nodes):
            return []
        del self._parts[key]
        self._fences += 1
        data = encode(Fenced(message.key, self._fences, [parts[one] for one in message.nodes]))
        return [(one, data) for one in message.nodes]

    def _check(self, node: int, nodes: Sequence[int]) -> None:
        if not nodes or sorted(set(nodes)) != list(nodes) or nodes[0] < 0 or nodes[-1] >= self._nodes:
            raise BadFrameError(f"node {node} of a gang of {self._nodes} nodes names nodes {list(nodes)[:20]}")
