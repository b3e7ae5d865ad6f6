"""Plain English: words that read as translated are neither in the documentation nor in texts of the package.

The style page of CONTRIBUTING.md has the reasons, and quotes these words.
"""

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.rules.house import PACKAGED, python_files, room_of, texts

ODD = {
    r"(?<!\.)\b(told|tells? of)\b": "receives, reports, logs, is sent",
    r"\b(is|are|was|were|be|been|being) said\b|\b(says?|said) so\b": "is reported, is logged",
    r"\bin (its |their |his )?hand\b": "assigned",
    r"\b(has|have|had) come\b": "has arrived",
    r"\b(goes|go|went|going) on\b": "continues",
    r"\banew\b|\b(made|make|makes) again\b": "from scratch, recreated, rebuilt",
    r"(?<!there )(?<!that )\b(is|are) ((?-i:none)|no(?! (longer|more|less|other)\b))\b": "must be ..., is not ...",
    r"(?<!as )\bso (many|long|few)\b(?! (as|that)\b)": "a number, as long as",
    r"^(?-i:Who|Whose|Whoever|Of which)\b": "the noun",
    r"\b(he|his|him)\b": "the name of the program or process",
}
"""Patterns, each with better words. A blank stands for any white space."""
PATTERNS = {re.compile(odd.replace(" ", r"\s"), re.IGNORECASE): better for odd, better in ODD.items()}
NOT_PROSE = re.compile(r"`[^`\n]*`|\{[^{}\n]*\}")
"""Code that is quoted, and what is put into a text."""
QUOTES = re.compile(r"""^[a-zA-Z]*("{3}|'{3}|"|')|("{3}|'{3}|"|')$""")
QUOTED_IN = {"CONTRIBUTING.md"}
ROOMS = sorted({room_of(path) for path, _ in python_files() if path.parts[0] in PACKAGED})


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Each odd word of a text: the number of the line, from 0, and the word with a better one."""
    prose = NOT_PROSE.sub(lambda quoted: "_" * len(quoted[0]), text)
    for pattern, better in PATTERNS.items():
        for found in pattern.finditer(prose):
            yield prose.count("\n", 0, found.start()), f"{' '.join(found[0].split())!r}: {better}"


def spoken(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings, messages and comments of a module, each with its line. Comments below each other are one."""
    block, at, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            block, at = (f"{block}\n{token.string[2:]}", at) if line == last + 1 else (token.string[2:], line)
            last = line
        elif token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)):
            yield line, QUOTES.sub("", token.string)
        if block and line > last:
            yield at, block
            block = ""


def odd_words(room: str) -> list[str]:
    return [
        f"{path}:{line + below}: {word}"
        for path, source in python_files()
        if path.parts[0] in PACKAGED and room_of(path) == room
        for line, text in spoken(source)
        for below, word in found_in(text)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_speaks_plainly(room: str) -> None:
    wrong = odd_words(room)
    assert not wrong, "\n".join(wrong)


def test_the_documentation_speaks_plainly() -> None:
    wrong = [
        f"{path}:{line + 1}: {word}"
        for path, text in texts()
        if path.suffix == ".md" and path.name not in QUOTED_IN
        for line, word in found_in(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_odd_words_are_found_in_all_that_is_said() -> None:
    source = '''"""Whose it is.

It goes
on.
"""

def f(a):  # all is made
    # anew, one by one
    raise ValueError(f"{a.said} is no {a}, `told`")  # as there is none, as long as it is one of so many as these
'''
    found = [(line + below, word.partition(":")[0]) for line, text in spoken(source) for below, word in found_in(text)]
    assert sorted(found) == [(1, "'Whose'"), (3, "'goes on'"), (8, "'anew'"), (9, "'is no'")]
