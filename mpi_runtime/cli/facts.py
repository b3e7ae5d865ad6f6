"""What several verbs have: arguments, and `--json`: what a verb shows as one JSON document, see docs/json.md."""

import argparse
from typing import Any


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument("--json", action="store_true", help="print JSON; docs/json.md has the fields")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a running job."""
    help = "the process id of its program; default: the one"
    parser.add_argument("job", nargs="?", type=process_id, metavar="JOB", help=help)


def print_json(facts: Any) -> None:
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
