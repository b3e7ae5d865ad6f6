"""The address of this node, for libraries with a network protocol of their own."""

import contextlib
import socket

__all__ = ["get_node_ip_address"]

_ANYWHERE = "192.0.2.1"
"""An address that no host has (TEST-NET-1, RFC 5737). Choosing a route to it sends nothing."""


def get_node_ip_address(address: str = _ANYWHERE) -> str:
    """The address by which this node reaches others. By default that of its route to the outside, else 127.0.0.1.

    This runtime does not listen there.

    Args:
        address: a host to reach; a port after a colon is ignored.
    """
    if not isinstance(address, str):
        raise TypeError(f"address must be the name or the address of a host, not {address!r}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address.partition(":")[0], 53))
            return str(probe.getsockname()[0])
        except (OSError, TypeError, UnicodeError):  # there is no such name
            with contextlib.suppress(OSError):
                return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"
