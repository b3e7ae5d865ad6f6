"""The dialogue of PMI-1: recorded dialogues of MPICH, cut and joined anywhere, on one node and on two."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mpi_runtime.core.gangs.gather import Fence, Fenced, Gather, arrived, encode
from mpi_runtime.core.gangs.pmi1 import Dialogue, ProtocolError, Reply, mapping

RECORDED = [
    # What MPICH 5.0.2 sends in MPI_Init and MPI_Finalize, and what it gets. {r}: its rank; None: a barrier.
    ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
    ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
    ("cmd=get_appnum", "cmd=appnum rc=0 appnum=0"),
    ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=g@1-0"),
    ("cmd=get_universe_size", "cmd=universe_size rc=0 size=3"),
    ("cmd=get kvsname=g@1-0 key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value={mapping}"),
    ("cmd=put kvsname=g@1-0 key=r{r} value=address#$of={r}", "cmd=put_result rc=0 msg=success"),
    ("cmd=barrier_in", None),
    ("cmd=get kvsname=g@1-0 key=r0", "cmd=get_result rc=0 msg=success value=address#$of=0"),
    ("cmd=get kvsname=g@1-0 key=r2", "cmd=get_result rc=0 msg=success value=address#$of=2"),
    ("cmd=get kvsname=g@1-0 key=nothing", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
    ("cmd=barrier_in group=0,1,2:5", None),
    ("cmd=finalize", "cmd=finalize_ack rc=0"),
]


class Nodes:
    """The nodes of a gang, with the head between them."""

    def __init__(self, hosts: list[int]) -> None:
        self.hosts = hosts
        nodes = sorted(set(hosts))
        self.gather = Gather(len(nodes))
        self.sides = [
            Dialogue("g@1", [rank for rank, host in enumerate(hosts) if host == node], hosts, [f"n{n}" for n in nodes])
            for node in nodes
        ]
        self.got: dict[int, bytes] = dict.fromkeys(range(len(hosts)), b"")

    def send(self, rank: int, data: bytes) -> None:
        self._perform(self.hosts[rank], self.sides[self.hosts[rank]].receive(rank, data))

    def _perform(self, node: int, actions: list[Reply | Fence]) -> None:
        for action in actions:
            if isinstance(action, Reply):
                self.got[action.rank] += action.data
                continue
            for to, data in self.gather.receive(node, encode(action)):
                message = arrived(data)
                assert isinstance(message, Fenced)
                self._perform(to, [*self.sides[to].fenced(message.key, message.parts)])

    def ask(self, rank: int, line: str) -> str:
        self.send(rank, f"{line}\n".encode())
        answer, self.got[rank] = self.got[rank].decode(), b""
        return answer.rstrip("\n")


def texts(hosts: list[int], rank: int, generation: int = 0) -> tuple[list[str], list[str]]:
    """The lines of a rank and the answers, with barriers' ends."""
    filled = {"{r}": str(rank), "{mapping}": mapping(hosts), "g@1-0": f"g@1-{generation}"}
    lines, answers = [], []
    for line, answer in RECORDED:
        group = f" {line.partition(' ')[2]}" if "group" in line else ""
        answer = answer or f"cmd=barrier_out rc=0{group}"
        for name, text in filled.items():
            line, answer = line.replace(name, text), answer.replace(name, text)
        lines.append(line)
        answers.append(answer)
    return lines, answers


@pytest.mark.parametrize("hosts", [[0, 0, 0], [0, 0, 1], [0, 1, 2]])
@settings(max_examples=15)
@given(data=some.data())
def test_recorded_dialogues_cut_and_joined_anywhere(hosts: list[int], data: some.DataObject) -> None:
    """Members that run ahead of each other, and pieces of lines of any length: the answers are the same."""
    nodes = Nodes(hosts)
    pending = {rank: texts(hosts, rank)[0] for rank in range(3)}
    sent: dict[int, bytes] = dict.fromkeys(range(3), b"")
    waits: dict[int, int] = dict.fromkeys(range(3), 0)
    while any(pending.values()) or any(sent.values()):
        ready = [rank for rank in range(3) if sent[rank] or (pending[rank] and answered(nodes, rank, waits))]
        rank = data.draw(some.sampled_from(ready))
        if not sent[rank]:
            sent[rank] = f"{pending[rank].pop(0)}\n".encode()
            waits[rank] += 1
        cut = data.draw(some.integers(1, len(sent[rank])))
        piece, sent[rank] = sent[rank][:cut], sent[rank][cut:]
        nodes.send(rank, piece)
    for rank in range(3):
        assert nodes.got[rank].decode().splitlines() == texts(hosts, rank)[1]
    assert all(side.initialised == side.finalized for side in nodes.sides)


def answered(nodes: Nodes, rank: int, waits: dict[int, int]) -> bool:
    return nodes.got[rank].count(b"\n") == waits[rank]


