"""Errors of Ray that little or nothing raises here, though a class of their kind may be.

Programs name them in `except`.
"""

from mpi_runtime.errors import ActorDiedError, GetTimeoutError, InternalError, MpiRuntimeError, ObjectLostError

__all__ = [
    "ActorAlreadyExistsError", "ActorHandleNotFoundError", "AsyncioActorExit", "AuthenticationError",
    "CrossLanguageError", "LocalRayletDiedError", "NodeDiedError", "ObjectFetchTimedOutError", "ObjectFreedError",
    "ObjectReconstructionFailedError", "ObjectRefStreamEndOfStreamError",
    "OufOfBandObjectRefSerializationException", "OutOfDiskError", "PlasmaObjectNotAvailable",
    "RayCgraphCapacityExceeded", "RayChannelError", "RayChannelTimeoutError", "RayDirectTransportError",
    "ReferenceCountingAssertionError", "RpcError", "StreamingGeneratorReplayInconsistentError",
    "UnserializableException", "UserCodeException",
]  # fmt: skip


class ObjectReconstructionFailedError(ObjectLostError):
    """A lost value could not be recomputed. Here this is a plain `ObjectLostError`."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """A value was freed too early."""


class ObjectFetchTimedOutError(ObjectLostError):
    """A value was not transferred in time."""


class ObjectFreedError(ObjectLostError):
    """A value was freed by hand."""


class NodeDiedError(MpiRuntimeError):
    """A node is gone. Here the job ends with it."""


class LocalRayletDiedError(MpiRuntimeError):
    """Ray's raylet process is gone. It does not exist here."""


class OutOfDiskError(MpiRuntimeError):
    """A disk is full. Here `put` raises `ObjectStoreFullError` if neither memory nor disk has room."""


class CrossLanguageError(MpiRuntimeError):
    """An error from another language. Here all calls are Python."""


class AsyncioActorExit(MpiRuntimeError):
    """Ends an actor with coroutines in Ray."""


class UnserializableException(MpiRuntimeError):
    """An error cannot be unpickled. Here its text is raised instead."""


class UserCodeException(MpiRuntimeError):
    """A function of a data set has failed. Elsewhere this is a `TaskError`."""


class PlasmaObjectNotAvailable(MpiRuntimeError):
    """A value is not in Ray's store."""


class ObjectRefStreamEndOfStreamError(MpiRuntimeError):
    """A stream has ended. Here this is `StopIteration`."""


class StreamingGeneratorReplayInconsistentError(InternalError):
    """A generator yielded something else when it was run again."""


class OufOfBandObjectRefSerializationException(MpiRuntimeError):
    """A reference was pickled outside of the runtime. Here this is allowed."""


class AuthenticationError(MpiRuntimeError):
    """A token was wrong. Here nothing accepts connections."""


class RpcError(MpiRuntimeError):
    """A message did not arrive. Here this is `HeadDiedError`."""


class RayChannelError(InternalError, RuntimeError):
    """A compiled graph is executed after its `teardown()`."""


RayChannelTimeoutError = GetTimeoutError
"""`get` raises the same for the result of a compiled graph as for others."""


class RayCgraphCapacityExceeded(InternalError):
    """A compiled graph has too many executions that wait. Here their number has no limit."""


class RayDirectTransportError(InternalError):
    """An error of tensors that stay on GPUs."""


class ActorAlreadyExistsError(ValueError, MpiRuntimeError):
    """The name of an actor is taken by a living one."""


class ActorHandleNotFoundError(ValueError, ActorDiedError):
    """A handle of a job that has ended, or of another one."""
