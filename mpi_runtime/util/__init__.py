"""Tools for user programs, on top of the public names: `ActorPool`, and `Queue` in `mpi_runtime.util.queue`."""

from mpi_runtime.util.actor_pool import ActorPool

__all__ = ["ActorPool"]
