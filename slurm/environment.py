"""The only module of this package that reads the environment."""

import os
from collections.abc import Mapping


def environment() -> Mapping[str, str]:
    """Return a copy of the environment of this process as it is now."""
    return dict(os.environ)
