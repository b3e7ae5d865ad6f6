"""Output of unknown programs cannot change a terminal."""

from pathlib import Path

from mpi_runtime.batch.history.outputs import tail
from mpi_runtime.batch.history.results import CommandResult, shortened
from mpi_runtime.show.terminal import harmless

EVIL = "\x1b]0;mine\x07\x1b[2Jgone\x9b1A"


def test_colours_stay_and_the_rest_becomes_letters() -> None:
    text = f"a\tb \x1b[1;31mred\x1b[m\r\n50 %\r100 %\n{EVIL} \u00e9"
    shown = "a\tb \x1b[1;31mred\x1b[m\n50 %\n100 %\n\\x1b]0;mine\\x07\\x1b[2Jgone\\x9b1A \u00e9\x1b[0m"
    assert "".join(harmless([text.encode()])) == shown
    assert "".join(harmless(bytes([one]) for one in text.encode())) == shown, "however it is cut"
    assert "".join(harmless([b"\xff\x1b[3"])) == "\ufffd\\x1b[3"


def test_what_is_shown_of_a_failed_command(tmp_path: Path) -> None:
    (tmp_path / "out").write_text(f"{EVIL}\n\tend\n")
    result = CommandResult(
        name="a", command=EVIL, exit_code=None, problem=EVIL, is_success=False, start=0, end=0, host="h",
        stdout=str(tmp_path / "out"),
    )  # fmt: skip
    assert tail(str(tmp_path), result)[1] == "        end"
    assert all("\x1b" not in text for text in (*tail(str(tmp_path), result), shortened(EVIL), result.ending()))
