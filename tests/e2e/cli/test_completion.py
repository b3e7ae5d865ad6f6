"""`mpi-runtime completion`: the scripts in the real shells, as far as these are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mpi_runtime.cli.completion import verbs
from mpi_runtime.cli.main import VERBS, main

BASH = """
source "$1"; shift
COMP_WORDS=(mpi-runtime "$@"); COMP_CWORD=$#
_mpi_runtime
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
_describe() { print -rl -- "${(@)${(P)2}%%:*}" }
compadd() { shift; print -rl -- "$@" }
_files() { print -rl -- *(N${1:+/}) }
_message() { : }
source $1; shift
words=(mpi-runtime "$@"); CURRENT=$#words; PREFIX=$words[-1]
_mpi_runtime
"""
"""What the functions of zsh's completion would offer; they match it with the word themselves."""
FISH = 'source $argv[1]; complete -C "mpi-runtime $argv[2..-1]" | string replace -r "\\t.*" ""'


PATH = "/usr/bin:/bin"


def offered(shell: str, folder: Path, *words: str) -> set[str]:
    """What the shell offers for the last word."""
    script = folder / "scripts" / shell
    code = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]
    own = ["--no-config"] if shell == "fish" else ["-f"] if shell == "zsh" else ["--norc"]
    name = [] if shell == "fish" else [shell]
    done = subprocess.run(
        [shell, *own, "-c", code, *name, str(script), *words],
        cwd=folder / "here", capture_output=True, text=True, timeout=30, env={"HOME": str(folder), "PATH": PATH},
    )  # fmt: skip
    assert done.stderr == "", done.stderr
    return {one.rstrip("/") for one in done.stdout.split("\n") if one.startswith(words[-1])} - {""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts of all shells, and one with a file and a directory."""
    found = tmp_path_factory.mktemp("completion")
    (found / "here" / "a folder").mkdir(parents=True)
    (found / "here" / "a file.toml").touch()
    (found / "scripts").mkdir()
    return found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_verbs_options_values_and_files(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    (folder / "scripts" / shell).write_text(capsys.readouterr().out)
    assert offered(shell, folder, "") >= {*VERBS}
    assert offered(shell, folder, "who", "ba") >= {"batch"}, "an unknown word is passed over"
    assert offered(shell, folder, "ba") == {"batch"}
    assert offered(shell, folder, "batch", "sta") == {"status"}
    assert offered(shell, folder, "batch", "--retr") == {
        "--retry-failed",
        "--retries",
        "--retry-codes",
        "--retry-delay",
    }
    assert offered(shell, folder, "batch", "status", "--j") == {"--json"}
    assert offered(shell, folder, "journal", "") >= {"list", "show", "verify", "compact"}
    assert offered(shell, folder, "batch", "--form", "") >= {"lines", "toml", "json"}
    assert offered(shell, folder, "batch", "--num-cpus", "") == set()
    assert offered(shell, folder, "template", "rank_per_g") == {"rank_per_gpu"}
    assert offered(shell, folder, "batch", "a") == {"a file.toml", "a folder", "add"}
    assert "a file.toml" in offered(shell, folder, "run", "-n", "2", "a")
    assert "a folder" in offered(shell, folder, "batch", "--directory", "a")


def test_every_verb_and_option_has_help_for_the_shells() -> None:
    """None has signs that would end a word of a script."""
    found = list(verbs())
    assert {verb.path for verb in found} >= {*VERBS, "batch status", "batch report", "batch log", "tune ls"}
    texts = [verb.help for verb in found] + [option.help for verb in found for option in verb.options]
    assert all(texts)
    assert not [text for text in texts if set(text) & set("'\"`$\\[]:\n")]


def test_no_verb_is_called_for_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(words: object) -> int:
        raise AssertionError(words)

    for place, _ in VERBS.values():
        monkeypatch.setattr(place.replace(":", "."), never)
    assert [verb.path for verb in verbs() if " " not in verb.path] == [*VERBS]
