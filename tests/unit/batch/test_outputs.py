"""Which files several commands of a batch write to, and what is shown of an output."""

from pathlib import Path

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.outputs import SharedFiles, tail
from mpi_runtime.batch.history.results import CommandResult


def test_a_file_is_shared_if_two_commands_name_it_in_any_way() -> None:
    files = SharedFiles()
    commands = [
        Command(text="true", name="own", stdout="own.log", stderr="own.log"),
        Command(text="true", name="first", stdout="{x}.log", values={"x": "both"}),
        Command(text="true", name="second", stdout="second.log", stderr="both.log"),
        Command(text="true", name="none"),
    ]
    files.add(commands)
    assert [files.marked(one).appends for one in commands] == [(), ("stdout",), ("stderr",), ()]
    unnamed = [Command(text="true", stdout=f"{number}.log") for number in range(2)]
    files.add(unnamed)
    assert [files.marked(one).appends for one in unnamed] == [(), ()]
    later = Command(text="true", name="later", stdout="own.log")
    files.add([later])
    assert files.marked(later).appends == ("stdout",)
    assert files.marked(commands[0]).appends == ("stdout", "stderr")


def test_a_long_line_is_shown_by_its_ends(tmp_path: Path) -> None:
    """So an output without line breaks, or of bytes that are not text, fills no terminal."""
    output = tmp_path / "a.out"
    output.write_bytes(b"first\n" + b"<" * 1000 + bytes(1000) + b">" * 1000 + b"\nlast\n")
    result = CommandResult(
        name="a", command="true", exit_code=1, is_success=False, start=0.0, end=1.0, host="h", stdout=str(output)
    )
    assert tail(str(tmp_path), result) == ["first", "<" * 250 + " ... " + ">" * 250, "last"]
