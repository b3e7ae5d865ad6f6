"""Names of the module `ray` that have no meaning in this runtime."""

import enum
from typing import Any

from mpi_runtime.client.refs import ObjectRef

__version__ = "2.60.0"
"""The version of Ray whose API is followed. Libraries compare it with the version that they need."""

ObjectID = ObjectRef


class Language(enum.Enum):
    """The programming language of a function."""

    PYTHON = 0
    JAVA = 1
    CPP = 2


class LoggingConfig:
    """Ray's settings for logging. Accepted without effect, because nothing is logged to files here."""

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)


SCRIPT_MODE, WORKER_MODE, LOCAL_MODE = 0, 1, 2

__all__ = ["LOCAL_MODE", "SCRIPT_MODE", "WORKER_MODE", "Language", "LoggingConfig", "ObjectID", "__version__"]
