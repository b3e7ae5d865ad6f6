"""Errors of Ray that nothing raises here. Programs written for Ray name them in `except`."""

from mpi_runtime.errors import InternalError, MpiRuntimeError, ObjectLostError

__all__ = [
    "ActorAlreadyExistsError",
    "ActorHandleNotFoundError",
    "AsyncioActorExit",
    "AuthenticationError",
    "CrossLanguageError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectReconstructionFailedError",
    "ObjectRefStreamEndOfStreamError",
    "OufOfBandObjectRefSerializationException",
    "OutOfDiskError",
    "OwnerDiedError",
    "PlasmaObjectNotAvailable",
    "RayCgraphCapacityExceeded",
    "RayChannelError",
    "RayChannelTimeoutError",
    "RayDirectTransportError",
    "ReferenceCountingAssertionError",
    "RpcError",
    "StreamingGeneratorReplayInconsistentError",
    "UnserializableException",
    "UserCodeException",
]


class OwnerDiedError(ObjectLostError):
    """The process that made the value is gone: here values outlive those who make them."""


class ObjectReconstructionFailedError(ObjectLostError):
    """A lost value could not be made again: `ObjectLostError` says so here."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """A value was freed too early."""


class ObjectFetchTimedOutError(ObjectLostError):
    """A value could not be brought in time."""


class ObjectFreedError(ObjectLostError):
    """A value was freed by hand."""


class NodeDiedError(MpiRuntimeError):
    """A node is gone: here the job ends with it."""


class LocalRayletDiedError(MpiRuntimeError):
    """A process of Ray is gone that there is none of here."""


class OutOfDiskError(MpiRuntimeError):
    """A disk is full: nothing is written to disks here."""


class CrossLanguageError(MpiRuntimeError):
    """Raised in another language."""


class AsyncioActorExit(MpiRuntimeError):
    """How actors with coroutines end in Ray."""


class UnserializableException(MpiRuntimeError):
    """An error that cannot be read: here its text comes."""


class UserCodeException(MpiRuntimeError):
    """An error of user code, which is a `TaskError` here."""


class PlasmaObjectNotAvailable(MpiRuntimeError):
    """A value is not in Ray's store."""


class ObjectRefStreamEndOfStreamError(MpiRuntimeError):
    """The end of a stream, which is StopIteration here."""


class StreamingGeneratorReplayInconsistentError(InternalError):
    """A generator yielded something else when it was run again."""


class OufOfBandObjectRefSerializationException(MpiRuntimeError):
    """A reference was pickled outside of the runtime, which is allowed here."""


class AuthenticationError(MpiRuntimeError):
    """A token was wrong: nothing can be connected to here."""


class RpcError(MpiRuntimeError):
    """A message did not arrive: `HeadDiedError` says so here."""


class RayChannelError(InternalError):
    """Of compiled graphs, which there are none of here."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """The same."""


class RayCgraphCapacityExceeded(InternalError):
    """The same."""


class RayDirectTransportError(InternalError):
    """Of tensors that stay on GPUs."""


class ActorAlreadyExistsError(ValueError, MpiRuntimeError):
    """A name is taken: a plain ValueError here."""


class ActorHandleNotFoundError(ValueError, MpiRuntimeError):
    """A handle of another cluster."""
