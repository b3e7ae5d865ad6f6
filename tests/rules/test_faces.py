"""Faces: what type checkers read agrees with what a running program loads."""

from tests.rules import faces


def test_type_checkers_find_each_public_name_where_the_table_has_it() -> None:
    """`make faces` writes it."""
    found = list(faces.faces())
    assert len(found) > 10
    assert {face.name: faces.for_checkers(face) for face in found} == {
        face.name: faces.in_table(face) for face in found
    }
