"""Frames: lists of messages as msgpack. Each direction has a decoder, which accepts only messages of the sender."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from mpi_runtime.scheduler.effects import Entry
from mpi_runtime.scheduler.events import Call
from mpi_runtime.transport import messages
from mpi_runtime.transport.base import Buffer

Message = TypeVar("Message")


class BadFrameError(Exception):
    """A frame that its sender may not send. We have a bug, or user code has written to our channel."""


class Codec(Generic[Message]):
    """Decodes the frames of one direction."""

    def __init__(self, union: object) -> None:
        frame = list[union]  # type: ignore[valid-type]
        self._decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(frame)

    def decode(self, frame: Buffer) -> list[Message]:
        """Decode one frame.

        Raises:
            BadFrameError: the bytes are not a list of this direction's messages.
        """
        try:
            return self._decoder.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            start = bytes(frame[:40])
            raise BadFrameError(f"{error}; the frame of {len(frame)} bytes starts with {start!r}") from error


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


from_client: Codec[messages.FromClient] = Codec(messages.FromClient)
to_agent: Codec[messages.ToAgent] = Codec(messages.ToAgent)
to_client: Codec[messages.ToClient] = Codec(messages.ToClient)
between_ranks: Codec[messages.BetweenRanks] = Codec(messages.BetweenRanks)
