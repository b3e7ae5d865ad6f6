"""The address of this node, for libraries that have programs of their own talk to each other."""

import socket

__all__ = ["get_node_ip_address"]

_ANYWHERE = "192.0.2.1"
"""An address that is nobody's (TEST-NET-1, RFC 5737): to choose a way to it nothing is sent."""


def get_node_ip_address(address: str = _ANYWHERE) -> str:
    """The address by which this node reaches others: by default that of its way to the outside, else 127.0.0.1.

    Args:
        address: of whom it is to be reached; a port behind a colon means nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address.partition(":")[0], 53))
        except OSError:
            return _of_hostname()
        return str(probe.getsockname()[0])


def _of_hostname() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
