"""Drivers that join the job, and the end of what belongs to one that has left."""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.events import DRIVER, Forgotten, Released
from mpi_runtime.scheduler.protocol.rank_events import DriverJoined, DriverLeft
from mpi_runtime.scheduler.records.parts import Account
from mpi_runtime.scheduler.records.records import Driver
from mpi_runtime.scheduler.records.state import Client, State

OF_VIEWS = (Released, Forgotten)
"""The events of a driver that has left and still has views of values."""


def join(state: State, event: DriverJoined, now: int) -> None:
    """Let a driver submit calls. It belongs to the node of rank 0."""
    driver = Driver(event.number, Account(f"driver {event.number}"))
    state.next_executor += 1
    state.drivers[driver.number] = driver
    node = state.clients[DRIVER].node
    state.clients[driver.number] = Client(driver.number, node, None, driver=driver)


def leave(state: State, event: DriverLeft, now: int) -> None:
    """Begin to end what belongs to a driver."""
    raise NotImplementedError


def clear_up(state: State, driver: Driver, now: int) -> None:
    """End a part of what belongs to a driver that has left."""
    raise NotImplementedError
