"""Faces: what type checkers read agrees with what a running program loads."""

import pytest

from tests.rules import faces
from tests.rules.house import Module


@pytest.mark.parametrize("face", [*faces.faces()], ids=lambda face: face.name)
def test_type_checkers_find_each_public_name_where_the_table_has_it(face: Module) -> None:
    """`make faces` writes it."""
    assert faces.for_checkers(face) == faces.in_table(face)
