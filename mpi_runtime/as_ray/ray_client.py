"""Ray's client, which connects a program to a remote cluster. It does not exist here, but libraries ask for it."""

from __future__ import annotations


class _Client:
    def is_connected(self) -> bool:
        """Whether this program uses a remote cluster: never."""
        return False

    def get_context(self) -> _Client:
        """The connection, which is not there."""
        return self


ray = _Client()

__all__ = ["ray"]
