"""Which files several commands of a batch write to."""

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.outputs import SharedFiles


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
