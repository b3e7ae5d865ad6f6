"""How a broken invariant is reported."""


class BrokenInvariantError(AssertionError):
    """The state contradicts itself: a bug of the runtime. Please report it with the text."""


def holds(condition: object, message: str) -> None:
    """Raise unless the condition is true."""
    if not condition:
        raise BrokenInvariantError(message)
