"""Records of journals: what can be written can be read, however large."""

import io

import pytest

from mpi_runtime.files import segments


def test_a_record_that_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length has 32 bits, and no reader refuses one that these can state."""
    assert segments._LENGTH.unpack(b"\xff" * 4)[0] == segments.BODY_BYTES_MAX
    monkeypatch.setattr(segments, "BODY_BYTES_MAX", 100)
    largest = segments.frame(segments.Noted("kind", 1, bytes(90)))
    with pytest.raises(ValueError, match="a record of a journal has at most 100 bytes, not 101"):
        segments.frame(segments.Noted("kind", 1, bytes(91)))
    monkeypatch.setattr(segments, "BODY_BYTES_MAX", 10)
    found, damage = io.BytesIO(segments.header() + largest), segments.Damage()
    assert [type(body) for _, body in segments.read(found, damage)] == [segments.Noted]
    assert damage.bytes == 0
