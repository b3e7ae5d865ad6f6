"""The dialogue of PMI-1, which MPICH and its relatives speak with their launcher: bytes in, bytes out.

A member sends a line, such as `cmd=get kvsname=g key=k`, and waits for a line in return. Members publish their
addresses as keys (`put`), wait for each other (`barrier_in`), and read the keys of others (`get`). A key is visible to
others after a barrier.

A program may call MPI_Init, finalize, and another program of the same member may then do the same (`./a && ./b`). Each
time is a generation with keys, barriers and a name of its own: MPICH derives names of shared memory from it.

Source: the wire protocol 1.2 as described in MPICH's `src/pmi/maint/pmi-1.2.txt`, and dialogues of MPICH 4.0 and 5.0.
`get_ranks2hosts` is an extension of Intel MPI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import msgspec

from mpi_runtime.core.gangs.gather import Fence

KEY_MAX, NAME_MAX, VALUE_MAX = 64, 256, 1024
"""The longest key, name of a gang, and value, in bytes. Older clients have buffers of 1024 bytes for a line."""
LINE_MAX = 1 << 16
"""A member that sends more without the end of a line does not speak PMI-1."""
MAPPING = "PMI_process_mapping"
_FIELD = re.compile(r"(\S+?)=(.*?)(?= \S+?=|$)")


class Reply(msgspec.Struct, frozen=True):
    """Bytes for a member."""

    rank: int
    data: bytes


class ProtocolError(Exception):
    """What a member has sent is not PMI-1."""


class _Generation:
    """What the members of this node have published and wait for, between MPI_Init and finalize."""

    def __init__(self, mapping: str) -> None:
        self.keys = {MAPPING: mapping} if len(mapping) < VALUE_MAX else {}  # without it MPICH compares host names
        self.unsent: dict[str, str] = {}
        self.waiting: dict[str, list[int]] = {}


class Dialogue:
    """The dialogues with the members of one gang on one node."""

    def __init__(self, name: str, ranks: Sequence[int], hosts: Sequence[int], names: Sequence[str]) -> None:
        """Begin.

        Args:
            name: of the gang. It must never have been used before: shared memory is named after it.
            ranks: of the members on this node.
            hosts: the number of the node of each rank.
            names: the host names of the nodes.
        """
        self.initialised: set[int] = set()
        self.finalized: set[int] = set()
        self.aborted: tuple[int, int, str] | None = None
        self._name, self._hosts, self._names = name, hosts, names
        self._own = hosts[ranks[0]]
        self._rest = dict.fromkeys(ranks, b"")
        self._many: dict[int, str] = {}
        """Of members in the middle of a command of several lines: what they have sent of it."""
        self._generation = dict.fromkeys(ranks, -1)
        self._generations: dict[int, _Generation] = {}

    def receive(self, rank: int, data: bytes) -> list[Reply | Fence]:
        """Take bytes of a member, cut anywhere, and return what is to be sent.

        Raises:
            ProtocolError: this is not PMI-1.
        """
        *lines, rest = (self._rest[rank] + data).split(b"\n")
        if len(rest) > LINE_MAX or len(self._many.get(rank, "")) > LINE_MAX:
            raise ProtocolError(f"rank {rank} has sent {len(rest)} bytes without the end of a line")
        self._rest[rank] = rest
        return [one for line in lines for one in self._line(rank, line.decode("utf-8", "replace").strip())]

    def fenced(self, key: bytes, parts: Sequence[bytes]) -> list[Reply]:
        """Take the parts of all nodes of a fence, and return what is to be sent."""
        number, _, group = key.decode().partition(" ")
        generation = self._of(int(number))
        for part in parts:
            generation.keys.update(msgspec.msgpack.decode(part, type=dict[str, str]))
        return self._leave(generation, group)

    def _of(self, number: int) -> _Generation:
        if number not in self._generations:
            self._generations[number] = _Generation(mapping(self._hosts))
        return self._generations[number]

    def _line(self, rank: int, line: str) -> Sequence[Reply | Fence]:
        if rank in self._many or line.startswith("mcmd="):
            so_far = f"{self._many.pop(rank, '')} {line}".strip()
            if line != "endcmd":
                self._many[rank] = so_far
                return []
            line = so_far[1:].removesuffix(" endcmd")
        if not line:
            return []
        fields: dict[str, str] = dict(_FIELD.findall(line))
        command = fields.get("cmd") or line.split(" ")[0]  # Intel MPI omits "cmd=" in one of its own commands
        if command == "barrier_in":
            return self._barrier(rank, fields.get("group", ""))
        if command == "abort":
            self.aborted = (
                rank,
                _number(fields.get("exitcode", "1")),
                fields.get("message", fields.get("error_msg", "")),
            )
            return []
        answer = _ANSWERS.get(command)
        text = answer(self, rank, fields) if answer else f"cmd={command}_result rc=-1 msg=unknown_command"
        return [Reply(rank, f"{text}\n".encode())]

    # Barriers

    def _barrier(self, rank: int, group: str) -> Sequence[Reply | Fence]:
        number = self._generation[rank]
        generation = self._of(number)
        members = self._members(group)
        nodes = sorted({self._hosts[one] for one in members})
        if rank not in members:
            raise ProtocolError(f"rank {rank} enters a barrier of others: {group}")
        waiting = generation.waiting.setdefault(group, [])
        waiting.append(rank)
        if len(waiting) < sum(self._hosts[one] == self._own for one in members):
            return []
        if nodes == [self._own]:
            return self._leave(generation, group)
        part = msgspec.msgpack.encode(generation.unsent)
        if len(nodes) == len(self._names):
            generation.unsent = {}  # else other nodes have not seen these keys
        return [Fence(f"{number} {group}".encode(), nodes, part)]

    def _members(self, group: str) -> Sequence[int]:
        """Return the ranks of a group of hydra's: `WORLD`, `NODE`, or ranks; a tag may follow a colon."""
        text = group.partition(":")[0]
        if text in ("", "WORLD"):
            return range(len(self._hosts))
        if text == "NODE":
            return [rank for rank, host in enumerate(self._hosts) if host == self._own]
        members = sorted({_number(one) for one in text.split(",")})
        if members[0] < 0 or members[-1] >= len(self._hosts):
            raise ProtocolError(f"a barrier names ranks that do not exist: {group}")
        return members

    def _leave(self, generation: _Generation, group: str) -> list[Reply]:
        suffix = f" group={group}" if group else ""
        return [Reply(rank, f"cmd=barrier_out rc=0{suffix}\n".encode()) for rank in generation.waiting.pop(group, [])]

    # Answers

    def _init(self, rank: int, fields: Mapping[str, str]) -> str:
        self._generation[rank] += 1
        self.initialised.add(rank)
        self.finalized.discard(rank)
        oldest = min(self._generation.values())
        self._generations = {number: one for number, one in self._generations.items() if number >= oldest}
        return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"

    def _finalize(self, rank: int, fields: Mapping[str, str]) -> str:
        self.finalized.add(rank)
        return "cmd=finalize_ack rc=0"

    def _kvsname(self, rank: int, fields: Mapping[str, str]) -> str:
        return f"cmd=my_kvsname rc=0 kvsname={self._name}-{self._generation[rank]}"

    def _put(self, rank: int, fields: Mapping[str, str]) -> str:
        key, value = fields.get("key", ""), fields.get("value", "")
        if not key or len(key) > KEY_MAX or len(value) > VALUE_MAX:
            return "cmd=put_result rc=-1 msg=too_long"
        generation = self._of(self._generation[rank])
        generation.keys[key] = generation.unsent[key] = value
        return "cmd=put_result rc=0 msg=success"

    def _get(self, rank: int, fields: Mapping[str, str]) -> str:
        value = self._of(self._generation[rank]).keys.get(fields.get("key", ""))
        if value is None:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 msg=success value={value}"

    def _by_index(self, rank: int, fields: Mapping[str, str]) -> str:
        items = list(self._of(self._generation[rank]).keys.items())
        index = _number(fields.get("idx", "0"))
        if not 0 <= index < len(items):
            return "cmd=getbyidx_results rc=-1 reason=no_more_keyvals"
        key, value = items[index]
        return f"cmd=getbyidx_results rc=0 nextidx={index + 1} key={key} val={value}"

    def _ranks_to_hosts(self, rank: int, fields: Mapping[str, str]) -> str:
        """Intel MPI: a line with the length of the rest and the number of hosts, then each host with its ranks."""
        found = []
        for host, name in enumerate(self._names):
            ranks = "".join(f"{one}," for one, node in enumerate(self._hosts) if node == host)
            found.append(f"{len(name)} {name} {ranks} ")
        rest = "".join(found)
        return f"put_ranks2hosts {len(rest) + 2} {len(found)}\n{rest}"


