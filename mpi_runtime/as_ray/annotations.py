"""Decorators that libraries made for Ray put on their definitions. They change nothing."""


class RayDeprecationWarning(DeprecationWarning):
    """A warning about names that will be removed."""


def _mark(*targets: object, **_: object) -> object:
    if len(targets) == 1 and callable(targets[0]):
        return targets[0]
    return lambda target: target


PublicAPI = DeveloperAPI = Deprecated = _mark

__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]
