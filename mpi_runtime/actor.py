"""Names about actors, where programs written for Ray import them."""

from mpi_runtime.core.calls.actor_class import ActorClass, exit_actor, method
from mpi_runtime.core.calls.actor_handle import ActorHandle, ActorMethod, get_actor

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "exit_actor", "get_actor", "method"]