_Answer = Callable[[Dialogue, int, Mapping[str, str]], str]
_ANSWERS: dict[str, _Answer] = {
    "init": Dialogue._init,
    "finalize": Dialogue._finalize,
    "get_maxes": lambda *_: f"cmd=maxes rc=0 kvsname_max={NAME_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX}",
    "get_appnum": lambda *_: "cmd=appnum rc=0 appnum=0",
    "get_my_kvsname": Dialogue._kvsname,
    "get_universe_size": lambda self, *_: f"cmd=universe_size rc=0 size={len(self._hosts)}",
    "put": Dialogue._put,
    "get": Dialogue._get,
    "getbyidx": Dialogue._by_index,
    "get_ranks2hosts": Dialogue._ranks_to_hosts,
    # MPI_Comm_spawn, MPI_Publish_name and their like fail with an error of MPI.
    "spawn": lambda *_: "cmd=spawn_result rc=-1 errcodes=-1",
    "publish_name": lambda *_: "cmd=publish_result rc=-1 info=not_supported",
    "unpublish_name": lambda *_: "cmd=unpublish_result rc=-1 info=not_supported",
    "lookup_name": lambda *_: "cmd=lookup_result rc=-1 info=not_supported",
}


def mapping(hosts: Sequence[int]) -> str:
    """Return which node has which ranks, as MPICH reads it: `(vector,(first node,nodes,ranks on each),...)`."""
    runs = [(host, len(list(ranks))) for host, ranks in groupby(hosts)]
    blocks: list[list[int]] = []
    for host, count in runs:
        if blocks and blocks[-1][2] == count and blocks[-1][0] + blocks[-1][1] == host:
            blocks[-1][1] += 1
        else:
            blocks.append([host, 1, count])
    return f"(vector,{','.join(f'({first},{nodes},{count})' for first, nodes, count in blocks)})"


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ProtocolError(f"a number was expected, not {text[:40]!r}") from error
