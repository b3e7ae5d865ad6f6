"""What concerns actors, in the module from which programs written for Ray import it."""

from mpi_runtime.calls.actor_class import ActorClass, ActorHandle, ActorMethod, exit_actor, get_actor, method

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "exit_actor", "get_actor", "method"]
