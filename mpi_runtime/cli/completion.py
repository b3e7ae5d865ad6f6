"""The verb `completion`: prints a script with which bash, zsh or fish complete `mpi-runtime`.

The script is made from the parsers of all verbs, so it has what `--help` has. It starts no Python while it completes.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from shlex import quote
from typing import Any, NamedTuple

from mpi_runtime.cli.main import VERBS

SHELLS = ("bash", "zsh", "fish")
FILES, DIRECTORIES, OTHER = "files", "directories", "other"
"""What completes a value that has no fixed choices."""
_FILES, _DIRECTORIES = ("FILE", "PATH"), ("DIR",)
"""Metavars of files, and of directories."""
_WITH_PROGRAM = ("run", "submit")
"""Verbs that start a program. It stands behind the options, and their parsers never see it."""

_SubParsers = argparse._SubParsersAction  # pyright: ignore[reportPrivateUsage]


class Option(NamedTuple):
    """An option of a verb."""

    flags: tuple[str, ...]
    help: str
    value: str
    """FILES, DIRECTORIES or OTHER; empty: it takes none."""
    choices: tuple[str, ...]


class Verb(NamedTuple):
    """A verb with its options; `path` is its words: "batch status"."""

    path: str
    help: str
    options: tuple[Option, ...]
    positional: str
    """FILES, DIRECTORIES or OTHER; empty: it takes none."""
    choices: tuple[str, ...]
    """The words that its first positional argument may be."""


def completion(words: Sequence[str]) -> int:
    """Print the script for a shell."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime completion",
        description="Print a script with which a shell completes mpi-runtime. bash: put "
        "source <(mpi-runtime completion bash) into ~/.bashrc; zsh: source <(mpi-runtime completion zsh) into "
        "~/.zshrc, after compinit; fish: mpi-runtime completion fish > ~/.config/fish/completions/mpi-runtime.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    shell = parser.parse_args(words).shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](list(verbs())), end="")
    return 0


# The parsers of all verbs.


