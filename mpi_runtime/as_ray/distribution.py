"""The distribution "ray" for `importlib.metadata`."""

from importlib.metadata import Distribution
from pathlib import Path

from mpi_runtime.as_ray.top import __version__


class Ray(Distribution):
    """A distribution with a name and a version, and no files."""

    def read_text(self, filename: str) -> str | None:
        """Return METADATA, the only file."""
        return f"Metadata-Version: 2.1\nName: ray\nVersion: {__version__}\n" if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        """Return the path that a file would have."""
        return Path(__file__).parent / str(path)
