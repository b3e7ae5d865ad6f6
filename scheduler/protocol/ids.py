"""Derives ids by short hashes, so that the same program makes the same ids.

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


def alternative_id(spec: int, index: int) -> int:
    """The id of the spec for an alternative of a spec, from its index; 0 is the spec itself."""
    return int.from_bytes(digest(b"%d|%d" % (spec, index), 8), "big") >> 1 if index else spec


def attempt_of(id: bytes, attempt: int) -> bytes:
    """The name of one attempt of a call, of ATTEMPT_BYTES."""
    return id + attempt.to_bytes(ATTEMPT_BYTES - ID_BYTES, "big")


def prefix_of(parent: bytes, attempt: int) -> bytes:
    """The first bytes of all ids that this attempt of a call makes. A counter follows."""
    return digest(attempt_of(parent, attempt), PREFIX_BYTES)


def return_ids(id: bytes, num_returns: int) -> list[bytes]:
    """The ids of the values of a call with this id. It has one even if it returns nothing."""
    if num_returns <= 1:
        return [id]
    start = int.from_bytes(id, "big")
    return [(start + index).to_bytes(ID_BYTES, "big") for index in range(num_returns)]


def index_of_several(count: int, used: int) -> tuple[int, int]:
    """The first index for `count` values of one call, and how much is `used` then.

    The indices are consecutive. The highest bit marks one of several values. The next five bits are the number of low
    bits in which the values differ; these are zero in the first value. So each id determines the first one.
    """
    bits = (count - 1).bit_length()
    begin = -(-used >> bits) << bits
    return _SEVERAL | bits << _BITS_AT | begin, begin + (1 << bits)


def first_of(id: bytes) -> bytes:
    """The id of the call that makes a value: the id of its first value."""
    index = int.from_bytes(id[PREFIX_BYTES:], "big")
    if not index & _SEVERAL:
        return id
    bits = index >> _BITS_AT & 31
    return id[:PREFIX_BYTES] + (index >> bits << bits).to_bytes(ID_BYTES - PREFIX_BYTES, "big")


_SEVERAL = 1 << 47
_BITS_AT = 42
