"""The last lines of output, for programs that look at the job."""

import msgspec

from mpi_runtime.core.head.printer import ANSWER_BYTES_MAX, PIECE_BYTES_MAX, Recent


def test_output_that_is_no_text_fits_an_answer() -> None:
    recent = Recent()
    for _ in range(100):
        recent.output(1, b"(f) ", b"\xff" * PIECE_BYTES_MAX)
    found = recent.since(0)
    assert found.count == 100
    assert found.pieces, "the last"
    assert len(msgspec.msgpack.encode(found)) < 1.1 * ANSWER_BYTES_MAX
