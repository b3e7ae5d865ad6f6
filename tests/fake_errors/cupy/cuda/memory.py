"""What cupy raises when its pool finds no memory."""


class OutOfMemoryError(MemoryError):
    """Its arguments are not what it is made from."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        self._size, self._total, self._limit = size, total, limit
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")
