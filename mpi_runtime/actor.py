"""What concerns actors, in the module from which programs written for Ray import it."""

from mpi_runtime.calls.actor_class import ActorClass, exit_actor, method
from mpi_runtime.calls.actor_handle import ActorHandle, ActorMethod, get_actor

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "exit_actor", "get_actor", "method"]
