"""How ids are made: by short hashes, so that the same program makes the same ids.

Not by `hashlib`, which loads OpenSSL: a tenth of the time that a process takes to start.
"""

from __future__ import annotations

from _blake2 import blake2b

ID_BYTES = 16
ATTEMPT_BYTES = ID_BYTES + 4
PREFIX_BYTES = 10


def digest(data: bytes, size: int) -> bytes:
    """The BLAKE2b hash of the data, `size` bytes of it."""
    return blake2b(data, digest_size=size).digest()


def attempt_of(id: bytes, attempt: int) -> bytes:
    """The name of one attempt of a call, of ATTEMPT_BYTES."""
    return id + attempt.to_bytes(ATTEMPT_BYTES - ID_BYTES, "big")


def prefix_of(parent: bytes, attempt: int) -> bytes:
    """How the ids of all calls and objects begin that this attempt of a call makes. A counter follows."""
    return digest(attempt_of(parent, attempt), PREFIX_BYTES)
