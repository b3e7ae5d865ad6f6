"""Functions that libraries use to log a line only once per process."""

import time

PERIOD_S = 60.0
"""With `enable_periodic_logging`: after how many seconds each line may be logged again."""

_logged: set[object] = set()
_disabled = _periodic = False
_last_s = 0.0


def log_once(key: object) -> bool:
    """Whether this is the first call with this key in this process."""
    global _last_s
    if _disabled:
        return False
    if key in _logged:
        if _periodic and time.monotonic() - _last_s > PERIOD_S:
            _logged.clear()
        return False
    _logged.add(key)
    _last_s = time.monotonic()
    return True


def disable_log_once_globally() -> None:
    """Make `log_once` return False from now on."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """Let each line be logged again after a minute without new ones."""
    global _periodic
    _periodic = True


def reset_log_once(key: object = None) -> None:
    """Forget that a key was logged; None: all of them."""
    if key is None:
        _logged.clear()
    else:
        _logged.discard(key)


__all__ = ["disable_log_once_globally", "enable_periodic_logging", "log_once", "reset_log_once"]
