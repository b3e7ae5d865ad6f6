"""Doorbells, without MPI: several in this process, as if each were a rank of its own."""

import errno
import os
import select
import socket
import struct
import threading
from pathlib import Path

import pytest

from mpi_runtime.core.transport import doorbell
from mpi_runtime.core.transport.base import TransportError
from mpi_runtime.core.transport.doorbell import Doorbell, lowest_of_host


def joined(ranks: list[int], size: int) -> dict[int, Doorbell]:
    """The doorbells of the ranks of one host; close them."""
    bells = {rank: Doorbell() for rank in ranks}
    meet(bells, size)
    return bells


def meet(bells: dict[int, Doorbell], size: int) -> None:
    """Have them join, each in a thread."""
    names = {rank: bell.name for rank, bell in bells.items()}
    threads = [threading.Thread(target=bell.join, args=(rank, size, names)) for rank, bell in bells.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def close(bells: dict[int, Doorbell], *descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    for bell in bells.values():
        bell.close()


def taken(bell: Doorbell, key: bytes, given: int) -> int:
    """Take what was given: a copy of this descriptor."""
    (copy,) = bell.take(key, 1.0)
    assert os.fstat(copy) == os.fstat(given)
    return copy


def rings(bell: Doorbell) -> bool:
    return bool(select.select([bell.fileno()], [], [], 0)[0])


def test_only_sleepers_are_rung_and_only_once() -> None:
    bells = joined([2, 3, 5], size=7)
    bells[2].ring(3)
    assert not rings(bells[3])
    bells[3].sleep()
    bells[2].ring(0)  # on another host: nothing to do
    bells[2].ring(3)
    bells[5].ring(3)
    assert rings(bells[3])
    assert not rings(bells[5])
    assert os.eventfd_read(bells[3].fileno()) == 1
    bells[3].wake()
    bells[5].ring(3)
    assert not rings(bells[3])
    os.eventfd_write(bells[3].fileno(), 1)  # late, and known to have come
    bells[3].wake(rung=True)
    assert not rings(bells[3])
    close(bells)


def test_late_rings_do_not_keep_a_rank_awake() -> None:
    bells = joined([0, 1], size=2)
    # As if rank 0 had cleared the flag, then slept for a while, then rung.
    os.eventfd_write(bells[1].fileno(), 1)
    turns = 0
    while rings(bells[1]):
        bells[1].sleep()
        bells[1].wake()
        turns += 1
        assert turns < 100
    close(bells)


def test_give_and_take() -> None:
    bells = joined([0, 1], size=2)
    inner, outer = os.pipe()
    bells[0].give(outer, b"pipe")
    copy = taken(bells[1], b"pipe", outer)
    assert not os.get_inheritable(copy)
    os.write(copy, b"through the copy")
    assert os.read(inner, 100) == b"through the copy"
    assert bells[1].take(b"pipe", 0.0) == []
    close(bells, inner, outer, copy)


def test_what_was_given_again_is_not_taken_for_another() -> None:
    before = set(os.listdir("/proc/self/fd"))
    bells = joined([0, 1, 2], size=3)
    old, new = os.memfd_create("old"), os.memfd_create("new")
    for _ in range(2):
        bells[0].give(old, b"old")
    bells[1].give(new, b"new")
    copy = taken(bells[2], b"new", new)
    close(bells, old, new, copy)
    assert set(os.listdir("/proc/self/fd")) == before


def test_who_does_not_read_keeps_nobody_who_gives_again() -> None:
    bells = joined([0, 1], size=2)
    outer = os.memfd_create("outer")
    for _ in range(2000):
        bells[0].give(outer, b"outer", wait=False)
    copy = taken(bells[1], b"outer", outer)
    close(bells, outer, copy)


@pytest.mark.parametrize("is_known", [True, False])
def test_any_rank_gives_a_descriptor_when_the_lowest_has_died(is_known: bool) -> None:
    bells = joined([2, 3, 5], size=7)
    bells.pop(2).close()
    if is_known:
        bells[3].forget(2)
    inner, outer = os.pipe()
    bells[3].give(outer, b"pipe")
    copy = taken(bells[5], b"pipe", outer)
    close(bells, inner, outer, copy)


def test_the_lowest_rank_knows_the_others_and_who_ends_by_itself() -> None:
    bells = joined([2, 3, 5], size=7)
    assert bells[2].pids == {3: os.getpid(), 5: os.getpid()}
    assert bells[3].pids == {2: os.getpid()}
    bells[5].leave()
    assert [bells[2].has_left(rank) for rank in (3, 5)] == [False, True]
    bells[2].ring(5)
    assert not rings(bells[5]), "it is not asleep"
    close(bells)


def send_as_a_stranger(name: bytes) -> int:
    """Another user sends a descriptor to the socket of a doorbell; the number of the error, if there is one."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 2))
                stranger.sendmsg([struct.pack("<i", 1)], [rights], 0, b"\0mpi_runtime-" + name)
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_descriptors_of_strangers_are_not_taken() -> None:
    before = set(os.listdir("/proc/self/fd"))
    bells = {rank: Doorbell() for rank in (0, 1)}
    assert send_as_a_stranger(bells[0].name) == 0
    meet(bells, size=2)
    inner, outer = os.pipe()
    bells[0].give(outer, b"pipe")
    copy = taken(bells[1], b"pipe", outer)
    close(bells, inner, outer, copy)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_nobody_can_send_when_the_ranks_have_met() -> None:
    bells = joined([0, 1, 2], size=3)
    assert [send_as_a_stranger(bell.name) for bell in bells.values()] == [errno.ECONNREFUSED] * 3
    assert "mpi_runtime-" + bells[0].name.decode() not in Path("/proc/net/unix").read_text()
    close(bells)


def test_a_peer_that_is_gone_is_named() -> None:
    bell, peer = Doorbell(), Doorbell()
    names = {0: bell.name, 1: peer.name}
    bell.close()
    with pytest.raises(TransportError, match="rank 1 cannot reach rank 0 over a Unix socket"):
        peer.join(1, 2, names)
    peer.close()


def test_a_peer_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "START_LIMIT_S", 0.1)
    bell, peer = Doorbell(), Doorbell()
    with pytest.raises(TransportError, match="for descriptors from other ranks of its host"):
        bell.join(0, 2, {0: bell.name, 1: peer.name})
    bell.close()
    peer.close()


def test_hosts_are_those_whose_doorbells_can_be_reached() -> None:
    bells = [Doorbell() for _ in range(4)]
    names = [bell.name for bell in bells[:3]] + [b"0" * doorbell.NAME_BYTES]  # as if rank 3 were elsewhere
    bells.pop().close()
    try:
        same = [b"node"] * 4
        assert [lowest_of_host(rank, range(4), same, names) for rank in range(3)] == [0, 0, 0]
        assert lowest_of_host(3, range(4), [b"node", b"other", b"other", b"node"], names[::-1]) == 3
        assert lowest_of_host(2, range(4), [b"node", b"other", b"other", b"node"], names) == 1
        assert lowest_of_host(2, [0, 1, 0, 3], [b"a", b"b", b"c", b"d"], names) == 0  # as MPI says
    finally:
        for bell in bells:
            bell.close()
