"""The first message between nodes: which members exchange it, and the error if it does not arrive."""

from __future__ import annotations

from typing import Any

import pytest

from mpi_runtime.core.gangs import greeting
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.effects import Membership


class World:
    """A communicator whose messages to some ranks never arrive, and whose messages to the negatives of others fail."""

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost
        self.partners: list[int] = []

    def Isend(self, data: bytes, to: int) -> Any:
        if -to in self.lost:
            raise RuntimeError("MPI_ERR_INTERN: internal error")
        return self._request(to)

    def Irecv(self, data: bytearray, source: int) -> Any:
        return self._request(source)

    def _request(self, rank: int) -> Any:
        self.partners.append(rank)
        request = World(self.lost)
        request.partners = [rank]
        return request

    def Test(self) -> bool:
        return self.partners[0] not in self.lost


def greeted(rank: int, hosts: list[int], lost: set[int]) -> list[int]:
    world = World(lost)
    names = [f"host{number}" for number in range(max(hosts) + 1)]
    greeting.greet(world, Membership(0, rank, hosts, names, []))
    return world.partners


def test_the_first_members_of_neighbouring_nodes_exchange_a_message() -> None:
    hosts = [0, 0, 1, 2, 2]
    assert [greeted(rank, hosts, set()) for rank in range(5)] == [[2, 3], [], [3, 0], [0, 2], []]


def test_what_does_not_arrive_is_an_error_that_names_hosts_interfaces_and_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greeting, "LIMIT_S", 0.01)
    monkeypatch.setattr(greeting, "interfaces", lambda: ["eth0 (10.0.0.1)", "docker0 (172.17.0.1)"])
    monkeypatch.setenv("UCX_NET_DEVICES", "docker0")
    with pytest.raises(LaunchError) as caught:
        greeted(0, [0, 1], {1})
    assert str(caught.value).startswith(
        "rank 0 on host0 and rank 1 on host1 have started MPI, but exchanged no message"
    )
    for words in ("UCX_NET_DEVICES=docker0", "host0 has eth0 (10.0.0.1), docker0 (172.17.0.1)", "Set OMPI_MCA_btl_tcp"):
        assert words in str(caught.value)


def test_a_message_that_the_library_refuses_is_the_same_error_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no network interface, or without its component for networks, Open MPI refuses it at once."""
    monkeypatch.setattr(greeting, "interfaces", lambda: ["eth0 (10.0.0.1)"])
    monkeypatch.setenv("OMPI_MCA_btl", "self,sm")
    with pytest.raises(LaunchError) as caught:
        greeted(0, [0, 1], {-1})
    assert str(caught.value).startswith("rank 0 on host0 and rank 1 on host1 have started MPI, but the first message ")
    for words in (
        "failed (MPI_ERR_INTERN: internal error)",
        "OMPI_MCA_btl=self,sm",
        "host0 has eth0 (10.0.0.1)",
        "Set OMPI_MCA_btl_tcp",
    ):
        assert words in str(caught.value)
