"""The host and GPUs of this process, for messages about values. An executor sets them once."""

from __future__ import annotations

hostname = ""
"""Empty in a driver, where the system is asked instead."""
gpu_ids: list[int] = []
"""Numbers of this process's GPUs on its host, in the order in which it sees them."""


def is_on(host: str, ids: list[int]) -> None:
    """Set the host and the GPUs of this process."""
    global hostname, gpu_ids
    hostname, gpu_ids = host, ids
