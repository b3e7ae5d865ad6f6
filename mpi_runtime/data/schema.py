"""The columns of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.core import published

if TYPE_CHECKING:
    import pyarrow


@published("mpi_runtime.data")
class Schema:
    """The names and types of columns."""

    def __init__(self, base_schema: pyarrow.Schema) -> None:
        """`base_schema`: that of Arrow."""
        self.base_schema = base_schema.remove_metadata()

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[pyarrow.DataType]:
        """The types of the columns, as Arrow's."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.base_schema.equals(other.base_schema)

    def __hash__(self) -> int:
        return hash(str(self.base_schema))

    def __repr__(self) -> str:
        width = max([len("Column"), *(len(name) for name in self.names)])
        kinds = [str(kind) for kind in self.types]
        rows = [("Column", "Type"), ("-" * len("Column"), "-" * len("Type")), *zip(self.names, kinds, strict=True)]
        return "\n".join(f"{name:<{width}}  {kind}" for name, kind in rows)
