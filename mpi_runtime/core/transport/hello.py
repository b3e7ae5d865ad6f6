"""The first message of a program that connects to a session, and the address of a session's door.

    length: 4 bytes | a `Hello` in msgpack, a map, so that other versions can read it

With its first byte come the descriptors of the program's standard output and error. The answer is a `Welcome`
(`start.py`). An address is an abstract one, in the host's network namespace, and vanishes with the session. It does not
show the secret.
"""

from __future__ import annotations

import os
import sys

import msgspec

from mpi_runtime.scheduler.protocol.ids import digest

PROTOCOL = 1
"""The version of `Hello`, and of what follows it."""
HELLO_BYTES_MAX = 1 << 16
LENGTH_BYTES = 4


WORDS = {
    "protocol": "the protocol of connections",
    "package": "mpi_runtime",
    "python": "Python",
    "byte_order": "the byte order",
    "machine": "the machine",
}
"""What both ends must have in common: they exchange pickles of code, and share memory."""


def ways() -> dict[str, str | int]:
    """Return what this process has of `WORDS`."""
    return {
        "protocol": PROTOCOL,
        "package": getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""),
        "python": ".".join(map(str, sys.version_info[:2])),
        "byte_order": sys.byteorder,
        "machine": os.uname().machine,
    }


class Hello(msgspec.Struct, kw_only=True):
    """The first message of a program."""

    secret: str
    ways: dict[str, str | int]
    """From `ways()`. Other versions may have more."""
    pid: int = 0
    program: str = ""
    """Its name, for people."""
    log_to_driver: bool = True
    """Whether it shows the output of its calls."""


def differences(theirs: dict[str, str | int]) -> str:
    """Return what a program and this session do not have in common, in words; empty if it can connect."""
    ours = ways()
    found = [
        f"{what} is {theirs.get(name, 'unknown')} in the program and {ours[name]} in the session"
        for name, what in WORDS.items()
        if theirs.get(name) != ours[name]
    ]
    return "; ".join(found)


def address_of(secret: str) -> str:
    """Return the address of the door of a session of this user."""
    return f"\0mpi_runtime-session-{os.geteuid()}-{digest(b'door ' + secret.encode(), 16).hex()}"
