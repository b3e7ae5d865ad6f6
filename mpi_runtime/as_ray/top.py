"""Names of the module `ray` itself that this runtime has no use for."""

import enum
from typing import Any

from mpi_runtime.client.refs import ObjectRef

__version__ = "2.60.0"
"""The version of Ray whose names and meanings are followed: libraries compare it with what they need."""

ObjectID = ObjectRef


class Language(enum.Enum):
    """In what a function is written."""

    PYTHON = 0
    JAVA = 1
    CPP = 2


class LoggingConfig:
    """How Ray is to log: accepted and without meaning, since nothing is logged to files here."""

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)


SCRIPT_MODE, WORKER_MODE, LOCAL_MODE = 0, 1, 2

__all__ = ["LOCAL_MODE", "SCRIPT_MODE", "WORKER_MODE", "Language", "LoggingConfig", "ObjectID", "__version__"]
