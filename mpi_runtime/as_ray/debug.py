"""Functions that libraries use to log a line only once per process."""

_logged: set[object] = set()
_disabled = False


def log_once(key: object) -> bool:
    """Whether this is the first call with this key in this process."""
    if _disabled or key in _logged:
        return False
    _logged.add(key)
    return True


def disable_log_once_globally() -> None:
    """Make `log_once` return False from now on."""
    global _disabled
    _disabled = True


__all__ = ["disable_log_once_globally", "log_once"]
