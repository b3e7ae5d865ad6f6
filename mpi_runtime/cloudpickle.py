"""The cloudpickle that pickles functions and values, where programs written for Ray import it."""

from cloudpickle import CloudPickler, dump, dumps, load, loads, register_pickle_by_value, unregister_pickle_by_value

__all__ = ["CloudPickler", "dump", "dumps", "load", "loads", "register_pickle_by_value", "unregister_pickle_by_value"]
