"""Reads files of the kernel, as those in /proc."""


def read(path: str) -> str:
    """Return the content of a file without white space around it; empty if it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
