"""Frames: lists of messages as msgpack. Each direction has a decoder, which accepts only messages of the sender."""

import functools
import reprlib
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from mpi_runtime.core.transport import messages
from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.scheduler.protocol.effects import Entry
from mpi_runtime.scheduler.protocol.events import Call

Message = TypeVar("Message")


class BadFrameError(Exception):
    """A frame that its sender may not send. We have a bug, or user code has written to our channel."""


class Codec(Generic[Message]):
    """Decodes the frames of one direction."""

    def __init__(self, union: object, is_for_all: bool = False) -> None:
        """Decode messages of this union. `is_for_all`: every process needs it, so the decoder is made now."""
        self._union = union
        if is_for_all:
            self.read(b"\x90")  # an empty list

    @functools.cached_property
    def _decoder(self) -> msgspec.msgpack.Decoder[list[Message]]:
        """Takes some milliseconds."""
        return msgspec.msgpack.Decoder(list[self._union])  # type: ignore[name-defined]

    def read(self, frame: Buffer) -> list[Message]:
        """Decode one frame; raises errors of msgspec and of Python."""
        return self._decoder.decode(frame)

    def decode(self, frame: Buffer) -> list[Message]:
        """Decode one frame.

        Raises:
            BadFrameError: the bytes are not a list of this direction's messages.
        """
        try:
            return self.read(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            start = bytes(frame[:40])
            raise BadFrameError(f"{error}; the frame of {len(frame)} bytes starts with {start!r}") from error


def check(message: msgspec.Struct) -> None:
    """Check that a client's message can be read. msgspec looks at types only when it decodes.

    Raises:
        TypeError: it cannot. The message names the field and its value.
    """
    try:
        from_client.read(encode([message]))
    except _UNREADABLE as error:
        for field in msgspec.structs.fields(message):
            value = getattr(message, field.name)
            try:
                msgspec.msgpack.decode(_encoder.encode(value), type=field.type)
            except _UNREADABLE as why:
                raise TypeError(f"{field.name} must not be {reprlib.repr(value)}: {why}") from None
        raise TypeError(f"the request cannot be sent: {error}") from None


_UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_encoder = msgspec.msgpack.Encoder()


def encode(frame: Sequence[object]) -> bytes:
    """Encode a list of messages as one frame."""
    return _encoder.encode(frame)


encode_one = _encoder.encode
"""Encode a message alone: an entry of a frame."""


def apart(frame: Buffer) -> tuple[bytes, bytes]:
    """Split a frame for a client in two: what it can use at once; and calls, with the values of their arguments.

    A value goes into both frames if it is an argument: a running call may wait for it too.
    """
    messages_in = to_client.decode(frame)
    now = [message for message in messages_in if type(message) is not Call]
    calls = [message for message in messages_in if type(message) is Call]
    ids = {id for call in calls for id in call.arguments}
    values = [message for message in messages_in if isinstance(message, Entry) and message.id in ids]
    later = [messages.ForCalls(), *values, *calls] if values else calls
    return encode(now) if now else b"", encode(later)


from_client: Codec[messages.FromClient] = Codec(messages.FromClient, is_for_all=True)
to_agent: Codec[messages.ToAgent] = Codec(messages.ToAgent)
to_attendant: Codec[messages.ToAttendant] = Codec(messages.ToAttendant)
through_door: Codec[messages.ThroughDoor] = Codec(messages.ThroughDoor)
to_client: Codec[messages.ToClient] = Codec(messages.ToClient, is_for_all=True)
between_ranks: Codec[messages.BetweenRanks] = Codec(messages.BetweenRanks)
