"""How those that look from outside say that something is wrong."""


class WrongError(AssertionError):
    """The scheduler did what it must not."""


def require(condition: object, message: str) -> None:
    """Raise unless the condition is true."""
    if not condition:
        raise WrongError(message)
