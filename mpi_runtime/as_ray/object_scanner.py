"""`ray.dag.py_obj_scanner`: finds objects of a type inside any value that can be pickled, and replaces them."""

import io
import pickle
from collections.abc import Hashable, Mapping

import cloudpickle

from mpi_runtime.as_ray.dag import DAGNode

_instances: dict[int, object] = {}
"""Always empty: a scanner needs nothing outside of itself."""


class _PyObjScanner(cloudpickle.Pickler):  # type: ignore[misc]
    """Scans one value. Objects that are found are not pickled themselves."""

    def __init__(self, source_type: type | tuple[type, ...] = DAGNode) -> None:
        self.source_type = source_type
        self._bytes = io.BytesIO()
        self._found: dict[int, object] = {}
        super().__init__(self._bytes)

    def persistent_id(self, obj: object) -> int | None:
        """The key of an object that is to be found, in place of its bytes."""
        if not isinstance(obj, self.source_type):
            return None
        self._found[id(obj)] = obj
        return id(obj)

    def find_nodes(self, obj: object) -> list[object]:
        """Return the objects of the type inside a value, each once, in their order."""
        if self._bytes.tell():
            raise AssertionError("find_nodes cannot be called twice on the same scanner")
        self.dump(obj)
        return list(self._found.values())

    def replace_nodes(self, table: Mapping[Hashable, object]) -> object:
        """Return a copy of the value with others in place of what was found."""
        if not self._bytes.tell():
            raise AssertionError("find_nodes must be called first")
        loader = pickle.Unpickler(io.BytesIO(self._bytes.getvalue()))
        loader.persistent_load = lambda key: table[self._found[key]]  # type: ignore[method-assign]
        return loader.load()

    def clear(self) -> None:
        """Do nothing: the scanner frees what it has with itself."""