def test_a_second_program_has_a_name_and_keys_of_its_own() -> None:
    """`./a && ./b`: one member may be in the second program while another one still is in the first."""
    nodes = Nodes([0, 1])
    for line in ("cmd=init", "cmd=put key=k value=first", "cmd=barrier_in"):
        nodes.ask(0, line)
        nodes.ask(1, line)
    nodes.got[0] = b""
    assert nodes.ask(0, "cmd=finalize") == "cmd=finalize_ack rc=0"
    nodes.ask(0, "cmd=init")
    assert nodes.ask(0, "cmd=get_my_kvsname") == "cmd=my_kvsname rc=0 kvsname=g@1-1"
    assert "rc=-1" in nodes.ask(0, "cmd=get key=k")
    assert nodes.ask(0, "cmd=barrier_in") == ""  # it waits for the other one's second program
    assert nodes.ask(1, "cmd=get key=k") == "cmd=get_result rc=0 msg=success value=first"
    assert nodes.sides[0].initialised == {0}
    assert nodes.sides[0].finalized == set()
    nodes.ask(1, "cmd=finalize")
    nodes.ask(1, "cmd=init")
    assert nodes.ask(1, "cmd=barrier_in") == "cmd=barrier_out rc=0"
    assert nodes.got[0] == b"cmd=barrier_out rc=0\n"


def test_a_barrier_of_a_group_does_not_wait_for_others_and_its_keys_reach_all_in_the_end() -> None:
    nodes = Nodes([0, 1, 1, 2])
    for rank in range(4):
        nodes.ask(rank, "cmd=init")
    nodes.ask(0, "cmd=put key=k value=v")
    assert nodes.ask(0, "cmd=barrier_in group=0,2") == ""
    assert nodes.ask(2, "cmd=barrier_in group=0,2") == "cmd=barrier_out rc=0 group=0,2"
    assert "value=v" in nodes.ask(1, "cmd=get key=k")
    assert "rc=-1" in nodes.ask(3, "cmd=get key=k")
    assert nodes.ask(1, "cmd=barrier_in group=NODE") == ""
    assert nodes.ask(2, "cmd=barrier_in group=NODE") == "cmd=barrier_out rc=0 group=NODE"
    nodes.got = dict.fromkeys(range(4), b"")
    for rank in range(4):
        nodes.ask(rank, "cmd=barrier_in group=WORLD")
    nodes.got[3] = b""
    assert "value=v" in nodes.ask(3, "cmd=get key=k")


def test_commands_of_several_lines_and_of_intel() -> None:
    nodes = Nodes([0, 0, 1])
    nodes.ask(0, "cmd=init")
    spawn = "mcmd=spawn\nnprocs=1\nexecname=a\nendcmd"
    assert nodes.ask(0, spawn) == "cmd=spawn_result rc=-1 errcodes=-1"
    hosts = "2 n0 0,1, 2 n1 2, "
    assert nodes.ask(0, "get_ranks2hosts") == f"put_ranks2hosts {len(hosts) + 2} 2\n{hosts}"
    assert nodes.ask(0, "cmd=publish_name service=s port=p").startswith("cmd=publish_result rc=-1")
    assert nodes.ask(0, "cmd=unheard_of") == "cmd=unheard_of_result rc=-1 msg=unknown_command"
    nodes.ask(0, "cmd=put key=k value=v")
    assert nodes.ask(0, "cmd=getbyidx idx=1") == "cmd=getbyidx_results rc=0 nextidx=2 key=k val=v"
    assert nodes.ask(0, "cmd=getbyidx idx=2") == "cmd=getbyidx_results rc=-1 reason=no_more_keyvals"
    assert nodes.ask(0, f"cmd=put key=k value={'v' * 1025}") == "cmd=put_result rc=-1 msg=too_long"


def test_an_abort_is_noted_and_not_answered() -> None:
    nodes = Nodes([0, 0])
    nodes.ask(1, "cmd=init")
    assert nodes.ask(1, "cmd=abort exitcode=3 message=out of luck") == ""
    assert nodes.sides[0].aborted == (1, 3, "out of luck")


@pytest.mark.parametrize(
    "line", ["cmd=barrier_in group=7", "cmd=barrier_in group=x", "cmd=barrier_in group=1", "x" * 70_000]
)
def test_nonsense_is_refused(line: str) -> None:
    nodes = Nodes([0, 0])
    nodes.ask(0, "cmd=init")
    with pytest.raises(ProtocolError):
        nodes.send(0, line.encode() + (b"" if "x" * 9 in line else b"\n"))


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([0], "(vector,(0,1,1))"),
        ([0, 0, 0, 0], "(vector,(0,1,4))"),
        ([0, 0, 1, 1, 2, 2], "(vector,(0,3,2))"),
        ([0, 0, 1, 2, 3], "(vector,(0,1,2),(1,3,1))"),
        ([0, 1, 0, 1], "(vector,(0,2,1),(0,2,1))"),
    ],
)
def test_mappings(hosts: list[int], text: str) -> None:
    assert mapping(hosts) == text


def test_a_mapping_that_is_too_long_is_left_out() -> None:
    """MPICH then compares host names."""
    hosts = [host for host in range(300) for _ in range(1 + host % 2)]
    assert len(mapping(hosts)) > 1024
    side = Dialogue("g", [0], hosts, [str(host) for host in range(300)])
    side.receive(0, b"cmd=init\n")
    (reply,) = side.receive(0, b"cmd=get key=PMI_process_mapping\n")
    assert isinstance(reply, Reply)
    assert b"rc=-1" in reply.data