class _FoundError(Exception):
    """A verb is about to read its words with this parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def _parser_of(function: Callable[[Sequence[str]], int], words: Sequence[str]) -> argparse.ArgumentParser | None:
    """The parser with which a verb would read these words; None: it has none."""

    def found(self: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _FoundError(self)

    own = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = found  # type: ignore[assignment, method-assign]
    try:
        function(words)
    except _FoundError as error:
        return error.parser
    finally:
        argparse.ArgumentParser.parse_args = own  # type: ignore[method-assign]
    return None


def verbs() -> Iterator[Verb]:
    """All verbs, and those below them."""
    for name, (place, what) in VERBS.items():
        module, _, function = place.partition(":")
        call = getattr(import_module(module), function)
        parser = _parser_of(call, [])
        below = _below(_parser_of(call, ["list"]) if name == "batch" else parser)
        if parser is not None:
            own = _verb(name, what, parser, tuple(below))
            yield own._replace(positional=FILES) if name in _WITH_PROGRAM else own
        for word, one in below.items():
            yield _verb(f"{name} {word}", one.description or "", one)


def _below(parser: argparse.ArgumentParser | None) -> dict[str, argparse.ArgumentParser]:
    """The verbs below a parser."""
    actions = parser._actions if parser is not None else []
    for action in actions:
        if isinstance(action, _SubParsers):
            found: Any = action.choices  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return dict(found)
    return {}


def _verb(path: str, what: str, parser: argparse.ArgumentParser, below: tuple[str, ...] = ()) -> Verb:
    options: list[Option] = []
    positional, choices = "", below
    for action in parser._actions:
        values = tuple(map(str, action.choices or ()))
        if action.option_strings:
            kind = "" if action.nargs == 0 else _kind(action)
            flags = tuple(flag for flag in action.option_strings if flag.startswith("--") or len(flag) == 2)
            options.append(Option(flags, _plain(action.help or ""), kind, values if kind else ()))
        elif not isinstance(action, _SubParsers) and not positional:
            positional, choices = "" if values else _kind(action), choices + values
    return Verb(path, _plain(what), tuple(options), positional, choices)


def _kind(action: argparse.Action) -> str:
    metavar = str(action.metavar or action.dest).upper()
    is_batch = metavar == "NAME" and not action.option_strings  # it is named by its file too
    return DIRECTORIES if metavar in _DIRECTORIES else FILES if metavar in _FILES or is_batch else OTHER


def _plain(text: str) -> str:
    """Help in one line, without signs that mean something to a shell."""
    text = " ".join(text.split()).partition(". ")[0].rstrip(".")
    return text.translate(str.maketrans("", "", "'\"`$\\[]:"))


# The scripts. Each finds the verb in the words so far, then the option before the cursor, then what may stand there.


def _arms(found: Sequence[Verb], line: Callable[[Verb, Option], str]) -> list[str]:
    """A line of a `case` for each option with a value: `"batch --form") ...`."""
    arms: list[str] = []
    for verb in found:
        for option in verb.options:
            if option.value:
                words = "|".join(f'"{verb.path} {flag}"' for flag in option.flags)
                arms.append(f"        {words}) {line(verb, option)}; return ;;")
    return arms


def _path_arms(found: Sequence[Verb]) -> str:
    return "|".join(f'" {verb.path}"' if " " not in verb.path else f'"{verb.path}"' for verb in found)


def bash(found: Sequence[Verb]) -> str:
    """The script for bash."""

    def value(_: Verb, option: Option) -> str:
        if option.choices:
            return f'COMPREPLY=($(compgen -W {quote(" ".join(option.choices))} -- "$cur"))'
        return {FILES: "_mpi_runtime_files -f", DIRECTORIES: "_mpi_runtime_files -d"}.get(option.value, "COMPREPLY=()")

    arms: list[str] = []
    for verb in found:
        flags = " ".join(flag for option in verb.options for flag in option.flags)
        files = {FILES: "-f", DIRECTORIES: "-d"}.get(verb.positional, "")
        arms.append(
            f'        "{verb.path}") flags={quote(flags)} words={quote(" ".join(verb.choices))} files={files} ;;'
        )
    top = " ".join(verb.path for verb in found if " " not in verb.path)
    lines = [
        "# bash completion of mpi-runtime, made by `mpi-runtime completion bash`",
        "_mpi_runtime_files() {",
        "    compopt -o filenames 2>/dev/null",
        '    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen "$1" -- "$cur")',
        "}",
        "_mpi_runtime() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= flags= words= files= i",
        "    COMPREPLY=()",
        '    if [[ $cur == "=" ]]; then cur=; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi',
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        '        case "$path ${COMP_WORDS[i]}" in',
        f'        {_path_arms(found)}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;',
        "        esac",
        "    done",
        '    case "$path $prev" in',
        *_arms(found, value),
        "    esac",
        '    case "$path" in',
        f'        "") words={quote(top)} ;;',
        *arms,
        "    esac",
        "    [[ $cur == -* ]] && words=$flags files=",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        '    if [[ -n $files ]]; then _mpi_runtime_files "$files"; fi',
        "}",
        "complete -F _mpi_runtime mpi-runtime",
    ]
    return "\n".join(lines) + "\n"


def zsh(found: Sequence[Verb]) -> str:
    """The script for zsh."""

    def described(words: Sequence[tuple[str, str]]) -> str:
        return " ".join(quote(f"{word}:{what}") for word, what in words)

    def value(_: Verb, option: Option) -> str:
        if option.choices:
            return f"compadd -- {' '.join(map(quote, option.choices))}"
        return {FILES: "_files", DIRECTORIES: "_files -/"}.get(option.value, f"_message {quote(option.help)}")

    help_of = {verb.path: verb.help for verb in found}
    arms: list[str] = []
    for verb in found:
        flags = described([(flag, option.help) for option in verb.options for flag in option.flags])
        words = described([(word, help_of.get(f"{verb.path} {word}", "")) for word in verb.choices])
        files = {FILES: "_files", DIRECTORIES: "_files -/"}.get(verb.positional, "")
        arms.append(f'        "{verb.path}") flags=({flags}) words=({words}) files={quote(files)} ;;')
    top = described([(verb.path, verb.help) for verb in found if " " not in verb.path])
    lines = [
        "#compdef mpi-runtime",
        "# zsh completion of mpi-runtime, made by `mpi-runtime completion zsh`",
        "_mpi_runtime() {",
        "    local verb= word= files=",
        "    local -a flags words_here",
        "    for word in ${words[2,CURRENT-1]}; do",
        '        case "$verb $word" in',
        f'        {_path_arms(found)}) verb="${{verb:+$verb }}$word" ;;',
        "        esac",
        "    done",
        '    case "$verb ${words[CURRENT-1]}" in',
        *_arms(found, value),
        "    esac",
        '    case "$verb" in',
        f'        "") words_here=({top}) ;;',
        *[arm.replace(" words=(", " words_here=(") for arm in arms],
        "    esac",
        "    if [[ $PREFIX == -* ]]; then _describe option flags; return; fi",
        "    (( $#words_here )) && _describe word words_here",
        "    [[ -n $files ]] && ${=files}",
        "}",
        "compdef _mpi_runtime mpi-runtime",
    ]
    return "\n".join(lines) + "\n"


def fish(found: Sequence[Verb]) -> str:
    """The script for fish."""
    help_of = {verb.path: verb.help for verb in found}
    paths = " ".join(quote(verb.path) for verb in found)
    lines = [
        "# fish completion of mpi-runtime, made by `mpi-runtime completion fish`",
        "function __mpi_runtime_is",
        "    set -l path",
        "    for word in (commandline -opc)[2..-1]",
        f'        if contains -- (string trim "$path $word") {paths}',
        '            set path (string trim "$path $word")',
        "        end",
        "    end",
        '    test "$path" = "$argv[1]"',
        "end",
        "complete -c mpi-runtime -f",
    ]
    lines += [
        f"complete -c mpi-runtime -n '__mpi_runtime_is \"\"' -a {verb.path} -d {quote(verb.help)}"
        for verb in found
        if " " not in verb.path
    ]
    for verb in found:
        is_here = quote(f'__mpi_runtime_is "{verb.path}"')
        here = f"complete -c mpi-runtime -n {is_here}"
        for word in verb.choices:
            what = help_of.get(f"{verb.path} {word}", "")
            lines.append(f"{here} -a {quote(word)} -d {quote(what)}")
        if verb.positional in (FILES, DIRECTORIES):
            lines.append(f"{here} -F")
        for option in verb.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            value = {FILES: " -r -F", DIRECTORIES: " -r -F", OTHER: " -x"}.get(option.value, "")
            value = f" -x -a {quote(' '.join(option.choices))}" if option.choices else value
            lines.append(f"{here} {flags}{value} -d {quote(option.help)}")
    return "\n".join(lines) + "\n"
