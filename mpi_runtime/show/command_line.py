"""What several verbs have: arguments, and `--json`: what a verb shows as one JSON document, see docs/json.md."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mpi_runtime.errors import JournalError, LaunchError


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument("--json", action="store_true", help="print JSON; docs/json.md has the fields")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a running job."""
    help = "the process id of its program; default: the only job"
    parser.add_argument("job", nargs="?", type=process_id, metavar="JOB", help=help)


def print_json(facts: object) -> None:
    """Print a document. Structs and data classes become objects."""
    import msgspec  # not at the top: `mpi-runtime --help` and the workers load none of it

    print(msgspec.json.format(msgspec.json.encode(facts, enc_hook=repr)).decode())


def path(text: str) -> str:
    """A path as an argument: not empty or blank, as `"$NOT_SET"` of a shell is."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a path; is a variable of the shell empty?")
    return text


def process_id(text: str) -> int:
    """The process id of a job as an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the process id of a program; without one, `mpi-runtime top` lists the jobs if there are "
            "several"
        )
    return int(text)


VerbsOnDirectory = Mapping[str, tuple[Callable[[Path, bool], int], str]]
"""By name: a function that takes a directory, and whether it prints JSON; what it does."""


def directory_parser(
    verb: str, about: str, verbs: VerbsOnDirectory, help: str, silent: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """The arguments of a verb with verbs below it, each on a directory. Those that are `silent` print no JSON."""
    parser = argparse.ArgumentParser(prog=f"mpi-runtime {verb}", description=about)
    choices = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (_, what) in verbs.items():
        one = choices.add_parser(name, help=what, description=f"{what.capitalize()}.")
        one.add_argument("directory", type=Path, metavar="DIR", help=help)
        if name not in silent:
            add_json(one)
    return parser


def on_directory(parser: argparse.ArgumentParser, words: Sequence[str], verbs: VerbsOnDirectory) -> int:
    """Run one of the verbs below a verb and return its exit code. `parser`: its `directory_parser`."""
    chosen = parser.parse_args(words)
    try:
        return verbs[chosen.verb][0](chosen.directory, getattr(chosen, "json", False))
    except PermissionError as error:
        text = "Only the user who has started the program may read what it recorded: `ls -ld` shows who that is"
        raise LaunchError(f"{error.filename or chosen.directory}: {error.strerror}. {text}") from error
    except OSError as error:
        raise LaunchError(f"{error.filename or chosen.directory}: {error.strerror or error}") from error
    except (JournalError, ValueError) as error:
        raise LaunchError(str(error)) from error
