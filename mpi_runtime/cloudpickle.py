"""The cloudpickle that carries functions and values to executors, in the module that programs for Ray import."""

from cloudpickle import CloudPickler, dump, dumps, load, loads, register_pickle_by_value, unregister_pickle_by_value

__all__ = [
    "CloudPickler",
    "dump",
    "dumps",
    "load",
    "loads",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]
