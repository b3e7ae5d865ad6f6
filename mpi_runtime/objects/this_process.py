"""Where this process is, as errors about its values name it: an executor says so once."""

from __future__ import annotations

hostname = ""
"""Empty in a driver: it is asked for then."""
gpus: list[int] = []
"""Numbers of this process's GPUs on its host, in the order in which it sees them."""


def is_on(host: str, numbers: list[int]) -> None:
    """This process runs on this host, with these GPUs."""
    global hostname, gpus
    hostname, gpus = host, numbers
