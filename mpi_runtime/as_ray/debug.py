"""What libraries use to log a line only once in a process."""

_logged: set[object] = set()
_disabled = False


def log_once(key: object) -> bool:
    """Whether nobody has asked for this key yet in this process."""
    if _disabled or key in _logged:
        return False
    _logged.add(key)
    return True


def disable_log_once_globally() -> None:
    """Have `log_once` say no from here on."""
    global _disabled
    _disabled = True


__all__ = ["disable_log_once_globally", "log_once"]
