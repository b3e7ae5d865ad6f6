"""Streams whose blocks are all kept, and kept blocks as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from mpi_runtime.data.plan import Operator, Source
from mpi_runtime.data.streams.lost_blocks import table_of
from mpi_runtime.data.streams.progress import Stats
from mpi_runtime.data.streams.records import SOURCE, Block
from mpi_runtime.data.streams.running import Running


def of_blocks(stored: list[Block], name: str) -> Source:
    """A source of blocks that are in the store."""

    def fresh(cpus: int, block_bytes: int) -> list[Block]:
        return [Block(one.value, one.rows, one.bytes, one.origin, SOURCE, one.key, one.rebuild) for one in stored]

    def identity() -> tuple[object, ...]:
        digest = hashlib.blake2b(digest_size=16)
        for one in stored:
            table = table_of(one)
            digest.update(repr(table.schema).encode())
            for column in table.columns:
                for buffer in (buffer for chunk in column.chunks for buffer in chunk.buffers() if buffer):
                    digest.update(buffer)
        return len(stored), digest.hexdigest()

    return Source(name, fresh, identity, count=lambda: sum(one.rows for one in stored), is_stored=True)


def stored(operator: Operator, note: Callable[[Stats], None] | None = None) -> list[Block]:
    """Run a stream, and return all its blocks in their order. The store may spill them."""
    running = Running(operator, ordered=True, note=note)
    kept: list[Block] = []
    try:
        while (block := running.next()) is not None:
            kept.append(Block(block.value, block.rows, block.bytes, block.origin, SOURCE, (len(kept),), block.rebuild))
            running.release(block)
    finally:
        running.close()
    if not kept and running.empty is not None:
        kept.append(Block(running.empty, 0, 0, "", SOURCE, (0,)))
    return kept
